"""A decoder layer of the shape of Llama 3 8B, built of the library's functions by hand, and by the graph compiler.

usage: python -m benchmarks.library.decoder_layer [--phase prefill|decoding] [--how TEXT] [--json FILE]

Prefill of 2,048 positions, and a step of decoding whose cache has 8,192: hidden 4,096, 32 heads of 128, 8 heads of
keys, inner size 14,336, bfloat16, weights as (features, results). "by hand" calls functions of the library in PyTorch;
"own" is the same layer in operators of PyTorch, as the graph compiler makes it: alone, with its pattern of attention,
and with the library's patterns. The roofline is the larger of the products at the peak rate and of the bytes that have
to move: weights, the cache, what comes in and goes out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

import nki
import nki.language as nl
from nki.graph.compile import compile_module
from nki.graph.importers.torch.decompositions.table import decompositions
from nki.graph.importers.torch.exported_program import module_of
from nki.graph.patterns import register
from nki.interop.torch.compile.kernel_calls import Kernels
from nki.target.load import load_target
from nki.timing.cores import spent_by_cores
from nkilib.core.attention.attention_cte import attention_cte
from nkilib.core.attention_tkg import AttnTKGConfig, attention_tkg
from nkilib.core.mlp import mlp
from nkilib.core.output_projection.output_projection_cte import output_projection_cte
from nkilib.core.qkv import qkv
from nkilib.core.utils.common_types import NormType, QKVOutputLayout
from nkilib.patterns.every import PATTERNS

H, HEADS, SHARED, D, INNER = 4096, 32, 8, 128, 14336
POSITIONS, CACHE, EPS, TARGET = 2048, 8192, 1e-5, "trn2"
GROUP = HEADS // SHARED
Tensors = dict[str, torch.Tensor]


def weights() -> Tensors:
    """The weights of a layer; nobody looks at their values."""
    shapes = {
        "gain": (1, H), "heads": (H, (HEADS + 2 * SHARED) * D), "out": (HEADS * D, H), "second": (1, H),
        "gate": (H, INNER), "up": (H, INNER), "down": (INNER, H),
    }  # fmt: skip
    return {name: torch.empty(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}


def inputs(phase: str) -> Tensors:
    """What a layer is called with besides its weights."""
    new = POSITIONS if phase == "prefill" else 1
    made = {"x": torch.empty((1, new, H), dtype=torch.bfloat16)}
    made |= {name: torch.empty((1, new, D), dtype=torch.bfloat16) for name in ("cos", "sin")}
    if phase == "decoding":
        made |= {name: torch.empty((SHARED, 1, CACHE, D), dtype=torch.bfloat16) for name in ("keys", "values")}
        made["place"] = torch.tensor([CACHE - 1])
    return made


# ----------------------------------------------------------------------------------------------------------- by hand


@nki.jit
def attended(heads: Any) -> Any:
    """Attention of a prompt: queries, keys and values are parts of one tensor."""
    q, k, v = (heads[part].reshape((-1, POSITIONS, D)) for part in PARTS)
    return attention_cte(q, k, v, D**-0.5, tp_k=True, tp_out=True)


PARTS = slice(0, HEADS), slice(HEADS, HEADS + SHARED), slice(HEADS + SHARED, HEADS + 2 * SHARED)


@nki.jit
def attended_step(heads: Any, keys: Any, values: Any, positions: Any, seen: Any) -> Any:
    """Attention of one new token: each head of keys with its queries counts as a sequence."""
    q, k, v = (heads[part].reshape((SHARED, -1, 1, D)) for part in PARTS)
    out = nl.ndarray((SHARED, GROUP, D, 1), dtype=heads.dtype, buffer=nl.shared_hbm)
    cfg = AttnTKGConfig(
        bs=SHARED, q_head=GROUP, s_active=1, curr_sprior=CACHE, full_sprior=CACHE, d_head=D, tp_k_prior=True,
        use_pos_id=True,
    )  # fmt: skip
    return attention_tkg(q, k, v, keys, values, seen, out, cfg, None, rope_pos_ids=positions)[0]


def _heads(x: Any, w: Tensors, cos: Any, sin: Any) -> Any:
    return qkv(
        x, w["heads"], QKVOutputLayout.NBSd, fused_norm_type=NormType.RMS_NORM, gamma_norm_weights=w["gain"],
        norm_eps=EPS, fused_rope=True, cos_cache=cos, sin_cache=sin, d_head=D, num_q_heads=HEADS, num_kv_heads=SHARED,
    )  # fmt: skip


def _after(x: Any, attention: Any, w: Tensors) -> Any:
    projected = output_projection_cte(attention, w["out"])
    made, total = mlp(
        x, w["gate"], w["up"], w["down"], w["second"], fused_add_tensor=projected, store_fused_add_result=True,
        normalization_type=NormType.RMS_NORM, eps=EPS,
    )  # fmt: skip
    return total + made


def prefill_by_hand(x: Any, cos: Any, sin: Any, **w: Any) -> Any:
    """The layer's result, and keys and values of the cache."""
    heads = _heads(x, w, cos, sin)
    attention = attended(heads).reshape(1, HEADS, D, POSITIONS)
    return _after(x, attention, w), heads[PARTS[1]], heads[PARTS[2]]


def decoding_by_hand(x: Any, cos: Any, sin: Any, keys: Any, values: Any, place: Any, **w: Any) -> Any:
    """The layer's result, and the cache with the new token."""
    heads = _heads(x, w, cos, sin)
    scaled = torch.cat([heads[PARTS[0]] * D**-0.5, heads[HEADS:]])
    positions = place.float().reshape(1, 1).expand(SHARED, 1).contiguous()
    seen = torch.ones((1, SHARED, GROUP, 1), dtype=torch.uint8)
    attention = attended_step(scaled, keys, values, positions, seen).reshape(1, HEADS, D, 1)
    cache = (old.index_copy(2, place, heads[part]) for old, part in zip((keys, values), PARTS[1:], strict=True))
    return (_after(x, attention, w), *cache)


# --------------------------------------------------------------------------------------------------------------- own


def _turned(x: Any, cos: Any, sin: Any) -> Any:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def _own(x: Any, cos: Any, sin: Any, w: Tensors, cache: Callable[[Any, Any], tuple[Any, Any, Any]]) -> Any:
    normal = rms_norm(x, (H,), w["gain"].reshape(H), EPS)
    made = (normal @ w["heads"]).reshape(1, x.shape[1], HEADS + 2 * SHARED, D).transpose(1, 2)
    q, k = (_turned(made[:, part], cos, sin) for part in PARTS[:2])
    keys, values, mask = cache(k, made[:, PARTS[2]])
    out = scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
    out = out.transpose(1, 2).reshape(1, x.shape[1], HEADS * D)
    total = x + out @ w["out"]
    normal = rms_norm(total, (H,), w["second"].reshape(H), EPS)
    return total + (silu(normal @ w["gate"]) * (normal @ w["up"])) @ w["down"]


def prefill(x: Any, cos: Any, sin: Any, **w: Any) -> Any:
    """The layer in operators of PyTorch, as `prefill_by_hand`."""
    kept: list[Any] = []

    def cache(k: Any, v: Any) -> tuple[Any, Any, Any]:
        kept.extend((k, v))
        return k, v, torch.ones((POSITIONS, POSITIONS), dtype=torch.bool).tril()

    return (_own(x, cos, sin, w, cache), *kept)


def decoding(x: Any, cos: Any, sin: Any, keys: Any, values: Any, place: Any, **w: Any) -> Any:
    """The layer in operators of PyTorch, as `decoding_by_hand`."""
    kept: list[Any] = []

    def cache(k: Any, v: Any) -> tuple[Any, Any, Any]:
        kept.extend(old.index_copy(2, place, new[0][:, None]) for old, new in ((keys, k), (values, v)))
        return kept[0][None, :, 0], kept[1][None, :, 0], torch.arange(CACHE)[None] <= place

    return (_own(x, cos, sin, w, cache), *kept)


# ----------------------------------------------------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class Figure:
    """What a layer takes: ns and bytes of all transfers on the timing model, and the share of the roofline."""

    phase: str
    how: str
    ns: float
    nbytes: float
    roofline: float
    replaced: Sequence[str] = ()

    def __str__(self) -> str:
        return (
            f"{self.phase:9} {self.how:26} {self.ns / 1e3:10.1f} {self.nbytes / 1e6:10.1f} {self.roofline:8.0%}  "
            + (", ".join(self.replaced))
        )


LAYERS: dict[str, dict[str, Callable[..., Any]]] = {
    "prefill": {"by hand": prefill_by_hand, "own": prefill},
    "decoding": {"by hand": decoding_by_hand, "own": decoding},
}


def least_ns(phase: str) -> float:
    """The time of the products at the peak rate, or of the bytes that have to move, whichever is longer."""
    target, new = load_target(TARGET), POSITIONS if phase == "prefill" else 1
    seen = POSITIONS / 2 if phase == "prefill" else CACHE
    numbers = sum(each.numel() for each in weights().values())
    flops = 2 * new * (numbers + 2 * seen * HEADS * D)
    cache = 2 * SHARED * D * (CACHE if phase == "decoding" else new)
    moved = 2 * (numbers + cache + 2 * new * H)
    return max(flops / (target.peak.tensor_bf16_tflops * 1e3), moved / target.dma.aggregate_gbps)


def figure(phase: str, how: str, function: Callable[..., Any], patterns: Sequence[str] | None) -> Figure:
    """A layer, compiled and timed."""
    named = {**inputs(phase), **weights()}

    class Layer(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> Any:
            return function(**dict(zip(named, given, strict=True)))

    with torch.no_grad(), sdpa_kernel([SDPBackend.MATH]):
        program = torch.export.export(Layer(), tuple(named.values()), strict=False)
        program = program.run_decompositions(decompositions())
    kernels = Kernels()
    chosen = None if patterns is None else frozenset(patterns)
    donated = {1: list(named).index("keys"), 2: list(named).index("values")} if phase == "decoding" else None
    made = compile_module(module_of(program, kernels.converters), target=TARGET, patterns=chosen, donated=donated)
    spent = spent_by_cores(made.programs, load_target(TARGET))[0]
    used = [each.pattern for each in made.report.replaced]
    return Figure(phase, how, spent.ns, spent.nbytes, least_ns(phase) / spent.ns, used)


def main() -> None:
    """Read the command line, and print a line for each way to make a layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phase", default="", choices=["", *LAYERS])
    parser.add_argument("--how", default="", help="only ways with this in their name")
    parser.add_argument("--json", default="", help="a file that the figures go to")
    args = parser.parse_args()
    for pattern in PATTERNS:
        register(pattern)
    print(f"{'':36} {'time us':>10} {'MB moved':>10} {'roofline':>8}")
    found = []
    for phase, ways in LAYERS.items():
        for how, function, patterns in (
            ("by hand", ways["by hand"], ()),
            ("own", ways["own"], ()),
            ("own, attention", ways["own"], ("attention",)),
            ("own, the library's patterns", ways["own"], None),
        ):
            if args.phase in ("", phase) and args.how in how:
                found.append(figure(phase, how, function, patterns))
                print(found[-1], flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(each) for each in found], indent=1))


if __name__ == "__main__":
    main()
