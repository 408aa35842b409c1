"""The destination of a value: the tile that it is assigned to, in the place of a tile of its own and a copy.

``tile[...] = nl.exp(x)`` is one instruction that writes to `tile`. When Python comes to the assignment, an instruction
waits (`nki.beta1.tracing.pending`), or the value has been computed, in a tile of its own. If the last instruction made
it, that one is issued once more with the other destination. The first one is left out of the program where nobody else
reads its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import nki.isa as nisa
from nki.beta1.tensors.access import Access
from nki.beta1.tensors.mask import Box
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.pending import Pending, with_destination
from nki.beta1.tracing.session import Session, current
from nki.core.dtypes import float32
from nki.core.tensor import View
from nki.spec.program import Issued
from nki.spec.signature import Signature


class _Maker(NamedTuple):
    """The instruction that made a value, if it may be issued with another destination.

    Attributes:
        view: its destination so far.
        explicit: whether the kernel chose the value's dtype, so that it rounds to that first.
        supersede: issues an instruction in its place.
        signature: of the instruction, if it is known.
    """

    issued: Issued
    view: View
    explicit: bool
    supersede: Callable[..., None]
    signature: Signature | None = None


def redirected(target: Tensor, value: Tensor, box: Box) -> bool:
    """Whether the instruction that made a value was made to write to a box of what it is assigned to."""
    session, destination = current("assignment"), target.elements(box).view_record
    maker = _maker(session, value)
    if maker is None or (maker.explicit and value.dtype != target.dtype) or destination.shape != maker.view.shape:
        return False
    issued, shared = maker.issued, False
    instruction, arguments, _, _ = issued
    for at, _ in instruction.tensor_positions:
        operand = arguments[at]
        for view in (operand,) if type(operand) is View else operand if type(operand) is tuple else ():
            if view.buffer is destination.buffer:
                if view != destination and at in instruction.read_positions:
                    return False  # it would overwrite what it reads, in another order than it reads
                shared = True
    if "accumulate" in issued.instruction.operands:  # what is assigned replaces what was there: it adds to nothing
        return _issue_product(session, maker, destination, False)
    instead = with_destination(issued, maker.view, destination)
    if shared or not _alike(maker.view, destination):
        return _issue_again(session, maker, instead.arguments)
    maker.supersede(instead)
    return True


def accumulated(target: Tensor, value: Tensor, box: Box) -> bool:
    """Whether the product that a value is was made to begin a sum in PSUM, or to add to it."""
    session, destination = current("assignment"), target.elements(box).view_record
    maker = _maker(session, value)
    if maker is None or maker.issued.instruction is not nisa.nc_matmul or target.dtype != float32:
        return False
    if destination.shape != maker.view.shape:
        return False
    tracer = session.tracer
    begins = session.sums.begins(destination, tracer.body, tracer.program, tracer.target)
    if begins is None and not tracer.target.pe.accumulate_over_foreign_psum:
        return False
    if not _issue_product(session, maker, destination, not begins):
        return False
    if begins:
        session.sums.begun(destination)
    return True


def _issue_product(session: Session, maker: _Maker, destination: View, accumulate: bool) -> bool:
    """A product with another destination, if it is legal, as those are that differ from a legal one in addresses."""
    instead = with_destination(maker.issued, maker.view, destination)
    arguments = instead.arguments._replace(accumulate=accumulate)
    if maker.signature is None or not _alike(maker.view, destination):
        return _issue_again(session, maker, arguments)
    key = (maker.signature, accumulate)
    engine = session.products.get(key)
    if engine is not None:
        maker.supersede(instead._replace(arguments=arguments, engine=engine))
        return True
    if not _issue_again(session, maker, arguments):
        return False
    session.products[key] = session.items[-1].engine
    return True


def _maker(session: Session, value: Tensor) -> _Maker | None:
    """The instruction that made all of a value, if nothing has come after it."""
    memory = value.memory
    if value.access != Access.of_whole(memory.sizes):
        return None
    if isinstance(memory.pending, Pending):
        pending = memory.pending
        if pending.superseded is not None:
            return None
        return _Maker(pending.issued, pending.blank, pending.explicit, pending.supersede, pending.signature)
    last, items = session.last, session.items
    if last is None or len(items) != last.end or last.start == last.end:
        return None
    if memory.whole is None or memory.whole.view_record.buffer is not last.view.buffer:
        return None
    issued = items[-1]
    if last.view not in issued.written() or not _repeatable(issued):
        return None
    for each in items[last.start : -1]:
        for written in each.written():
            if written.buffer is last.view.buffer:
                return None

    def supersede(*instead: Any) -> None:
        session.tracer.issue(*instead)
        session.superseded.append((issued, last.view))
        session.last = session.tracer.retained = None

    return _Maker(issued, last.view, last.explicit, supersede)


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


def _issue_again(session: Session, maker: _Maker, arguments: Any) -> bool:
    """The instruction with other arguments, if they are legal."""
    found = maker.issued.instruction.again(arguments, maker.issued.location, session.tracer)
    if found is None:
        return False
    maker.supersede(*found)
    return True
