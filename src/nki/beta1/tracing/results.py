"""Results: a new tile for each value, and the tile that it is assigned to in the place of a copy.

``tile[...] = nl.exp(x)`` is one instruction that writes to `tile`. When Python comes to the assignment, the value has
been computed, in a tile of its own. If the last instruction made it, that one is issued once more with the other
destination. The first one is left out of the program where nobody else reads its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import nki.isa as nisa
from nki.beta1.errors import Beta1TypeError, refused
from nki.beta1.tensors.access import Access
from nki.beta1.tensors.mask import Box, Mask, Region, met
from nki.beta1.tensors.memory import Memory
from nki.beta1.tensors.tensor import Tensor, without_ones
from nki.beta1.tracing.operands import boxed, brought, common_region, engines_reach, part_of, plain, tile
from nki.beta1.tracing.predicate import copy_where
from nki.beta1.tracing.session import Session, current
from nki.core.dtypes import float32
from nki.core.nki_tensor import NkiTensor
from nki.core.shown import shown
from nki.core.tensor import MemoryRegion, View
from nki.language.arguments import is_number
from nki.language.broadcasting import fit
from nki.language.memory import new_tile
from nki.spec.operator import Operator
from nki.spec.program import Issued


def elementwise(
    function: str,
    operands: Sequence[Any],
    mask: Any,
    compute: Callable[..., NkiTensor],
    *,
    names: Sequence[str] = "xyz",
    explicit: bool = False,
) -> Tensor:
    """The tile of a function that computes each element of its own, where the mask is true and all operands exist.

    Args:
        operands: tiles, which broadcast, and numbers.
        compute: gets the operands as tensors and numbers of Python; returns a new tile.
        names: of the operands, for messages.
        explicit: whether the caller chose the dtype of the result.
    """
    shape, region = common_region(function, operands, mask)
    if region.empty:
        return undefined(function, operands, shape)
    values = [
        tile(each, name, function, part_of(region.box, each, shape)) if isinstance(each, Tensor) else plain(each)
        for name, each in zip(names, operands, strict=False)
    ]
    return placed(function, lambda: compute(*values), shape, region, explicit=explicit)


def placed(
    function: str,
    compute: Callable[[], NkiTensor],
    shape: tuple[int, ...] | None = None,
    region: Region | None = None,
    *,
    explicit: bool = False,
) -> Tensor:
    """The tile that an instruction makes.

    Args:
        shape: as the kernel sees it; that of the tile by default.
        region: what of it the instruction computes; all by default.
    """
    session = current(function)
    start = len(session.items)
    session.last, session.tracer.retained = None, []
    made = compute()
    session.last = _last(session, made, start, explicit, compute)
    if session.last is None:
        session.tracer.retained = None
    memory = Memory.of(made)
    if shape is None or (shape == made.shape and (region is None or not region.rest)):
        return Tensor(memory, Access.of_whole(made.shape))
    box = region.box if region is not None else tuple((0, size) for size in shape)
    low = sum(step * first for step, (first, _) in zip(memory.steps, box, strict=True))
    memory = replace(memory, sizes=shape, offset=memory.offset - low, exists=box, blocks={})
    return Tensor(memory, Access.of_whole(shape), Mask(region.rest) if region is not None and region.rest else None)


def undefined(function: str, operands: Sequence[Any], shape: tuple[int, ...]) -> Tensor:
    """The tile of an instruction that a mask leaves out."""
    current(function)
    dtype = next(each.dtype for each in operands if isinstance(each, Tensor))
    memory = Memory.of(new_tile(shape, dtype))
    return Tensor(replace(memory, exists=tuple((0, 0) for _ in shape), blocks={}), Access.of_whole(shape))


@dataclass(frozen=True, slots=True)
class Last:
    """The instruction that made the last value alone.

    Attributes:
        explicit: whether the kernel chose the value's dtype, so that it rounds to that first.
        compute: what issued it, which holds its operands.
    """

    issued: Issued
    view: View
    explicit: bool
    compute: Callable[[], NkiTensor]


def _last(
    session: Session, made: NkiTensor, start: int, explicit: bool, compute: Callable[[], NkiTensor]
) -> Last | None:
    view, items = made.view_record, session.items
    if len(items) == start or all(written is not view and written != view for written in items[-1].written()):
        return None
    for each in items[start:-1]:
        if any(written.buffer is view.buffer for written in each.written()):
            return None
    return Last(items[-1], view, explicit, compute) if _repeatable(items[-1]) else None


def _repeatable(issued: Issued) -> bool:
    """Whether an instruction leaves the same behind when it runs a second time."""
    effects = issued.instruction.effects(issued.arguments)
    if effects and set(effects) - {"accumulator"}:
        return False
    if effects and getattr(issued.arguments, "reduce_cmd", None) is nisa.reduce_cmd.reduce:
        return False
    operands, written = issued.instruction.operands, [view.buffer for view in issued.written()]
    return not any([view.buffer in written for name, view in issued.views() if operands[name].reads])


@dataclass(frozen=True, slots=True)
class LoopReduction:
    """What ``nl.loop_reduce`` returns: the tile to which it is assigned takes part in the reduction."""

    value: Tensor
    operator: Operator
    dtype: Any
    mask: Any


# --- assignment


def assign(target: Tensor, value: Any) -> None:
    """``target[...] = value``: a number, or a tile of its shape or with sizes of 1 in it."""
    if not target.on_chip:
        raise refused(
            "unsupported_memory",
            f"{target.describe()} is assigned {_told(value)}",
            "write nl.store(tensor[...], value)",
            rule="tensors in HBM are written by nl.store",
        )
    if is_number(value):
        for box in target.region().boxes():
            destination = target.elements(box)
            put(destination, lambda dst: nisa.memset(dst=dst, value=_of_dtype(value, target)))
        return
    if isinstance(value, LoopReduction):
        masked = Tensor(value.value.memory, value.value.access, value.value.joined(value.mask))
        update(target, value.operator.name, masked)
        return
    if not isinstance(value, Tensor):
        raise refused(
            "argument",
            f"{target.describe()} is assigned {_told(value)}",
            "assign a tile or a number",
            kind=Beta1TypeError,
        )
    write(target, value)


def write(target: Tensor, value: Tensor) -> None:
    """Write a tile to where it is assigned: by the instruction that made it, else by a copy."""
    region = assigned_region(target, value)
    if region.empty:
        return
    if not region.rest and _redirected(target, value, region.box):
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
    if value.shape != target.shape and (
        without_ones(value.shape) != without_ones(target.shape) and not _broadcasts(value.shape, target.shape)
    ):
        raise refused(
            "store_dst_shape_smaller_than_other_shape",
            f"illegal assignment: shape {list(target.shape)} of destination `{target.name}` does not take a value of "
            f"shape {list(value.shape)}",
            "index both so that their shapes are equal; sizes of 1 in the value are repeated",
        )
    if value.shape == target.shape and all([e.mask is None and e.memory.exists is None for e in (value, target)]):
        return Region(tuple([(0, size) for size in target.shape]))
    own = existing_part(value)
    if own.rest and value.shape != target.shape:
        boxed("an assignment to another shape", own)
    wanted = target.region()
    seen = _moved(own.box, value.shape, target.shape)
    return Region(met(wanted.box, seen), (*wanted.rest, *own.rest))


def existing_part(value: Tensor) -> Region:
    """Where a value is there, and its own mask is true."""
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
        if not region.rest and not region.empty and _accumulated(target, other, region.box):
            return
    session = current("assignment")
    start, own = len(session.items), other.mask if isinstance(other, Tensor) else None
    assign(Tensor(target.memory, target.access, target.joined(own)), Tensor.functions[function](target, other))
    if function in _COMMUTES and len(session.items) > start:
        (written,) = {id(view.buffer) for view in session.items[-1].written()}
        session.summed |= {id(issued): (function, written) for issued in session.items[start:]}


_COMMUTES = frozenset(("add", "subtract", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor"))
"""Functions of in-place operators that give the same whichever of several values comes first."""


def _redirected(target: Tensor, value: Tensor, box: Box) -> bool:
    session = current("assignment")
    last = _made_last(session, value)
    if last is None or (last.explicit and value.dtype != target.dtype):
        return False
    destination = target.elements(box).view_record
    if destination.shape != last.view.shape or _overlaps(last, destination):
        return False
    name = next(name for name, view in last.issued.views() if view is last.view or view == last.view)
    # What is assigned replaces what was there: a product adds to nothing.
    replaces = {"accumulate": False} if "accumulate" in last.issued.instruction.operands else {}
    return _issue_again(session, last, {name: destination, **replaces})


def _accumulated(target: Tensor, value: Tensor, box: Box) -> bool:
    session = current("assignment")
    last = _made_last(session, value)
    if last is None or last.issued.instruction is not nisa.nc_matmul or target.dtype != float32:
        return False
    destination = target.elements(box).view_record
    if destination.shape != last.view.shape:
        return False
    tracer = session.tracer
    begins = session.sums.begins(destination, tracer.program, tracer.target)
    if begins is None and not tracer.target.pe.accumulate_over_foreign_psum:
        return False
    if not _issue_again(session, last, {"dst": destination, "accumulate": not begins}):
        return False
    if begins:
        session.sums.begun(destination)
    return True


def _made_last(session: Session, value: Tensor) -> Last | None:
    last = session.last
    if last is None or not session.items or session.items[-1] is not last.issued:
        return None
    whole = value.memory.whole
    if whole is None or whole.view_record.buffer is not last.view.buffer:
        return None
    return last if value.access == Access.of_whole(value.memory.sizes) else None


def _issue_again(session: Session, last: Last, changes: dict[str, Any]) -> bool:
    """The instruction with other arguments, if they are legal."""
    tracer, arguments = session.tracer, last.issued.arguments._replace(**changes)
    found = last.issued.instruction.again(arguments, last.issued.location, tracer)
    if found is None:
        return False
    tracer.issue(*found)
    session.superseded.append((last.issued, last.view))
    session.last = session.tracer.retained = None
    return True


def _overlaps(last: Last, destination: View) -> bool:
    """Whether the instruction reads what it would overwrite, in another order than it writes."""
    for name, view in last.issued.views():
        if view.buffer is destination.buffer and last.issued.instruction.operands[name].reads and view != destination:
            return True
    return False


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
