"""Assignment: ``tile[...] = value`` and ``tile += value``, by the instruction that made the value, or by a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
from nki.beta1.errors import Beta1TypeError, refused
from nki.beta1.tensors.mask import Box, Region, met, whole_region
from nki.beta1.tensors.tensor import Tensor, without_ones
from nki.beta1.tracing.destination import accumulated, redirected
from nki.beta1.tracing.operands import boxed, brought, engines_reach, part_of, tile
from nki.beta1.tracing.predicate import copy_where
from nki.beta1.tracing.scalars import as_tile
from nki.beta1.tracing.session import Session, current
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.core.shown import shown
from nki.core.tensor import MemoryRegion
from nki.language.arguments import is_number
from nki.language.broadcasting import fit
from nki.language.memory import new_tile
from nki.spec.operator import Operator


@dataclass(frozen=True, slots=True)
class LoopReduction:
    """What ``nl.loop_reduce`` returns: the tile to which it is assigned takes part in the reduction.

    Attributes:
        dtype: to which each trip rounds.
    """

    value: Tensor
    operator: Operator
    dtype: DType
    mask: Any


def assign(target: Tensor, value: Any) -> None:
    """``target[...] = value``: a number, or a tile of its shape or with sizes of 1 in it."""
    if not target.on_chip:
        raise refused(
            "unsupported_memory",
            f"{target.describe()} is assigned {_told(value)}",
            "write nl.store(tensor[...], value)",
            rule="tensors in HBM are written by nl.store",
        )
    value = as_tile(value)
    if isinstance(value, Tensor):
        write(target, value)
    elif is_number(value):
        for box in target.region().boxes():
            destination = target.elements(box)
            put(destination, lambda dst: nisa.memset(dst=dst, value=_of_dtype(value, target)))
    elif isinstance(value, LoopReduction):
        reduced(target, value)
    else:
        raise refused(
            "argument",
            f"{target.describe()} is assigned {_told(value)}",
            "assign a tile or a number",
            kind=Beta1TypeError,
        )


def write(target: Tensor, value: Tensor) -> None:
    """Write a tile to where it is assigned: by the instruction that made it, else by a copy."""
    region = assigned_region(target, value)
    if region.empty:
        return
    if not region.rest and redirected(target, value, region.box):
        return
    source = tile(value, "value", "assignment", part_of(region.box, value, target.shape))
    destination = target.elements(region.box)
    source = _fitting(source, destination)
    if region.rest:
        copy_where(destination, source, region.box, region.rest)
    else:
        put(destination, lambda dst: nisa.tensor_copy(dst=dst, src=source))


def put(destination: NkiTensor, issue: Callable[[NkiTensor], Any]) -> None:
    """Write to a tile, by way of another one if no engine reaches it."""
    if engines_reach(destination):
        issue(destination)
        return
    made = new_tile(destination.shape, destination.dtype)
    issue(made)
    brought(destination, made)


def assigned_region(target: Tensor, value: Tensor) -> Region:
    """What of the target is written."""
    shape = target.access.shape
    same = value.access.shape == shape
    if same and target.mask is value.mask is None and target.memory.exists is value.memory.exists is None:
        return whole_region(shape)
    if not (same or without_ones(value.shape) == without_ones(shape) or _broadcasts(value.shape, shape)):
        raise refused(
            "store_dst_shape_smaller_than_other_shape",
            f"illegal assignment: shape {list(target.shape)} of destination `{target.name}` does not take a value of "
            f"shape {list(value.shape)}",
            "index both so that their shapes are equal; sizes of 1 in the value are repeated",
        )
    own = existing_part(value)
    if own.rest and value.shape != target.shape:
        boxed("an assignment to another shape", own)
    wanted = target.region()
    seen = _moved(own.box, value.shape, target.shape)
    return Region(met(wanted.box, seen), (*wanted.rest, *own.rest))


def existing_part(value: Tensor) -> Region:
    """Where a value is there, and its own mask is true."""
    if value.mask is None and value.memory.exists is None:
        return whole_region(value.access.shape)
    own, seen = value.region(), value.visible()
    return own if seen is None else Region(met(own.box, seen), own.rest)


def _moved(box: Box, shape: tuple[int, ...], wanted: tuple[int, ...]) -> Box:
    """A box of a value in the axes of what it is assigned to."""
    if any(low >= high for low, high in box):
        return tuple((0, 0) for _ in wanted)
    if len(shape) != len(wanted) and without_ones(shape) == without_ones(wanted):
        left = iter([own for own, size in zip(box, shape, strict=True) if size != 1])
        return tuple(next(left) if size != 1 else (0, 1) for size in wanted)
    more = len(wanted) - len(shape)
    aligned = [
        own if own_size == size else (0, size) for own, own_size, size in zip(box, shape, wanted[more:], strict=True)
    ]
    return (*((0, size) for size in wanted[:more]), *aligned)


def update(target: Tensor, function: str, other: Any) -> None:
    """``target <op>= other`` in place: an accumulating product in PSUM, else the instruction on the target itself."""
    if function == "add" and target.buffer is MemoryRegion.psum and isinstance(other, Tensor):
        region = assigned_region(target, other)
        if not region.rest and not region.empty and accumulated(target, other, region.box):
            return
    session = current("assignment")
    start, own = session.position, other.mask if isinstance(other, Tensor) else None
    assign(Tensor(target.memory, target.access, target.joined(own)), Tensor.functions[function](target, other))
    if function in _COMMUTES:
        _part_of_a_sum(session, start, function)


def reduced(target: Tensor, reduction: LoopReduction) -> None:
    """A trip of a reduction: the one that finds the target as it was allocated gives it the value itself."""
    session, value, function = current("nl.loop_reduce"), reduction.value, reduction.operator.name
    value = Tensor(value.memory, value.access, value.joined(reduction.mask))
    region = assigned_region(target, value)
    if region.empty:
        return
    start = session.position
    if session.written.meets(target.elements(region.box).view_record, session.tracer):
        value = Tensor.functions[function](target, value, dtype=reduction.dtype)
    elif value.dtype is not reduction.dtype:
        value = Tensor.functions["copy"](value, dtype=reduction.dtype)
    write(Tensor(target.memory, target.access, target.joined(value.mask)), value)
    _part_of_a_sum(session, start, function)


def _part_of_a_sum(session: Session, start: int, function: str) -> None:
    """Note that the instructions from `start` on change a tile in a way that other trips may change it as well."""
    if session.position > start:
        (written,) = {id(view.buffer) for view in session.items[-1].written()}
        session.summed |= {id(issued): (function, written) for issued in session.items[start:]}


_COMMUTES = frozenset(("add", "subtract", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor"))
"""Functions of in-place operators that give the same whichever of several values comes first."""


def _fitting(source: NkiTensor, destination: NkiTensor) -> NkiTensor:
    """A value with the shape of its destination: other sizes of 1, or repeated."""
    if source.shape == destination.shape:
        return source
    if without_ones(source.shape) == without_ones(destination.shape) and source.shape[0] == destination.shape[0]:
        return source.reshape(destination.shape)
    return fit(source, destination.shape)


def _told(value: Any) -> str:
    return value.describe() if isinstance(value, Tensor) else shown(value)


def _of_dtype(value: Any, target: Tensor) -> Any:
    plain = value.item() if hasattr(value, "item") else value
    return int(plain) if target.dtype.is_integer else plain


def _broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) <= len(wanted) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(wanted), strict=False)
    )
