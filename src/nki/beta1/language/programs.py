"""Which program of the grid runs, and sums over programs and over trips of loops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

import nki.isa as nisa
from nki.beta1.errors import Beta1IndexError, refused
from nki.beta1.language.arguments import hints_only, kind_of, operation
from nki.beta1.tensors.mask import region_of
from nki.beta1.tensors.naming import assigned_variable
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.assignment import LoopReduction, reduced
from nki.beta1.tracing.operands import boxed, on_chip, tile
from nki.beta1.tracing.results import placed
from nki.beta1.tracing.session import Session, current
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.language.combine import combine, copied
from nki.language.memory import new_tile
from nki.spec.operator import Operator


class ProgramId(int):
    """The id of a program along an axis, which it remembers."""

    axis: int


def program_id(axis: int) -> ProgramId:
    """The id of the running program along an axis of the grid; 0 without a grid."""
    running = current("nl.program_id")
    _check_axes((axis,), running, "nl.program_id")
    made = ProgramId(running.program[axis] if running.program else 0)
    made.axis = axis
    return made


def num_programs(axes: Any = None) -> int:
    """How many programs there are, along all axes or those given."""
    running = current("nl.num_programs")
    sizes = [axis.size for axis in running.grid]
    if axes is None:
        return prod(sizes)
    wanted = axes if isinstance(axes, list | tuple) else (axes,)
    _check_axes(wanted, running, "nl.num_programs")
    return prod(sizes[axis] if sizes else 1 for axis in wanted)


def _check_axes(axes: Sequence[Any], running: Session, function: str) -> None:
    """Raise Beta1Error for what is no axis of the grid; without a grid each axis has one program."""
    rank = len(running.grid)
    if all(isinstance(axis, int) and axis >= 0 and (axis < rank or not rank) for axis in axes):
        return
    raise refused(
        "argument",
        f"{function} of axis {', '.join(map(repr, axes))}, and the grid has {rank}",
        f"write an axis from 0 to {rank - 1}" if rank else "write an axis as an int, from 0 on",
        kind=Beta1IndexError,
    )


def program_ndim() -> int:
    """How many axes the grid has; 0 without one."""
    return len(current("nl.program_ndim").grid)


def loop_reduce(
    x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any
) -> LoopReduction | Tensor:
    """A reduction over trips of loops: ``b[...] = nl.loop_reduce(a, np.add, [k])`` is ``b = op(b, a)`` in each trip.

    A tile that nothing was written to takes the value of the first trip. ``b = nl.loop_reduce(a, np.add, [k])`` does
    the same to the tile that the variable ``b`` holds; without one, ``b`` is a new tile.

    Args:
        loop_indices: variables of the loops, or one of them.
        dtype: to which each trip rounds; that of `x` by default.
    """
    hints_only("nl.loop_reduce", kwargs)
    current("nl.loop_reduce")
    indices = loop_indices if isinstance(loop_indices, list | tuple) else (loop_indices,)
    if not indices or not all(isinstance(each, int | np.integer) for each in indices):
        raise refused("argument", f"nl.loop_reduce got loop_indices={loop_indices!r}", "pass a list of loop variables")
    source = on_chip(x, "x", "loop_reduce")
    reduction = LoopReduction(source, operation(op, "op"), kind_of(dtype, source.dtype), mask)
    variable = assigned_variable()
    if variable is None:
        return reduction
    held = variable.value
    if not isinstance(held, Tensor) or not held.on_chip:
        held = Tensor.of(new_tile(source.shape, reduction.dtype))
    reduced(held, reduction)
    return held


def all_reduce(
    x: Any,
    op: Any,
    program_axes: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    parallel_reduce: bool = True,
    asynchronous: bool = False,
    **kwargs: Any,
) -> Tensor:
    """A reduction over the programs along axes of the grid; all of them get the result.

    Args:
        program_axes: axes by number, or what `program_id` returned for them.
        parallel_reduce, asynchronous: how the device orders the work; they change no value.
    """
    hints_only("nl.all_reduce", kwargs)
    session = current("nl.all_reduce")
    if session.tracer.in_device_loop and len(session.programs.programs) > 1:
        raise refused(
            "dynamic_control_flow_not_supported",
            "nl.all_reduce over programs of one core is called in a loop over a number of run time",
            "call it behind the loop, or in a loop over ints",
            rule="programs of one core run one after another, each to the end of its loop",
        )
    source, operator = on_chip(x, "x", "all_reduce"), operation(op, "op")
    kind = kind_of(dtype, source.dtype)
    axes = _axes(program_axes, len(session.grid))
    box = boxed("nl.all_reduce", region_of(mask, source.shape)).box
    value = copied(tile(source, "x", "nl.all_reduce", box), kind)

    def combined(brought: dict[tuple[int, ...], NkiTensor]) -> dict[tuple[int, ...], NkiTensor]:
        return _by_group(brought, axes, operator, kind)

    together = session.programs.meet(value, combined)
    return placed("nl.all_reduce", lambda: _over_cores(session, together, axes, operator, kind), explicit=True)


def _axes(given: Any, rank: int) -> tuple[int, ...]:
    several = given if isinstance(given, list | tuple) else (given,)
    axes = tuple(each.axis if isinstance(each, ProgramId) else int(each) for each in several)
    if any(not 0 <= axis < rank for axis in axes):
        raise refused(
            "argument",
            f"nl.all_reduce over axes {list(axes)} of a grid with {rank} axes",
            "pass what nl.program_id returned, or numbers of axes, and launch the kernel on a grid",
        )
    return axes


def _by_group(
    brought: dict[tuple[int, ...], NkiTensor], axes: tuple[int, ...], operator: Operator, kind: DType
) -> dict[tuple[int, ...], NkiTensor]:
    """For each program what the programs of its group make together, each in a tile of its own."""
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for program in brought:
        key = tuple(-1 if axis in axes else place for axis, place in enumerate(program))
        groups.setdefault(key, []).append(program)
    found: dict[tuple[int, ...], NkiTensor] = {}
    for members in groups.values():
        total = brought[members[0]]
        for other in members[1:]:
            total = combine(operator, total, brought[other], kind)
        found |= {member: total if member == members[0] else copied(total) for member in members}
    return found


def _over_cores(
    session: Session, value: NkiTensor, axes: tuple[int, ...], operator: Operator, kind: DType
) -> NkiTensor:
    """The result with what the other core has, if an axis is spread over cores."""
    cores = prod(session.grid[axis].cores for axis in axes)
    if cores == 1:
        return value
    other, core = new_tile(value.shape, value.dtype), session.tracer.core
    nisa.sendrecv(src=value, dst=other, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    first, second = (value, other) if core == 0 else (other, value)
    return combine(operator, first, second, kind)
