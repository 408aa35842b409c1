"""From storages back to the caller: results in the caller's kind, and inputs that the kernel changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
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
    """The kernel's result with an array of the caller's kind in place of every view; see `Delivery`."""
    return Delivery(tree, program)(storages, arrays)


class Delivery:
    """Makes results of calls of one program: what can be said about its outputs before any call is said once.

    Each array has memory of its own. Memory that only the run knew, and that one view shows as a whole, is handed over
    instead of copied.
    """

    __slots__ = ("_inputs", "_tree", "_whole")

    def __init__(self, tree: Any, program: Program) -> None:
        self._tree = tree
        # A buffer that is handed over must not be an input, which is the caller's, nor be in two results.
        self._inputs = frozenset(buffer.id for buffer in program.inputs)
        self._whole = {id(view): _whole_bytes(view) for view in _views(tree)}

    def __call__(self, storages: Sequence[LiveStorage], arrays: Sequence[HostArray]) -> Any:
        """The result of a call.

        Args:
            storages: of the views, wherever they were made.
            arrays: of the arguments; the first of a framework says what the results are.
        """
        kind: Kind = "numpy"
        like = arrays[0].original if arrays else None
        for host in arrays:
            if host.kind != "numpy":
                kind, like = host.kind, host.original
                break
        tree = self._tree
        if type(tree) is View and kind == "numpy":  # what most kernels return
            return self._array(tree, storages[0], set(self._inputs))
        held = {storage.buffer.id: storage for storage in storages}
        return self._filled(self._tree, held, set(self._inputs), kind, like)

    def _filled(self, tree: Any, held: Mapping[int, LiveStorage], taken: set[int], kind: Kind, like: Any) -> Any:
        if isinstance(tree, View):
            array = self._array(tree, held[tree.buffer.id], taken)
            return array if kind == "numpy" else give(array, tree.dtype, kind, like)
        match tree:
            case tuple() if hasattr(tree, "_fields"):
                return type(tree)(*(self._filled(item, held, taken, kind, like) for item in tree))
            case tuple() | list():
                return type(tree)(self._filled(item, held, taken, kind, like) for item in tree)
            case dict():
                return {key: self._filled(item, held, taken, kind, like) for key, item in tree.items()}
        return tree

    def _array(self, view: View, storage: LiveStorage, taken: set[int]) -> np.ndarray:
        """The elements of a view; a buffer that is handed over is `taken` from then on."""
        shadow = None if storage.shadow is None else shadow_of(storage, view)
        if shadow is not None:
            return round_to(np.ascontiguousarray(shadow), view.dtype)
        if view.buffer.id in taken or storage.base.nbytes != self._whole[id(view)]:
            return np.array(strided(storage, view), order="C")
        taken.add(view.buffer.id)
        if storage.fresh:
            storage.settle()
        return storage.base.view(view.dtype.numpy).reshape(view.shape)


def _views(tree: Any) -> Iterator[View]:
    if isinstance(tree, View):
        yield tree
    elif isinstance(tree, tuple | list | dict):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _views(item)


def _whole_bytes(view: View) -> int:
    """The size of the memory all of whose bytes the view shows in their order; -1 if it does not show any memory so."""
    return view.nbytes if view.strides == contiguous_strides(view.shape) and not view.on_chip else -1
