"""From storages back to the caller: results in the caller's kind, and inputs that the kernel changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

import numpy as np

from nki.core.errors import LaunchError
from nki.core.numerics import round_to
from nki.core.tensor import View, contiguous_strides
from nki.frontend.host import HostArray, Kind, give, write_back
from nki.sim.memory import LiveStorage, shadow_of, strided
from nki.spec.program import Program
from nki.spec.rule import Finding, Severity

Writes = Sequence[Set[int]]
"""For each core the buffers that some instruction writes to, by id."""


def writes_of(programs: Sequence[Program]) -> Writes:
    """What each core writes: one pass over all instructions."""
    return [{view.buffer.id for issued in program.body.walk() for view in issued.written()} for program in programs]


def written_inputs(programs: Sequence[Program], writes: Writes | None = None) -> frozenset[int]:
    """Positions of the inputs that some core writes to; `writes` is what `writes_of` says, where that is known."""
    return frozenset(
        position
        for program, buffers in zip(programs, writes_of(programs) if writes is None else writes, strict=True)
        for position, buffer in enumerate(program.inputs)
        if buffer.id in buffers
    )


def unwritten_outputs(
    programs: Sequence[Program], writes: Writes, disabled_rules: Collection[str] = ()
) -> list[Finding]:
    """A warning for each output that is a new tensor which no core writes to: what it holds is left to chance."""
    if "return.unwritten" in disabled_rules:
        return []
    return [
        Finding(
            "return.unwritten",
            "warning",
            f"the kernel returns {view.buffer.name}, {view.describe()}, and no instruction writes to it",
            "what a kernel returns is what it stored there",
            "nki/get-started/nki-language-guide.rst",
            "store the result into it, for example with nisa.dma_copy, before it is returned",
            view.buffer.location,
            {},
        )
        for place, view in enumerate(programs[0].outputs)
        if view.buffer.role == "temporary"
        and view.size
        and not any(
            program.outputs[place].buffer.id in buffers
            for program, buffers in zip(programs, writes, strict=True)
            if place < len(program.outputs)
        )
    ]


def returns_nothing(
    programs: Sequence[Program], writes: Writes, severity: Severity, disabled_rules: Collection[str] = ()
) -> list[Finding]:
    """A finding if a kernel returns no tensor, writes to no argument and prints nothing: what it computes is lost."""
    if "return.nothing" in disabled_rules or programs[0].outputs or written_inputs(programs, writes):
        return []
    if any("print" in i.instruction.effects(i.arguments) for program in programs for i in program.body.walk()):
        return []
    stored = [
        buffer.name
        for buffer in programs[0].body.all_buffers()
        if buffer.region.is_hbm and buffer.role == "temporary" and buffer.id in writes[0]
    ]
    lost = f"; what it stores into {', '.join(stored)} is lost" if stored else ""
    return [
        Finding(
            "return.nothing",
            severity,
            f"{programs[0].name} returns nothing and writes to none of its arguments{lost}",
            "what a kernel computes reaches the caller in a tensor that it returns, or in an argument",
            "nki/get-started/nki-language-guide.rst",
            "end it with `return` and the nl.shared_hbm tensor that holds the result",
            programs[0].location,
            {},
        )
    ]


def check_writable(programs: Sequence[Program], arrays: Sequence[HostArray], written: Collection[int]) -> None:
    """An input that the kernel writes must be able to change, or be returned.

    Args:
        written: what `written_inputs` says of the programs.
    """
    if not written:
        return
    returned = {view.buffer.id for view in programs[0].outputs}
    for position in written:
        host, buffer = arrays[position], programs[0].inputs[position]
        if host.kind == "jax" and buffer.id not in returned:
            raise LaunchError(
                "argument.immutable",
                f"the kernel writes to {buffer.name}, a JAX array, which cannot change",
                fix=f"return {buffer.name} from the kernel and use the returned array",
            )
        if host.kind == "numpy" and not host.original.flags.writeable:
            raise LaunchError(
                "argument.read-only",
                f"the kernel writes to {buffer.name}, a read-only array",
                fix="pass a writable copy",
            )


def write_inputs(
    arrays: Sequence[HostArray], written: Collection[int], planes: Mapping[int, Any] | None = None
) -> None:
    """Carry the kernel's writes into the caller's arrays where the memory is not the same.

    Args:
        written: what `written_inputs` says of the programs.
        planes: float32 values in place of low-precision bytes, by the identity of the host array.
    """
    for position in written:
        host = arrays[position]
        plane = (planes or {}).get(id(host))
        if plane is not None:
            host.array[...] = round_to(plane.reshape(host.array.shape), host.dtype)
        if host.kind != "jax":
            write_back(host)


def deliver(tree: Any, program: Program, storages: Sequence[LiveStorage], arrays: Sequence[HostArray]) -> Any:
    """The kernel's result with an array of the caller's kind in place of every view.

    Each array has memory of its own. Memory that only the run knew, and that one view shows as a whole, is handed over
    instead of copied.
    """
    kind: Kind = next((host.kind for host in arrays if host.kind != "numpy"), "numpy")
    like = next((host.original for host in arrays if host.kind == kind), None)
    return _fill(tree, _Stock(program, storages), kind, like)


class _Stock:
    """The memory of results, by view."""

    def __init__(self, program: Program, storages: Sequence[LiveStorage]) -> None:
        self._storages = {storage.buffer.id: storage for storage in storages}
        # A buffer that is handed over must not be an input, which is the caller's, nor be in two results.
        self._taken = {buffer.id for buffer in program.inputs}

    def array(self, view: View) -> np.ndarray:
        """The elements of a view."""
        storage = self._storages[view.buffer.id]
        shadow = shadow_of(storage, view)
        if shadow is not None:
            return round_to(np.ascontiguousarray(shadow), view.dtype)
        if view.buffer.id in self._taken or not _is_all(view, storage):
            return np.array(strided(storage, view), order="C")
        self._taken.add(view.buffer.id)
        storage.settle()
        return storage.base.view(view.dtype.numpy).reshape(view.shape)


def _is_all(view: View, storage: LiveStorage) -> bool:
    """Whether a view shows all bytes of a storage's memory in their order."""
    return view.nbytes == storage.base.nbytes and view.strides == contiguous_strides(view.shape) and not view.on_chip


def _fill(tree: Any, stock: _Stock, kind: Kind, like: Any) -> Any:
    if isinstance(tree, View):
        return give(stock.array(tree), tree.dtype, kind, like)
    match tree:
        case tuple() if hasattr(tree, "_fields"):
            return type(tree)(*(_fill(item, stock, kind, like) for item in tree))
        case tuple() | list():
            return type(tree)(_fill(item, stock, kind, like) for item in tree)
        case dict():
            return {key: _fill(item, stock, kind, like) for key, item in tree.items()}
    return tree
