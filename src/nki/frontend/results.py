"""From storages back to the caller: results in the caller's kind, and inputs that the kernel changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nki.core.errors import LaunchError
from nki.core.numerics import round_to
from nki.core.tensor import View
from nki.frontend.host import HostArray, Kind, give, write_back
from nki.sim.memory import LiveStorage, shadow_of, strided
from nki.spec.program import Program


def written_inputs(programs: Sequence[Program]) -> set[int]:
    """Positions of the inputs that some core writes to."""
    written = set()
    for program in programs:
        position = {buffer.id: i for i, buffer in enumerate(program.inputs)}
        for issued in program.body.walk():
            for name, view in issued.views():
                if issued.instruction.operands[name].writes and view.buffer.id in position:
                    written.add(position[view.buffer.id])
    return written


def check_writable(programs: Sequence[Program], arrays: Sequence[HostArray]) -> None:
    """An input that the kernel writes must be able to change, or be returned."""
    returned = {view.buffer.id for view in programs[0].outputs}
    for position in written_inputs(programs):
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
    programs: Sequence[Program], arrays: Sequence[HostArray], planes: Mapping[int, Any] | None = None
) -> None:
    """Carry the kernel's writes into the caller's arrays where the memory is not the same."""
    for position in written_inputs(programs):
        host = arrays[position]
        plane = (planes or {}).get(id(host))
        if plane is not None:
            host.array[...] = round_to(plane.reshape(host.array.shape), host.dtype)
        if host.kind != "jax":
            write_back(host)


def deliver(tree: Any, program: Program, storages: Sequence[LiveStorage], arrays: Sequence[HostArray]) -> Any:
    """The kernel's result with an array of the caller's kind in place of every view."""
    by_id = {storage.buffer.id: storage for storage in storages}
    kind: Kind = next((host.kind for host in arrays if host.kind != "numpy"), "numpy")
    like = next((host.original for host in arrays if host.kind == kind), None)
    return _fill(tree, by_id, kind, like)


def _fill(tree: Any, storages: Mapping[int, LiveStorage], kind: Kind, like: Any) -> Any:
    if isinstance(tree, View):
        return give(_array(tree, storages[tree.buffer.id]), tree.dtype, kind, like)
    match tree:
        case tuple() if hasattr(tree, "_fields"):
            return type(tree)(*(_fill(item, storages, kind, like) for item in tree))
        case tuple() | list():
            return type(tree)(_fill(item, storages, kind, like) for item in tree)
        case dict():
            return {key: _fill(item, storages, kind, like) for key, item in tree.items()}
    return tree


def _array(view: View, storage: LiveStorage) -> np.ndarray:
    shadow = shadow_of(storage, view)
    if shadow is not None:
        return round_to(np.ascontiguousarray(shadow), view.dtype)
    return np.array(strided(storage, view), order="C")
