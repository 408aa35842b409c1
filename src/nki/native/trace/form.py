"""The form of a trace: what a compiled kernel of one instruction needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nki.core.dtypes import DType
from nki.core.tensor import View
from nki.native.trace.expression import Node


class OperandSlot(NamedTuple):
    """One operand of a record.

    Attributes:
        path: name of the argument (with the position in a sequence), or "accumulator" and "defined" for the registers
            of the running engine.
        view: what is read or written; None for registers, which are 128 float32, one for each partition.
        mode: "read" or "write".
        dtype: of the elements.
        row: whether there is a row for each partition, and not a single element.
    """

    path: str
    view: View | None
    mode: str
    dtype: DType
    row: bool


class Store(NamedTuple):
    """Storage bits that go to a slot; `domain` is the row loop, or -1 for one element for each partition."""

    slot: int
    value: Node
    domain: int


@dataclass(frozen=True, slots=True)
class Trace:
    """All that a compiled kernel needs to know.

    Attributes:
        signature: text that determines the kernel; instructions with equal ones share it.
        slots, immediates: of the record, in order; immediates are bits.
        partitions, count: P and F of the record.
        streaming: whether a view that is read may be the one that is written.
        operations: how many NumPy calls the body is worth.
        nodes: every value; arguments come first.
        stores: in the order of the body.
        bad: masks that are true where a check would warn.
        clobbers: whether the registers of the engine become undefined.
        domains: for each row loop the immediate that holds its length, or -1 for F.
        groups: the immediate that holds into how many groups of F elements the rows fall; what is one value for each
            group is a row of the destination. -1 if there are none.
    """

    signature: str
    slots: tuple[OperandSlot, ...]
    immediates: tuple[int, ...]
    partitions: int
    count: int
    streaming: bool
    operations: int
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...]
    bad: tuple[Node, ...]
    clobbers: bool
    domains: tuple[int, ...]
    groups: int
