"""Pending values: an instruction that waits for its destination, until somebody needs what it computes.

``tile[...] = nl.load(x)`` is one instruction that writes to `tile`. The call verifies it, with a blank in the place of
the destination. The assignment, which follows in most kernels, issues it with the tile. Whatever else comes first, such
as another instruction or a view of the value, has it issued into a tile of its own. So an instruction runs where Python
calls it, but for one that is assigned, and nothing happens in between.

In eager mode nothing waits, because values are there to be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nki.beta1.tensors.mask import Region
from nki.beta1.tensors.memory import Memory
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.results import placed, seen_as
from nki.beta1.tracing.session import Last, Session, current
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import Buffer, MemoryRegion, Storage, View, whole
from nki.frontend.loops.regions import BodyPass
from nki.language.memory import ndarray
from nki.spec.allocation import check_fit
from nki.spec.instruction import Instruction
from nki.spec.program import Issued
from nki.spec.signature import Signature


def issued_where_assigned(
    function: str,
    instruction: Instruction[Any],
    shape: tuple[int, ...],
    dtype: DType,
    region: MemoryRegion,
    **arguments: Any,
) -> Tensor:
    """The tile that one instruction makes, all of it.

    Args:
        shape, dtype, region: of the tile, if it gets one of its own.
        arguments: of the instruction, but for ``dst``. It has no effects but on its destination.
    """
    session = current(function)
    tracer = session.tracer
    if tracer.eager or tracer.no_reorder_depth:

        def compute() -> NkiTensor:
            made = ndarray(shape, dtype, region)
            instruction(dst=made, **arguments)
            return made

        return placed(function, compute)
    session.settle()
    place = blank(session, shape, dtype, region)
    return waiting(Pending(session, *instruction.unissued(dst=place, **arguments), place.view_record))


def waiting(
    pending: Pending, shape: tuple[int, ...] | None = None, region: Region | None = None, *, explicit: bool = False
) -> Tensor:
    """The value of an instruction that waits from here on; arguments as for `nki.beta1.tracing.results.placed`."""
    pending.explicit = explicit
    buffer, dtype, sizes, strides, _, _ = pending.blank
    memory = Memory(sizes, strides, 0, dtype, buffer.region, 0, None, exact=True, pending=pending)
    made = seen_as(memory, shape, region)
    pending.session.tracer.waiting = made.memory.settle
    return made


def blank(session: Session, shape: tuple[int, ...], dtype: DType, region: MemoryRegion) -> NkiTensor:
    """A tensor that is in no program, and like the tile that a value gets if it is not assigned."""
    tracer = session.tracer
    check_fit(shape, dtype, region, None, tracer.target, tracer.exceeded)
    key = (shape, dtype, region._name_)
    found = session.blanks.get(key)
    if found is None:
        buffer = Buffer(-1, "", region, shape, dtype, location=tracer.locator.capture(), trace=tracer.trace)
        found = session.blanks[key] = NkiTensor.of(whole(buffer), Storage(buffer))
    return found


@dataclass(eq=False, slots=True)
class Pending:
    """The instruction of a value, with a blank for its destination.

    Attributes:
        superseded: its place among the instructions of its body, once it was issued with another destination; until
            then None.
        body: the body that it is issued in.
        explicit: whether the kernel chose the value's dtype, so that it rounds to that first.
    """

    session: Session
    issued: Issued
    signature: Signature | None
    blank: View
    superseded: int | None = None
    body: BodyPass = field(init=False)
    explicit: bool = False

    def __post_init__(self) -> None:
        self.body = self.session.tracer.body

    def __call__(self) -> NkiTensor:
        """Issue it into a tile of its own."""
        session, tracer, location = self.session, self.session.tracer, self.issued.location
        if self.superseded is None:
            tracer.waiting = None
        _, dtype, shape, _, _, _ = self.blank
        before = tracer.locator.hold(location)
        with tracer.allocating_in(self.body):
            storage = tracer.allocate(shape, dtype, self.blank.buffer.region, "", None)
        tracer.locator.release(before)
        made = NkiTensor.of(whole(storage.buffer), storage)
        issued = with_destination(self.issued, self.blank, made.view_record)
        if self.superseded is None:
            tracer.issue(issued)
            at = self.body.position
            session.last = Last(made.view_record, at - 1, at, self.explicit)
        else:
            self.body.block.items[self.superseded] = issued
            session.sums.note(issued)
            session.superseded.append((issued, made.view_record))
        return made

    def supersede(self, *instead: Any) -> None:
        """Issue the instruction with another destination; its own place is kept, should anybody read the value."""
        session, tracer = self.session, self.session.tracer
        tracer.waiting = None
        items = self.body.block.items
        self.superseded = len(items)
        items.append(self.issued)
        session.blanked.append(self.issued)
        tracer.issue(*instead)


def with_destination(issued: Issued, before: View, destination: View) -> Issued:
    """An instruction that writes to another destination than before, as a record."""
    instruction, arguments, location, engine = issued
    changed = list(arguments)
    changed[arguments.index(before)] = destination
    return Issued(instruction, instruction.arguments._make(changed), location, engine)
