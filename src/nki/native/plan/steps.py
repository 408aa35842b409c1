"""What a plan consists of: stretches of words, loops of which NumPy executes something, and its single instructions."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nki.core.tensor import Buffer
from nki.spec.program import Block, ForLoop, Issued, WhileLoop

Recorded = Issued | ForLoop | WhileLoop
_UNKNOWN_TRIPS = 32
"""What a loop whose trips are counted while it runs is taken for."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Words ``start`` to ``end`` of the plan, executed by one call.

    Attributes:
        issued: the instruction at each word where a record begins, or the loop that it is about.
        after: where the next instruction begins, for records that are not all of theirs.
        work: seconds that NumPy would take, as estimated.
    """

    start: int
    end: int
    issued: Mapping[int, Recorded]
    after: Mapping[int, int]
    work: float


@dataclass(frozen=True, slots=True)
class Repeat:
    """A device loop of which NumPy executes something."""

    loop: ForLoop | WhileLoop
    body: BlockSteps


Step = Stretch | Issued | Repeat


@dataclass(slots=True)
class BlockSteps:
    """What a block does.

    Attributes:
        renewed: buffers that get fresh notes whenever it runs, because the NumPy machine watches them.
    """

    items: list[Step] = field(default_factory=list)
    renewed: list[Buffer] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """Records of a program.

    Attributes:
        words: of all stretches.
        registers: the word of the context of each register, by id.
        fuel: the word that says how many trips may be made until Python is asked.
        context: how many words of the context from the first base on are used.
        trips: the words that count the trips of loops whose bounds depend on data, by the number of the loop.
        numbers: of those loops, by identity, where Python may count trips as well.
        panels: bytes of the operands that are packed for several products.
        native, interpreted: how many instructions there are of each kind, those of a loop once.
        reasons: why the others are not native, and how many for each reason.
    """

    words: array[int]
    steps: BlockSteps
    registers: Mapping[int, int]
    fuel: int
    context: int
    panels: int
    native: int
    interpreted: int
    reasons: Mapping[str, int]
    trips: Mapping[int, int] = field(default_factory=dict)
    numbers: Mapping[int, int] = field(default_factory=dict)


def recorded(block: Block) -> Iterator[Recorded]:
    """All instructions and loops in the order in which a program is written."""
    for item in block.items:
        yield item
        if not isinstance(item, Issued):
            yield from recorded(item.body)


def trips(loop: ForLoop | WhileLoop) -> int:
    """How often the body of a loop runs, as far as that is known before."""
    if isinstance(loop, ForLoop) and isinstance(loop.lower, int) and isinstance(loop.upper, int):
        return len(range(loop.lower, loop.upper, loop.step))
    return _UNKNOWN_TRIPS
