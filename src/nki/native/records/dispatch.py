"""Plans: how instructions of one signature are executed natively, with everything that they share worked out once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from nki.core.tensor import MemoryRegion, View
from nki.native.operand_layout import Place, start_of
from nki.native.records.forms import Native, ViewSource
from nki.native.records.moves import Product
from nki.sim.memory import LiveStorage
from nki.sim.pieces import Box
from nki.sim.window import Window


class BoundOperand(NamedTuple):
    """An operand where it is."""

    view: View
    storage: LiveStorage
    window: Window
    place: Place


class OperandAction(NamedTuple):
    """What to do for an operand of an instruction that has a plan.

    Attributes:
        argument, member: position among the arguments, and in a sequence of tensors (else -1).
        at: the word that takes the address of its first element.
        fixed: bytes from the start of the storage to there, without those of the view's offset in HBM.
        step: bytes for each element of the view's offset: 0 on chip, where the signature has the offset.
        pitch: bytes between partitions that the record was made for.
        writes: whether the instruction stores to it.
        covers: whether it is all of the buffer.
        box: the bytes on chip, if they are a box; an operand that is all of the buffer needs none.
        psum: the size of an element in PSUM, which remembers who wrote it; else 0.
        source: makes the view that the body sees.
    """

    argument: int
    member: int
    at: int
    fixed: int
    step: int
    pitch: int
    writes: bool
    covers: bool
    box: Box | None
    psum: int
    source: ViewSource


class RecordTemplate(NamedTuple):
    """The record of a signature, complete but for addresses.

    Attributes:
        slots: the operands in memory.
        plain: what every execution needs of them, as plain tuples, because these unpack faster: argument, member, at,
            fixed, step, pitch, writes.
        written: positions in `slots` of those that are written.
        registers: word and path of those in accumulator registers.
        apart: pairs of slots that may turn out to share memory, for which the record was not made.
        words: of the record.
        product: the multiplication, if it is one; the destination is the first slot.
    """

    slots: tuple[OperandAction, ...]
    plain: tuple[tuple[int, int, int, int, int, int, bool], ...]
    written: tuple[int, ...]
    registers: tuple[tuple[int, str], ...]
    apart: tuple[tuple[int, int], ...]
    words: array[int]
    product: Product | None


def plan_of(
    native: Native, words: Sequence[int], operands: Sequence[BoundOperand | Place], arguments: Any
) -> RecordTemplate:
    """The plan, from the first instruction of the signature: its record, and its arguments.

    Whether operands share bytes, and how, depends on the signature alone if they are in one buffer, or have explicit
    addresses. Other tensors on chip have memory of their own. Two arrays in HBM may be parts of one on the host.
    """
    slots: list[OperandAction] = []
    places: list[BoundOperand] = []
    registers = []
    for source, patch, operand in zip(native.sources, native.template.patches, operands, strict=True):
        if isinstance(source, ViewSource) and isinstance(operand, BoundOperand):
            slots.append(_slot(source, patch.at + 1, operand, arguments))
            places.append(operand)
        else:
            registers.append((patch.at + 1, source.path))  # type: ignore[union-attr]
    written = tuple([i for i, slot in enumerate(slots) if slot.writes])
    apart = [(i, j) for i in written for j in range(len(slots)) if _may_meet(places[i].view, places[j].view)]
    move = native.move if isinstance(native.move, Product) else None
    plain = tuple([(s.argument, s.member, s.at, s.fixed, s.step, s.pitch, s.writes) for s in slots])
    return RecordTemplate(tuple(slots), plain, written, tuple(registers), tuple(apart), array("q", words), move)


def _slot(source: ViewSource, at: int, operand: BoundOperand, arguments: Any) -> OperandAction:
    view, storage, window, place = operand
    start = start_of(view, place)[0] - storage.address - storage.start
    step = 0 if view.buffer.on_chip else view.dtype.itemsize
    psum = view.dtype.itemsize if view.buffer.region is MemoryRegion.psum else 0
    box = None if step or window.solid is None else window.solid[0]
    fixed = start - source.given(arguments).offset * step
    argument, member = source.argument, source.member
    return OperandAction(
        argument=argument,
        member=member,
        at=at,
        fixed=fixed,
        step=step,
        pitch=storage.pitch,
        writes=source.writes,
        covers=window.covers,
        box=box,
        psum=psum,
        source=source,
    )


def _may_meet(one: View, other: View) -> bool:
    """Whether two buffers may turn out to share memory."""
    return one.buffer is not other.buffer and not (one.buffer.on_chip or other.buffer.on_chip)
