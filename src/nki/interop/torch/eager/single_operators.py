"""Single operators on the device: each is a graph of one operator, compiled the first time and kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from nki.core.errors import LaunchError, NkiError
from nki.core.locks import lock
from nki.interop.torch.eager.functional_forms import Plain, plain_of
from nki.interop.torch.eager.provenance import left, made, reasons
from nki.interop.torch.memory import DEVICE, on_cpu, on_device
from nki.interop.torch.operator.argument_trees import map_tensors
from nki.interop.torch.user_location import user_line
from nki.report import warn
from nki.spec.rule import Finding

if TYPE_CHECKING:
    from nki.graph.executable import Executable
    from nki.graph.importers.torch.import_graph import Imported

_MOST_NUMBERS = 8
"""How many programs are made of an operator that differ only in numbers, such as a learning rate that changes."""

_MOST = 4096
"""How many programs and refusals are kept; then all are forgotten."""

_WIDE = (torch.int64, torch.uint64, torch.float64, torch.complex64, torch.complex128)

_PLACES = ("device", "host")

_EMPTY = "a tensor is empty"

_NOTHING = "it has no tensor to compute with"

_QUIET = frozenset(("_local_scalar_dense", "equal", "fill_.Scalar", "fill_.Tensor", "zero_"))
"""Operators that fill a tensor or read a number."""

_TOLD: set[str] = set()
"""Operators of which a warning said that the CPU computes them."""


@dataclass(frozen=True, slots=True)
class _OneOperator:
    """The program of an operator for tensors of certain shapes, strides and dtypes.

    Attributes:
        strides: of each result, as PyTorch has them; None where they are those of a contiguous tensor.
    """

    imported: Imported
    executable: Executable
    strides: tuple[tuple[int, ...] | None, ...]

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Results as CPU tensors; None for those that were not asked for."""
        from nki.graph.importers.torch.import_graph import Returned
        from nki.graph.importers.torch.types import host_array, host_tensor

        ports = self.imported.module.main.arguments
        places = zip(self.imported.inputs, ports, strict=True)
        arrays: list[np.ndarray] = [host_array(tensors[place], value.type.dtype) for place, value in places]
        results = self.executable.run(arrays)
        found: list[torch.Tensor | None] = []
        for kind, strides in zip(self.imported.outputs, self.strides, strict=True):
            if not isinstance(kind, Returned):
                found.append(None)
                continue
            tensor = host_tensor(results[kind.number], kind.dtype)
            if strides is not None:
                tensor = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="cpu").copy_(tensor)
            found.append(tensor)
        return found


_LOCK = lock()
_MADE: dict[Any, _OneOperator | str] = {}
"""By operator and what it is called with; a text says why the CPU computes it. Emptied at `_MOST`."""

_NUMBERS: dict[Any, int] = {}
"""How many programs there are of an operator and tensors; emptied with `_MADE`."""

_PLACE = ["device"]
"""Where operators run: one entry, set by `eager_on` for the whole process, as PyTorch has one table of operators."""


def eager_on(place: str) -> None:
    """Where operators on tensors of the device ``neuron`` run from now on, in the whole process.

    Args:
        place: "device", by a program of their own, or "host", by PyTorch on the CPU.

    Raises:
        LaunchError: "torch.eager" for another place.
    """
    if not isinstance(place, str) or place not in _PLACES:
        raise LaunchError(
            "torch.eager",
            f"eager_on got {place!r}",
            rule=f"operators run on {' or '.join(map(repr, _PLACES))}",
            fix='write eager_on("device")',
            location=user_line(),
        )
    _PLACE[0] = place


def on_the_device(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int) -> tuple[Any] | None:
    """The result of an operator by a program of a device, in a tuple; None if the CPU has to compute it."""
    if _PLACE[0] == "host":
        return None
    plain = plain_of(operator)
    if plain is None:
        left(operator.name(), "it is a view, or writes to something in a way that has no functional form")
        return None
    tensors: list[torch.Tensor] = []
    given, targets = plain.split(args, kwargs)
    tree = _taken(given, tensors)
    reason = _refused(tensors, targets)
    found = reason or _found(plain, given, tree, tensors, targets)
    if isinstance(found, str):
        left(operator.name(), found)
        return None
    results = found.run([_lowered(tensor) for tensor in tensors])
    made(operator.name())
    if targets:
        for target, result in zip(targets, results, strict=True):
            on_cpu(target).copy_(result)
        return (plain.returned(targets),)
    back = [None if result is None else on_device(result, index) for result in results]
    return (back[0] if plain.single else tuple(back),)


def tell_of_host(operator: Any) -> None:
    """Warn that the CPU computes an operator in the place of the device: once for each, and not where it was asked to.

    Nothing is said of what only makes tensors, fills them, reads one number or prints.
    """
    name = operator.name()
    reason = reasons().get(name, "")
    if _PLACE[0] == "host" or name in _TOLD or reason in ("", _EMPTY, _NOTHING) or name.split("::")[-1] in _QUIET:
        return
    if torch.Tag.nondeterministic_seeded in operator.tags or _printing():
        return
    _TOLD.add(name)
    finding = Finding(
        "torch.host-operator",
        "warning",
        f"{name} runs on the host, not on the device: {reason}",
        "an operator on tensors of the device runs by a program of its own, where there is one",
        "docs/pytorch.md",
        'compile the model as a whole, or write eager_on("host") if all operators may run there',
        user_line(),
        {},
    )
    warn(finding)


def _printing() -> bool:
    """Whether PyTorch is writing a tensor as text, for which it computes in float64."""
    frame = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.endswith("torch/_tensor_str.py"):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def _refused(tensors: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> str:
    """Why tensors cannot be those of a program; empty if they can."""
    if not tensors:
        return _NOTHING
    for tensor in (*tensors, *targets):
        if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
            return "a tensor is sparse, conjugate or negative"
        if not tensor.numel():
            return _EMPTY
    wide = next((tensor for tensor in tensors if tensor.dtype in _WIDE), None)
    return "" if wide is None else f"a tensor is {wide.dtype}, which the device has not"


def _lowered(tensor: torch.Tensor) -> torch.Tensor:
    return on_cpu(tensor) if tensor.device.type == DEVICE else tensor


def _taken(value: Any, tensors: list[torch.Tensor]) -> Any:
    """A value that can be a key, and in which tensors are what a program depends on; they are put into the list."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return (torch.Tensor, tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, list | tuple):
        return tuple(_taken(item, tensors) for item in value)
    if isinstance(value, dict):
        return tuple((name, _taken(item, tensors)) for name, item in value.items())
    if isinstance(value, torch.device):
        return "device"
    return (type(value), repr(value) if isinstance(value, float) else value)  # -0.0 is not 0.0, NaN is NaN


def _numberless(tree: Any) -> Any:
    if isinstance(tree, tuple) and len(tree) == len(("type", "value")) and tree[0] in (float, int):
        return tree[0]
    return tuple(_numberless(item) for item in tree) if isinstance(tree, tuple) else tree


def _found(
    plain: Plain, given: Any, tree: Any, tensors: list[torch.Tensor], targets: Sequence[torch.Tensor]
) -> _OneOperator | str:
    wanted = tuple((tuple(target.shape), target.dtype) for target in targets)
    key = (plain.operator, tree, wanted)
    found = _MADE.get(key)
    if found is None:
        general = (plain.operator, _numberless(tree))
        with _LOCK:
            count = _NUMBERS[general] = _NUMBERS.get(general, 0) + 1
        if count > _MOST_NUMBERS:
            return f"there are {_MOST_NUMBERS} programs of it already that differ in numbers only"
        if len(_MADE) >= _MOST:
            clear()
        found = _MADE[key] = _compiled(plain, given, tensors, wanted)
    return found


def _compiled(plain: Plain, given: Any, tensors: list[torch.Tensor], wanted: Sequence[Any]) -> _OneOperator | str:
    """The program, or why there is none."""
    from nki.graph.compile import compile_module
    from nki.graph.importers.torch.import_graph import import_graph

    graph = _traced(plain.operator, given, [_lowered(tensor) for tensor in tensors])
    if isinstance(graph, str):
        return graph
    fakes = _results(graph)
    if isinstance(fakes, str):
        return fakes
    types = tuple((tuple(fake.shape), fake.dtype) for fake in fakes if fake is not None)
    if wanted and types != tuple(wanted):
        return "its result has another shape or dtype than the tensor that is written to"
    indices = all(tensor.dtype.is_floating_point for tensor in tensors)
    for _, dtype in types:
        if dtype in _WIDE and not (dtype == torch.int64 and indices):
            return f"its result is {dtype}, which the device has not"
    try:
        imported = import_graph(graph)
        if imported.random:
            return "random numbers come from the CPU's generator"
        executable = compile_module(imported.module, name=plain.operator.name())
    except NkiError as error:
        return f"[{error.code}] {error.message}"
    strides = tuple(None if fake is None or fake.is_contiguous() else fake.stride() for fake in fakes)
    return _OneOperator(imported, executable, strides)


def _traced(operator: Any, given: Any, tensors: list[torch.Tensor]) -> torch.fx.GraphModule | str:
    """The operator as a graph of core ATen, or why there is none.

    PyTorch has no error of its own for arguments that an operator refuses, nor for operators that depend on values; the
    CPU, which runs the operator then, raises the former again.
    """
    from nki.graph.importers.torch.decompositions.table import decompositions

    host = _on_host(given)

    def function(*inputs: torch.Tensor) -> Any:
        rest = iter(inputs)
        found = operator(**map_tensors(host, lambda _: next(rest)))
        return found if isinstance(found, tuple | list) else (found,)

    trace = make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")
    try:
        return trace(*tensors)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        return f"PyTorch cannot trace it: {error}"


def _results(graph: torch.fx.GraphModule) -> list[Any] | str:
    """The results of a graph without values, or why it is none of a program."""
    fakes: list[Any] = []
    output = next(node for node in graph.graph.nodes if node.op == "output")
    for node in output.args[0]:
        if node is None:
            fakes.append(None)
            continue
        if not isinstance(node, torch.fx.Node) or not isinstance(node.meta["val"], torch.Tensor):
            return "a result is no tensor"
        if node.op == "placeholder":
            return "a result is an argument"
        if any(isinstance(size, torch.SymInt) for size in node.meta["val"].shape):
            return "the size of its result depends on values"
        fakes.append(node.meta["val"])
    return fakes


def _on_host(value: Any) -> Any:
    """Arguments with the CPU in the place of the device."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, dict):
        return {name: _on_host(item) for name, item in value.items()}
    return value


def clear() -> None:
    """Forget all programs."""
    with _LOCK:
        _MADE.clear()
        _NUMBERS.clear()
