"""``torch.compile(model, backend="neuron")``: whole graphs, forward and backward, become programs of the device."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.backends import common, registry
from torch.nn.attention import SDPBackend, sdpa_kernel

from nki.core.errors import LaunchError, NkiError, TargetError
from nki.core.visible import file_name
from nki.interop.common.host_fallback import warn_of_host
from nki.interop.torch.compile import graph_breaks
from nki.interop.torch.compile.double_backward import differentiable_once
from nki.interop.torch.eager.provenance import note
from nki.interop.torch.user_location import user_line

if TYPE_CHECKING:
    from nki.interop.torch.compile.compiled_graph import CompiledGraph

NAME = "neuron"

_WAY = 'options={"fallback": "host"}'

_NUMBERS = itertools.count(1)
"""Numbers the graphs of the process, which have no names but these."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What ``torch.compile(..., backend="neuron", options={...})`` takes.

    Attributes:
        target: the target's name; by default that of the environment.
        fallback: "host": operators that cannot be compiled run on the CPU between programs of the device, each with
            a warning, and are counted in `provenance`; empty: they are errors.
        dump_dir: folder where the stages of each graph are written, in a folder of its name.
        patterns: names of the kernels that may replace parts of a graph; None for all, empty for none.
        lnc: cores that run each graph together, 1 or 2.
    """

    target: str = ""
    fallback: str = ""
    dump_dir: str = ""
    patterns: Sequence[str] | None = None
    lnc: int = 1


def install() -> None:
    """Let `torch.compile` know the backend ``neuron``, once per process.

    Where PyTorch has read the entry points of installed packages, it knows it, and registers what it loads itself.
    """
    if NAME not in registry._BACKENDS:
        registry.register_backend(neuron, name=NAME)
    graph_breaks.install(NAME)


def neuron(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str = ""
) -> Callable[..., Any]:
    """The backend: compiles a graph that Dynamo found, with its derivative if some input needs one.

    Sizes become numbers: a call with other sizes is compiled again. What is refused raises when the result is called,
    so that the error is not wrapped into one of PyTorch's.
    """
    from torch._inductor import config

    from nki.graph.importers.torch.decompositions.table import decompositions
    from nki.interop.torch.compile.kernel_calls import bodies, open_writers
    from nki.interop.torch.compile.symbolic_numbers import with_symbols

    try:
        compiler = _Compiler(_options(options, mode), next(_NUMBERS))
        _make_static(graph)
        open_writers(graph)
        backend = common.aot_autograd(
            fw_compiler=compiler.forward,
            bw_compiler=compiler.backward,
            inference_compiler=compiler.inference,
            decompositions={**with_symbols(decompositions()), **bodies()},
            partition_fn=_partition,
        )
        with (
            sdpa_kernel([SDPBackend.MATH]),
            config.patch(enable_auto_functionalized_v2=False),
            _without_onednn(),
        ):
            return differentiable_once(backend(graph, inputs))
    except NkiError as error:
        return _refusing(error)


@contextmanager
def _without_onednn() -> Iterator[None]:
    """PyTorch takes an LSTM on the CPU apart, which is one operator of oneDNN where that is there."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def _refusing(error: NkiError) -> Callable[..., Any]:
    if isinstance(error, TargetError):  # which no line of the model is about
        error.location = user_line()

    def refuse(*_: Any) -> Any:
        raise error.with_traceback(None)

    return refuse


def _partition(*args: Any, **kwargs: Any) -> Any:
    """What the backward keeps of the forward, and what it computes anew: the least bytes to keep."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition(*args, **kwargs)


def _make_static(graph: torch.fx.GraphModule) -> None:
    """Make symbolic sizes numbers, and symbols that are more than operands of arithmetic.

    PyTorch guards them, and compiles again for others.
    """
    for node in graph.graph.nodes:
        value = node.meta.get("example_value") if node.op == "placeholder" else None
        symbols = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for symbol in symbols:
            if isinstance(symbol, torch.SymInt) and (symbol is not value or not _is_only_number(node)):
                int(symbol)


def _is_only_number(node: torch.fx.Node) -> bool:
    """Whether a graph uses a symbol only in arithmetic with numbers and tensors."""
    from nki.interop.torch.compile.symbolic_numbers import is_elementwise

    def fits(user: torch.fx.Node) -> bool:
        made = user.meta.get("example_value")
        if user.op == "output":
            return True
        if user.op not in ("call_function", "call_method") or not is_elementwise(user.target):
            return False
        return all(map(fits, user.users)) if isinstance(made, torch.SymInt | torch.SymFloat) else True

    return all(map(fits, node.users))


def _options(given: Mapping[str, Any] | None, mode: str) -> CompileOptions:
    from nki.graph.accepted import accepted

    known = [field.name for field in fields(CompileOptions)]
    unknown = [name for name in given or () if name not in known]
    call = f'torch.compile(backend="{NAME}")'
    options = (
        CompileOptions()
        if unknown
        else CompileOptions(**accepted(call, "torch.compile-options", given or {}, user_line()))
    )
    if mode or unknown or not (isinstance(options.fallback, str) and options.fallback in ("", "host")):
        problem = (
            f"option {unknown[0]!r}" if unknown else f"mode={mode!r}" if mode else f"fallback={options.fallback!r}"
        )
        raise LaunchError(
            "torch.compile-options",
            f"{call} got {problem}",
            rule=f'options are {", ".join(known)}; fallback is "host" or empty; modes are Inductor\'s',
            fix='write options={"target": "trn2"}',
            location=user_line(),
        )
    return options


class _Compiler:
    """One compilation: up to two graphs."""

    def __init__(self, options: CompileOptions, number: int) -> None:
        self._options = options
        self._number = number

    def forward(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return self._compiled("forward", graph)

    def backward(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return self._compiled("backward", graph)

    def inference(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return self._compiled("inference", graph)

    def _compiled(self, kind: str, graph: torch.fx.GraphModule) -> Callable[..., Any]:
        name = f"{kind}_{self._number}"
        try:
            return self._on_device(name, graph)
        except NkiError as error:
            if self._options.fallback != "host":
                raise
            return self._on_both(name, graph, error)

    def _on_both(self, name: str, graph: torch.fx.GraphModule, error: NkiError) -> Callable[..., Any]:
        """What cannot be compiled on the host, everything else as programs of the device."""
        from nki.graph.importers.torch.refusals import at_line, refusals
        from nki.interop.torch.compile.kernel_calls import Kernels
        from nki.interop.torch.compile.split import SplitGraph, split

        hosted = dict(refusals(graph, Kernels().converters(graph)) or at_line(graph, error))
        while hosted and not all(node in hosted for node in operators_of(graph)):
            whole, left = split(graph, hosted)
            try:
                segments = {
                    part: self._on_device(f"{name}.{part}", getattr(whole, part))
                    for part, _ in whole.named_children()
                    if part not in left
                }
            except NkiError as problem:
                more = {node: why for node, why in at_line(graph, problem).items() if node not in hosted}
                if not more:
                    break
                hosted |= more
                continue
            for segment in segments.values():
                segment.tell(hosted)
            for node, why in hosted.items():
                warn_of_host("torch.host", f"{name}: {node.target}", why, _WAY)
            return SplitGraph(name, whole, segments, left)
        return _on_host(name, graph, error)

    def _on_device(self, name: str, graph: torch.fx.GraphModule) -> CompiledGraph:
        from nki.graph.compile import compile_module
        from nki.graph.importers.torch.import_graph import import_graph
        from nki.interop.torch.compile.compiled_graph import CompiledGraph
        from nki.interop.torch.compile.host_scalars import scalars_of
        from nki.interop.torch.compile.kernel_calls import Kernels

        kernels = Kernels()
        scalars = scalars_of(graph)
        left = graph if scalars is None else scalars.device
        imported = import_graph(left, more=kernels.converters(left))
        folder = f"{self._options.dump_dir}/{file_name(name)}" if self._options.dump_dir else None
        patterns = None if self._options.patterns is None else frozenset(self._options.patterns)
        executable = compile_module(
            imported.module,
            name=name,
            target=self._options.target,
            dump_dir=folder,
            patterns=patterns,
            lnc=self._options.lnc,
        )
        return CompiledGraph(name, imported, executable, scalars)


def operators_of(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes that compute something."""
    return [node for node in graph.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]


def _on_host(name: str, graph: torch.fx.GraphModule, error: NkiError) -> Callable[..., Any]:
    """A graph on the CPU, because the caller asked for that; every call of it is counted."""
    warn_of_host("torch.host", name, error, _WAY)

    def run(arguments: list[Any]) -> Any:
        note(f"torch.compile {name}")
        values = list(arguments)
        arguments.clear()
        return graph(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def compiled_graphs() -> list[CompiledGraph]:
    """Graphs that the backend made and that still live, the oldest first; each has a name and an `executable`."""
    from nki.interop.torch.compile import compiled_graph

    return compiled_graph.compiled_graphs()
