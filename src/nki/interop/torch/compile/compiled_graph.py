"""A graph of PyTorch that was compiled as a whole: what `torch.compile` calls in its place."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nki.core.errors import ArgumentError, NkiError
from nki.core.source import UNKNOWN
from nki.frontend.host import torch_memory
from nki.graph.executable import Executable
from nki.graph.importers.torch.import_graph import Imported, Returned
from nki.graph.importers.torch.types import host_array, host_tensor, narrowed, torch_dtype
from nki.graph.ir import Value
from nki.interop.torch.compile.host_scalars import Scalars
from nki.interop.torch.memory import DEVICE, on_cpu, on_device
from nki.interop.torch.user_location import user_line
from nki.runtime.spans import span

_LIVE: weakref.WeakValueDictionary[int, CompiledGraph] = weakref.WeakValueDictionary()
"""The graphs of this process, which `compiled_graphs` lists; one goes when PyTorch lets go of it."""

_ORDER = itertools.count()
"""Numbers the graphs of the process in the order in which they were compiled."""

_INT32 = (-(1 << 31), (1 << 31) - 1)


class CompiledGraph:
    """A forward or backward graph as one program.

    Attributes:
        name: "forward_1", "backward_1", "inference_2": its kind, and the number of the compilation in this process.
        executable: the program; its `report` and `profile()` say how it was compiled and where the time goes.
        notes: what was changed at the boundary, in words: 64-bit numbers have 32 bits on the device.
    """

    def __init__(self, name: str, imported: Imported, executable: Executable, scalars: Scalars | None = None) -> None:
        self._boxed_call = True  # PyTorch hands over a list; it looks into the object's own dictionary
        self.name = name
        self.executable = executable
        self.notes = imported.notes
        self._model, self._call = executable.model, f"call {executable.name}"
        self._imported, self._scalars = imported, scalars
        arguments = imported.module.main.arguments
        self._places = tuple(
            (place, value, torch_dtype(value.type.dtype))
            for place, value in zip(imported.inputs, arguments, strict=False)
        )
        _LIVE[next(_ORDER)] = self

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """Results of the graph for its arguments; the list is emptied."""
        if _INSTEAD:
            made = _INSTEAD[-1](self, arguments)
            arguments.clear()
            return made
        given, known = (arguments, {}) if self._scalars is None else self._scalars.run(arguments)
        arrays = [_array(given[place], value, dtype) for place, value, dtype in self._places]
        if self._imported.random:
            arrays.append(_seed())
        with span(self._call, "framework"):
            results = self._model.execute(arrays).results
        arguments.clear()
        outputs = enumerate(self._imported.outputs)
        return [known[place] if place in known else self._result(kind, results) for place, kind in outputs]

    def unwritten(self) -> list[Any]:
        """Results as those of a call, of which nobody has computed the values: tensors are zero."""
        ports = self.executable.outputs
        return [
            torch.zeros(ports[kind.number].shape, dtype=kind.dtype, device=kind.device)
            if isinstance(kind, Returned)
            else kind
            for kind in self._imported.outputs
        ]

    def tell(self, hosted: Mapping[torch.fx.Node, NkiError]) -> None:
        """List in the report what runs on the host beside this program."""
        pairs = tuple((str(node.target), str(error.location)) for node, error in hosted.items())
        self.executable.report = replace(self.executable.report, fallbacks=pairs)

    def _result(self, kind: Any, results: Sequence[np.ndarray]) -> Any:
        if not isinstance(kind, Returned):
            return kind
        made = host_tensor(results[kind.number], kind.dtype)
        return on_device(made, kind.device.index) if kind.device.type == DEVICE else made

    def __repr__(self) -> str:
        return f"<{self.name}: {self.executable.report}>"


_INSTEAD: list[Callable[[CompiledGraph, list[Any]], list[Any]]] = []
"""What is called instead of running a graph, the innermost last. Autograd calls graphs from other threads too."""


@contextmanager
def instead_of_running(call: Callable[[CompiledGraph, list[Any]], list[Any]]) -> Iterator[None]:
    """While it is entered, graphs of all threads are handed to `call`, with their arguments, and run nothing."""
    _INSTEAD.append(call)
    try:
        yield
    finally:
        _INSTEAD.remove(call)


def compiled_graphs() -> list[CompiledGraph]:
    """Graphs that ``torch.compile(..., backend="neuron")`` made and that still live, the oldest first."""
    return list(_ordered())


def _ordered() -> Iterator[CompiledGraph]:
    for number in sorted(_LIVE):
        found = _LIVE.get(number)
        if found is not None:
            yield found


def _array(tensor: torch.Tensor, value: Value, dtype: torch.dtype) -> np.ndarray:
    """The memory of a tensor; a copy where it is not contiguous or has 64-bit numbers.

    Args:
        dtype: of tensors that have what the device computes with.
    """
    lower = on_cpu(tensor) if tensor.device.type == DEVICE else tensor.detach()
    if lower.dtype == dtype and lower.is_contiguous() and not (lower.is_conj() or lower.is_neg()):
        return torch_memory(lower, value.type.dtype)
    if lower.is_conj() or lower.is_neg():
        lower = lower.resolve_conj().resolve_neg()
    if lower.dtype == torch.int64 and lower.numel():
        _check_range(lower, value.name)
    wide = lower.dtype in (torch.uint64, torch.float64)
    return host_array(lower, value.type.dtype, user_line() if wide else UNKNOWN)


def _check_range(tensor: torch.Tensor, name: str) -> None:
    low, high = (int(bound) for bound in torch.aminmax(tensor))
    if low < _INT32[0] or high > _INT32[1]:
        raise ArgumentError(
            "graph.range",
            f"{name} is {tensor.dtype} and has values from {low} to {high}",
            rule=f"{tensor.dtype} is {narrowed(tensor.dtype)} on the device",
            fix="keep such numbers on the host, or split them into two tensors",
            location=user_line(),
        )


def _seed() -> np.ndarray:
    """Two words from PyTorch's generator, so that `torch.manual_seed` decides."""
    return torch.randint(0, 1 << 32, (2,), dtype=torch.int64).numpy().astype(np.uint32)
