"""The destination of a value: the tile that it is assigned to, in the place of a tile of its own and a copy.

``tile[...] = nl.exp(x)`` is one instruction that writes to `tile`. When Python comes to the assignment, the value has
been computed, in a tile of its own. If the last instruction made it, that one is issued once more with the other
destination. The first one is left out of the program where nobody else reads its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
from nki.beta1.tensors.access import Access
from nki.beta1.tensors.mask import Box
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.session import Session, current
from nki.core.dtypes import float32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.spec.program import Issued


@dataclass(frozen=True, slots=True)
class Last:
    """The last value, which may still get another destination.

    Attributes:
        view: the tile of its own.
        start, end: which instructions compute it.
        explicit: whether the kernel chose the value's dtype, so that it rounds to that first.
        compute: what issued it, which holds its operands.
    """

    view: View
    start: int
    end: int
    explicit: bool
    compute: Callable[[], NkiTensor]


def redirected(target: Tensor, value: Tensor, box: Box) -> bool:
    """Whether the instruction that made a value was made to write to a box of what it is assigned to."""
    session = current("assignment")
    last, issued = _made_last(session, value)
    if last is None or issued is None or (last.explicit and value.dtype != target.dtype):
        return False
    destination = target.elements(box).view_record
    if destination.shape != last.view.shape:
        return False
    shared = False
    for name, view in issued.views():
        if view.buffer is destination.buffer:
            if view != destination and issued.instruction.operands[name].reads:
                return False  # it would overwrite what it reads, in another order than it reads
            shared = True
    at = next(at for at in issued.instruction.written_positions if issued.arguments[at] == last.view)
    adds = "accumulate" in issued.instruction.operands
    arguments = _replaced(issued, at, destination)
    if adds:  # what is assigned replaces what was there: a product adds to nothing
        arguments = arguments._replace(accumulate=False)
    if not adds and not shared and _alike(last.view, destination):
        _supersede(session, last, issued, Issued(issued.instruction, arguments, issued.location, issued.engine))
        return True
    return _issue_again(session, last, issued, arguments)


def accumulated(target: Tensor, value: Tensor, box: Box) -> bool:
    """Whether the product that a value is was made to begin a sum in PSUM, or to add to it."""
    session = current("assignment")
    last, issued = _made_last(session, value)
    if last is None or issued is None or issued.instruction is not nisa.nc_matmul or target.dtype != float32:
        return False
    destination = target.elements(box).view_record
    if destination.shape != last.view.shape:
        return False
    tracer = session.tracer
    begins = session.sums.begins(destination, tracer.program, tracer.target)
    if begins is None and not tracer.target.pe.accumulate_over_foreign_psum:
        return False
    if not _issue_again(session, last, issued, issued.arguments._replace(dst=destination, accumulate=not begins)):
        return False
    if begins:
        session.sums.begun(destination)
    return True


def _made_last(session: Session, value: Tensor) -> tuple[Last, Issued] | tuple[None, None]:
    """The last instruction, if it alone made all of a value."""
    last, items = session.last, session.items
    if last is None or len(items) != last.end or last.start == last.end:
        return None, None
    memory = value.memory
    if memory.whole is None or memory.whole.view_record.buffer is not last.view.buffer:
        return None, None
    issued = items[-1]
    if value.access != Access.of_whole(memory.sizes) or last.view not in issued.written():
        return None, None
    for each in items[last.start : -1]:
        for written in each.written():
            if written.buffer is last.view.buffer:
                return None, None
    return (last, issued) if _repeatable(issued) else (None, None)


def _repeatable(issued: Issued) -> bool:
    """Whether an instruction leaves the same behind when it runs a second time."""
    effects = issued.instruction.effects(issued.arguments)
    if effects and set(effects) - {"accumulator"}:
        return False
    if effects and getattr(issued.arguments, "reduce_cmd", None) is nisa.reduce_cmd.reduce:
        return False
    operands, written = issued.instruction.operands, [view.buffer for view in issued.written()]
    return not any([operands[name].reads and view.buffer in written for name, view in issued.views()])


def _alike(one: View, other: View) -> bool:
    """Whether no rule tells two destinations from each other: parts of two buffers that lie in the same way in them."""
    return (
        one.shape == other.shape
        and one.strides == other.strides
        and one.offset == other.offset
        and one.dtype == other.dtype
        and one.buffer.layout is other.buffer.layout
        and other.dynamic is None
    )


def _replaced(issued: Issued, position: int, destination: View) -> Any:
    """The arguments of an instruction, with another destination."""
    arguments = list(issued.arguments)
    arguments[position] = destination
    return issued.instruction.arguments._make(arguments)


def _issue_again(session: Session, last: Last, issued: Issued, arguments: Any) -> bool:
    """The instruction with other arguments, if they are legal."""
    found = issued.instruction.again(arguments, issued.location, session.tracer)
    if found is None:
        return False
    _supersede(session, last, issued, *found)
    return True


def _supersede(session: Session, last: Last, issued: Issued, *instead: Any) -> None:
    session.tracer.issue(*instead)
    session.superseded.append((issued, last.view))
    session.last = session.tracer.retained = None
