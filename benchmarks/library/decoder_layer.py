"""A decoder layer of the shape of Llama 3 8B, built of the library's functions by hand, and by the graph compiler.

usage: python -m benchmarks.library.decoder_layer [--phase prefill|decoding] [--how TEXT] [--run] [--json FILE]

Prefill of 2,048 positions, and a step of decoding whose cache has 8,192: hidden 4,096, 32 heads of 128, 8 heads of
keys, inner size 14,336, bfloat16, weights as (features, results). "by hand" calls functions of the library in PyTorch;
"own" is the same layer in operators of PyTorch, as the graph compiler makes it: alone, with its pattern of attention,
and with the library's patterns. The roofline is the larger of the products at the peak rate and of the bytes that have
to move: weights, the cache, what comes in and goes out. --run executes the layer by hand in a small size, and compares
it with PyTorch in float32, which PyTorch in bfloat16 is compared with as well.
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

EPS, TARGET, D = 1e-5, "trn2", 128
Tensors = dict[str, torch.Tensor]
Make = Callable[[tuple[int, ...]], torch.Tensor]


@dataclass(frozen=True)
class Sizes:
    """Of a layer, a prompt and a cache: features, heads, heads of keys, inner features, positions, places."""

    hidden: int
    heads: int
    shared: int
    inner: int
    positions: int
    cache: int


LLAMA = Sizes(4096, 32, 8, 14336, 2048, 8192)
SMALL = Sizes(512, 4, 2, 640, 200, 300)
"""What is executed."""


def empty(shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor whose values nobody looks at."""
    return torch.empty(shape, dtype=torch.bfloat16)


def weights(of: Sizes, make: Make = empty) -> Tensors:
    """The weights of a layer."""
    h = of.hidden
    shapes = {
        "gain": (1, h), "heads": (h, (of.heads + 2 * of.shared) * D), "out": (of.heads * D, h), "second": (1, h),
        "gate": (h, of.inner), "up": (h, of.inner), "down": (of.inner, h),
    }  # fmt: skip
    return {name: make(shape) for name, shape in shapes.items()}


def inputs(of: Sizes, phase: str, make: Make = empty) -> Tensors:
    """What a layer is called with besides its weights."""
    new = of.positions if phase == "prefill" else 1
    made = {"x": make((1, new, of.hidden)), "cos": make((1, new, D)), "sin": make((1, new, D))}
    if phase == "decoding":
        made |= {name: make((of.shared, 1, of.cache, D)) for name in ("keys", "values")}
        made["place"] = torch.tensor([of.cache - 1])
    return made


def parts(of: Sizes) -> tuple[slice, slice, slice]:
    """The queries, keys and values among heads."""
    ends = (0, of.heads, of.heads + of.shared, of.heads + 2 * of.shared)
    return slice(*ends[:2]), slice(*ends[1:3]), slice(*ends[2:])


# ----------------------------------------------------------------------------------------------------------- by hand


@nki.jit
def attended(heads: Any, shared: int) -> Any:
    """Attention of a prompt: queries, keys and values are parts of one tensor, and `shared` heads are of keys."""
    count, positions = heads.shape[0] - 2 * shared, heads.shape[2]
    each = slice(0, count), slice(count, count + shared), slice(count + shared, count + 2 * shared)
    q, k, v = (heads[part].reshape((-1, positions, D)) for part in each)
    return attention_cte(q, k, v, D**-0.5, tp_k=True, tp_out=True)


@nki.jit
def attended_step(heads: Any, keys: Any, values: Any, positions: Any, seen: Any) -> Any:
    """Attention of one new token: each head of keys with its queries counts as a sequence."""
    shared, cache = keys.shape[0], keys.shape[2]
    count = heads.shape[0] - 2 * shared
    each = slice(0, count), slice(count, count + shared), slice(count + shared, count + 2 * shared)
    q, k, v = (heads[part].reshape((shared, -1, 1, D)) for part in each)
    out = nl.ndarray((shared, count // shared, D, 1), dtype=heads.dtype, buffer=nl.shared_hbm)
    cfg = AttnTKGConfig(
        bs=shared, q_head=count // shared, s_active=1, curr_sprior=cache, full_sprior=cache, d_head=D, tp_k_prior=True,
        use_pos_id=True,
    )  # fmt: skip
    return attention_tkg(q, k, v, keys, values, seen, out, cfg, None, rope_pos_ids=positions)[0]


def _heads(of: Sizes, x: Any, w: Tensors, cos: Any, sin: Any) -> Any:
    return qkv(
        x, w["heads"], QKVOutputLayout.NBSd, fused_norm_type=NormType.RMS_NORM, gamma_norm_weights=w["gain"],
        norm_eps=EPS, fused_rope=True, cos_cache=cos, sin_cache=sin, d_head=D, num_q_heads=of.heads,
        num_kv_heads=of.shared,
    )  # fmt: skip


def _after(x: Any, attention: Any, w: Tensors) -> Any:
    projected = output_projection_cte(attention, w["out"])
    made, total = mlp(
        x, w["gate"], w["up"], w["down"], w["second"], fused_add_tensor=projected, store_fused_add_result=True,
        normalization_type=NormType.RMS_NORM, eps=EPS,
    )  # fmt: skip
    return total + made


def prefill_by_hand(of: Sizes, x: Any, cos: Any, sin: Any, **w: Any) -> Any:
    """The layer's result, and keys and values of the cache."""
    heads = _heads(of, x, w, cos, sin)
    attention = attended(heads, of.shared).reshape(1, of.heads, D, of.positions)
    return _after(x, attention, w), heads[parts(of)[1]], heads[parts(of)[2]]


def decoding_by_hand(of: Sizes, x: Any, cos: Any, sin: Any, keys: Any, values: Any, place: Any, **w: Any) -> Any:
    """The layer's result, and the cache with the new token."""
    heads = _heads(of, x, w, cos, sin)
    scaled = torch.cat([heads[: of.heads] * D**-0.5, heads[of.heads :]])
    positions = place.float().reshape(1, 1).expand(of.shared, 1).contiguous()
    seen = torch.ones((1, of.shared, of.heads // of.shared, 1), dtype=torch.uint8)
    attention = attended_step(scaled, keys, values, positions, seen).reshape(1, of.heads, D, 1)
    cache = (old.index_copy(2, place, heads[part]) for old, part in zip((keys, values), parts(of)[1:], strict=True))
    return (_after(x, attention, w), *cache)


# --------------------------------------------------------------------------------------------------------------- own


def _turned(x: Any, cos: Any, sin: Any) -> Any:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


Cache = Callable[[Any, Any], tuple[Any, Any, Any]]


def _own(of: Sizes, x: Any, cos: Any, sin: Any, w: Tensors, cache: Cache) -> Any:
    normal = rms_norm(x, (of.hidden,), w["gain"].reshape(of.hidden), EPS)
    made = (normal @ w["heads"]).reshape(1, x.shape[1], of.heads + 2 * of.shared, D).transpose(1, 2)
    q, k = (_turned(made[:, part], cos, sin) for part in parts(of)[:2])
    keys, values, mask = cache(k, made[:, parts(of)[2]])
    out = scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
    out = out.transpose(1, 2).reshape(1, x.shape[1], of.heads * D)
    total = x + out @ w["out"]
    normal = rms_norm(total, (of.hidden,), w["second"].reshape(of.hidden), EPS)
    return total + (silu(normal @ w["gate"]) * (normal @ w["up"])) @ w["down"]


def prefill(of: Sizes, x: Any, cos: Any, sin: Any, **w: Any) -> Any:
    """The layer in operators of PyTorch, as `prefill_by_hand`."""
    kept: list[Any] = []

    def cache(k: Any, v: Any) -> tuple[Any, Any, Any]:
        kept.extend((k, v))
        return k, v, torch.ones((of.positions, of.positions), dtype=torch.bool).tril()

    return (_own(of, x, cos, sin, w, cache), *kept)


def decoding(of: Sizes, x: Any, cos: Any, sin: Any, keys: Any, values: Any, place: Any, **w: Any) -> Any:
    """The layer in operators of PyTorch, as `decoding_by_hand`."""
    kept: list[Any] = []

    def cache(k: Any, v: Any) -> tuple[Any, Any, Any]:
        kept.extend(old.index_copy(2, place, new[0][:, None]) for old, new in ((keys, k), (values, v)))
        return kept[0][None, :, 0], kept[1][None, :, 0], torch.arange(of.cache)[None] <= place

    return (_own(of, x, cos, sin, w, cache), *kept)


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


def least_ns(of: Sizes, phase: str) -> float:
    """The time of the products at the peak rate, or of the bytes that have to move, whichever is longer."""
    target, new = load_target(TARGET), of.positions if phase == "prefill" else 1
    seen = of.positions / 2 if phase == "prefill" else of.cache
    numbers = sum(each.numel() for each in weights(of).values())
    flops = 2 * new * (numbers + 2 * seen * of.heads * D)
    cache = 2 * of.shared * D * (of.cache if phase == "decoding" else new)
    moved = 2 * (numbers + cache + 2 * new * of.hidden)
    return max(flops / (target.peak.tensor_bf16_tflops * 1e3), moved / target.dma.aggregate_gbps)


def figure(of: Sizes, phase: str, how: str, function: Callable[..., Any], patterns: Sequence[str] | None) -> Figure:
    """A layer, compiled and timed."""
    named = {**inputs(of, phase), **weights(of)}

    class Layer(torch.nn.Module):
        def forward(self, *given: torch.Tensor) -> Any:
            return function(of, **dict(zip(named, given, strict=True)))

    with torch.no_grad(), sdpa_kernel([SDPBackend.MATH]):
        program = torch.export.export(Layer(), tuple(named.values()), strict=False)
        program = program.run_decompositions(decompositions())
    kernels = Kernels()
    chosen = None if patterns is None else frozenset(patterns)
    donated = {1: list(named).index("keys"), 2: list(named).index("values")} if phase == "decoding" else None
    made = compile_module(module_of(program, kernels.converters), target=TARGET, patterns=chosen, donated=donated)
    spent = spent_by_cores(made.programs, load_target(TARGET))[0]
    used = [each.pattern for each in made.report.replaced]
    return Figure(phase, how, spent.ns, spent.nbytes, least_ns(of, phase) / spent.ns, used)


def errors(of: Sizes, phase: str, seed: int = 7) -> tuple[float, float]:
    """The largest differences from PyTorch in float32, as parts of the largest number of each result.

    Returns:
        Of the layer by hand, and of PyTorch in bfloat16.
    """
    torch.manual_seed(seed)

    def normal(shape: tuple[int, ...]) -> torch.Tensor:
        scale = shape[0] ** -0.5 if len(shape) == 2 and shape[0] > 1 else 1.0  # products keep their size
        return (torch.randn(shape) * scale).to(torch.bfloat16)

    named = {**inputs(of, phase, normal), **weights(of, normal)}
    half = torch.rand((1, named["x"].shape[1], D // 2)) * 6
    named |= {
        name: torch.cat([turn(half)] * 2, -1).bfloat16() for name, turn in (("cos", torch.cos), ("sin", torch.sin))
    }
    wide = {name: each.float() if each.is_floating_point() else each for name, each in named.items()}
    exact, *made = (
        LAYERS[phase][how](of, **{name: each.clone() for name, each in given.items()})
        for how, given in (("own", wide), ("by hand", named), ("own", named))
    )
    by_hand, framework = (max(map(_apart, each, exact)) for each in made)
    return by_hand, framework


def _apart(made: torch.Tensor, exact: torch.Tensor) -> float:
    exact = exact.reshape(made.shape)
    return float((made.float() - exact).abs().max() / exact.abs().max())


def main() -> None:
    """Read the command line, and print a line for each way to make a layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phase", default="", choices=["", *LAYERS])
    parser.add_argument("--how", default="", help="only ways with this in their name")
    parser.add_argument("--run", action="store_true", help="execute the layers by hand in a small size")
    parser.add_argument("--json", default="", help="a file that the figures go to")
    args = parser.parse_args()
    if args.run:
        for phase in LAYERS:
            print(f"{phase:9} error {{:.1e}}, of PyTorch in bfloat16 {{:.1e}}".format(*errors(SMALL, phase)))
        return
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
                found.append(figure(LLAMA, phase, how, function, patterns))
                print(found[-1], flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(each) for each in found], indent=1))


if __name__ == "__main__":
    main()
