"""What the library's kernels are worth in models: predicted times with the patterns and without, and errors.

usage: python -m benchmarks.library.models [--only TEXT] [--run] [--json FILE]

Two layers of models of the package `transformers`, with random weights in bfloat16 and a batch of 4: prefill of 512
positions, one step of decoding with a cache of 512, and one training step. "Without" is the graph compiler with its own
kernels alone, "before" with its pattern of attention. --run executes what was compiled, and compares the results with
PyTorch in float32, which PyTorch in bfloat16 is compared with as well. A decoder layer of the shape of Llama 3 8B is
`benchmarks.library.decoder_layer`.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.export.experimental import _export_forward_backward
from torch.nn.attention import SDPBackend, sdpa_kernel

from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.importers.torch.decompositions.table import decompositions
from nki.graph.importers.torch.exported_program import module_of
from nki.graph.importers.torch.import_graph import import_graph
from nki.graph.patterns import register
from nki.options import Options
from nki.target.load import load_target
from nki.timing.cores import spent_by_cores
from nkilib.patterns.every import PATTERNS

BATCH, LENGTH, HIDDEN, LAYERS, VOCABULARY = 4, 512, 1024, 2, 4096
TARGET = "trn2"
CHOICES: Mapping[str, Sequence[str] | None] = {"with": None, "before": ("attention",), "without": ()}
"""Patterns that are used."""

_SIZES = {"num_hidden_layers": LAYERS, "vocab_size": VOCABULARY, "hidden_size": HIDDEN}
_HEADS = {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64}
CONFIGURATIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2",
        {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 16, "vocab_size": VOCABULARY, "n_positions": 1024}
        | {"bos_token_id": 0, "eos_token_id": 0},
    ),
    "llama": ("Llama", _SIZES | _HEADS | {"intermediate_size": 2816}),
    "qwen3": ("Qwen3", _SIZES | _HEADS | {"intermediate_size": 2816}),
    "mixtral": ("Mixtral", _SIZES | _HEADS | {"intermediate_size": 1408, "num_local_experts": 4}),
}
"""The beginning of the names of a model's classes, and what its configuration gets."""


@dataclass(slots=True)
class Row:
    """One graph.

    Attributes:
        ns: of the whole graph, by the patterns that are used.
        replaced: how often each pattern is used.
        near: what it nearly is, and why not.
        error: the largest difference to float32, as a part of the largest number.
        framework_error: the same of PyTorch in bfloat16.
    """

    model: str
    phase: str
    ns: dict[str, float] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)
    near: dict[str, int] = field(default_factory=dict)
    error: float | None = None
    framework_error: float | None = None

    def __str__(self) -> str:
        times = " ".join(f"{self.ns[name] / 1e3:10.1f}" for name in CHOICES)
        gain = self.ns["without"] / self.ns["with"]
        errors = "" if self.error is None else f"{self.error:9.1e} {self.framework_error:9.1e}"
        used = ", ".join(f"{name} x{count}" for name, count in self.replaced.items())
        near = "".join(f"\n      nearly x{count}: {text}" for text, count in self.near.items())
        return f"{self.model:8} {self.phase:9} {times} {gain:6.2f} {errors:19} {used}{near}"


class Prompt(torch.nn.Module):
    """The logits of a whole prompt."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor) -> Any:
        """Args: words: (batch, positions)."""
        return self.model(words, use_cache=False).logits


class Step(Prompt):
    """The logits of one new word of each sequence, and the cache, which its keys and values are written to in place."""

    def forward(self, words: torch.Tensor, place: torch.Tensor, *cache: torch.Tensor) -> Any:
        """Args: words (batch, 1), place of the word; keys and values (batch, heads, places, features) of each layer."""
        hub = import_module("transformers")
        found = hub.StaticCache(config=self.model.config, max_cache_len=cache[0].shape[2])
        for layer, keys, values in zip(found.layers, cache[::2], cache[1::2], strict=True):
            layer.keys, layer.values, layer.is_initialized = keys, values, True
            layer.dtype, layer.device, layer.cumulative_length = keys.dtype, keys.device, place.clone()
            layer.max_batch_size, layer.num_heads, _, layer.head_dim = keys.shape
            layer.k_head_dim = layer.v_head_dim = keys.shape[3]
        made = self.model(words, past_key_values=found, position_ids=place.reshape(1, 1), use_cache=True)
        return (made.logits,)


def built(name: str) -> torch.nn.Module:
    """A model with random weights."""
    torch.manual_seed(0)
    hub, (prefix, sizes) = import_module("transformers"), CONFIGURATIONS[name]
    config = getattr(hub, f"{prefix}Config")(**sizes)
    kind = f"{prefix}LMHeadModel" if prefix == "GPT2" else f"{prefix}ForCausalLM"
    model: torch.nn.Module = getattr(hub, kind)(config).to(torch.bfloat16).eval()
    return model


def inference(name: str, phase: str, run: bool) -> Row:
    """Prefill or a step of decoding, exported with its weights as constants."""
    model, config = built(name), CONFIGURATIONS[name][1]
    generator = torch.Generator().manual_seed(1)
    words = partial(torch.randint, 0, VOCABULARY, generator=generator)
    if phase == "prefill":
        graph, inputs = Prompt(model), (words((BATCH, LENGTH)),)
    else:
        heads = config.get("num_key_value_heads", 16)
        cache = torch.randn(2 * LAYERS, BATCH, heads, LENGTH, 64, generator=generator).bfloat16()
        graph, inputs = Step(model), (words((BATCH, 1)), torch.tensor(LENGTH - 12), *cache)
    with torch.no_grad(), sdpa_kernel([SDPBackend.MATH]):
        program = torch.export.export(graph, inputs, strict=False).run_decompositions(decompositions())
    row = Row(name, phase)
    for choice, patterns in CHOICES.items():
        made = _compiled(module_of(program), patterns)
        row.ns[choice] = _ns(made)
        if choice == "with":
            _tell(row, [made])
            if run:
                _compare(row, graph, inputs, made)
    return row


class Loss(Prompt):
    """The loss of predicting each next word of a text."""

    def forward(self, words: torch.Tensor) -> Any:
        """Args: words: (batch, positions)."""
        return (self.model(words, labels=words, use_cache=False).loss,)


def training(name: str, run: bool) -> Row:
    """Loss and all gradients as one graph, whose weights are arguments; without dropout."""
    model, row = built(name), Row(name, "training")
    words = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1))
    with sdpa_kernel([SDPBackend.MATH]):
        program = torch.export.export(Loss(model), (words,), strict=False)
        joint = _export_forward_backward(_read(program)).run_decompositions(decompositions())
    for choice, patterns in CHOICES.items():
        imported = import_graph(joint.graph_module)
        made = _compiled(imported.module, patterns)
        row.ns[choice] = _ns(made)
        if choice == "with":
            _tell(row, [made])
            if run:
                _compare_gradients(row, name, words, _gradients(joint, imported.inputs, words, made))
    return row


def _read(program: Any) -> Any:
    """The program without parameters that nothing reads: other names of weights that layers share.

    One name gets the gradient of all; PyTorch refuses a parameter that gets none.
    """
    unread = [node for node in program.graph.nodes if node.op == "placeholder" and not node.users]
    names = {node.name for node in unread}
    for node in unread:
        program.graph.erase_node(node)
    signature = program.graph_signature
    signature.input_specs = [spec for spec in signature.input_specs if spec.arg.name not in names]
    program.graph_module.recompile()
    return program


def _gradients(joint: Any, inputs: Sequence[int], words: torch.Tensor, made: Executable) -> Mapping[str, Any]:
    """What a program of a training step makes, by the parameter."""
    held = {**joint.state_dict, **joint.constants}
    specs = [joint.graph_signature.input_specs[place] for place in inputs]
    found = made.run([_array(words if spec.target is None else held[spec.target].detach()) for spec in specs])
    names = joint.graph_signature.backward_signature.gradients_to_parameters
    results = zip(joint.graph_signature.output_specs, found, strict=True)
    return {names[spec.arg.name]: array for spec, array in results if spec.arg.name in names}


def _compiled(module: Any, patterns: Sequence[str] | None) -> Executable:
    named = None if patterns is None else frozenset(patterns)
    return compile_module(module, target=TARGET, patterns=named, options=Options(matmul="blas"))


def _ns(made: Executable) -> float:
    return max(spent.ns for spent in spent_by_cores(made.programs, load_target(TARGET)))


def _tell(row: Row, graphs: Sequence[Executable]) -> None:
    for made in graphs:
        for each in made.report.replaced:
            row.replaced[each.pattern] = row.replaced.get(each.pattern, 0) + 1
        near = Counter(f"{each.pattern}: {each.reason}" for each in made.report.near)
        row.near = dict(Counter(row.near) + near)


def _compare(row: Row, graph: torch.nn.Module, inputs: Sequence[torch.Tensor], made: Executable) -> None:
    """What the graph gives, and what it makes of a cache that is written to."""
    found = [np.asarray(each, np.float32) for each in made.run([_array(each) for each in inputs])]
    results = []
    for dtype in (torch.bfloat16, torch.float32):
        given = [each.to(dtype) if each.is_floating_point() else each for each in inputs]
        given = [each.clone() for each in given]
        with torch.no_grad():
            leaves = _leaves(graph.to(dtype)(*given))
        changed = [each.float().numpy() for each in given if each.is_floating_point()]
        results.append([*changed, *leaves])  # in the order of the program's results
    row.error, row.framework_error = _far(found, results[1]), _far(results[0], results[1])


def _compare_gradients(row: Row, name: str, words: torch.Tensor, found: Mapping[str, Any]) -> None:
    gradients = []
    for dtype in (torch.bfloat16, torch.float32):
        loss = Loss(built(name).to(dtype))
        loss(words)[0].backward()
        gradients.append([each.grad.float().numpy() for each in loss.parameters()])
    names: dict[int, str] = {}
    for each, parameter in loss.named_parameters(remove_duplicate=False):
        if each in found:
            names[id(parameter)] = each
    ours = [np.asarray(found[names[id(each)]], np.float32) for each in loss.parameters()]
    row.error, row.framework_error = _far(ours, gradients[1]), _far(gradients[0], gradients[1])


def _leaves(found: Any) -> list[Any]:
    several = found if isinstance(found, tuple) else (found,)
    return [each.float().numpy() for each in several]


def _array(tensor: torch.Tensor) -> Any:
    if tensor.dtype is torch.bfloat16:
        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.numpy().astype(np.int32 if tensor.dtype is torch.int64 else None, copy=False)


def _far(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference of any tensor, as a part of its largest number."""
    pairs = zip(found, wanted, strict=True)
    return max(float(np.abs(one - two).max() / (np.abs(two).max() or 1.0)) for one, two in pairs)


CASES: Mapping[str, Callable[[bool], Row]] = {
    **{
        f"{name} {phase}": partial(inference, name, phase)
        for name in CONFIGURATIONS
        for phase in ("prefill", "decoding")
    },
    **{f"{name} training": partial(training, name) for name in ("llama", "gpt2")},
}


def main() -> None:
    """Read the command line, and print a line for each graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only graphs with this in their name")
    parser.add_argument("--run", action="store_true", help="execute them, and measure errors")
    parser.add_argument("--json", default="", help="a file that the figures go to")
    args = parser.parse_args()
    for pattern in PATTERNS:
        register(pattern)
    rows = []
    print(f"{'':18} {'with us':>10} {'before':>10} {'without':>10} {'ratio':>6} {'error':>9} {'PyTorch':>9} patterns")
    for name, case in CASES.items():
        if args.only in name:
            rows.append(case(args.run))
            print(rows[-1])
            sys.stdout.flush()
            gc.collect()
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    if "torchvision" not in sys.modules:
        try:
            import torchvision  # noqa: F401
        except Exception:  # noqa: BLE001 - one that does not fit torch breaks the import of models that need none
            sys.modules["torchvision"] = None  # type: ignore[assignment]
    main()
