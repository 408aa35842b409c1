"""A program as records: which instructions run natively, and the words of those that do.

Built once for a compiled kernel. Instructions between two that NumPy executes are one stretch of words, which one call
executes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nki.core.tensor import Buffer, View
from nki.native.fill import record
from nki.native.forms import Form, Native, Source
from nki.native.proof import Proven
from nki.native.sharing import Sharing
from nki.native.words import HEADER, Place
from nki.spec.engine import engine as Engine
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

PlaceOf = Callable[[Buffer], Place]
RegisterPlace = Callable[[Engine, str], Place]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Words ``start`` to ``end`` of the plan, executed by one call.

    Attributes:
        issued: the instruction at each word where a record begins.
        work: seconds that NumPy would take, as estimated.
    """

    start: int
    end: int
    issued: Mapping[int, Issued]
    work: float


@dataclass(frozen=True, slots=True)
class Repeat:
    """A device loop."""

    loop: ForLoop | WhileLoop
    body: Steps


Step = Stretch | Issued | Repeat


@dataclass(slots=True)
class Steps:
    """What a block does.

    Attributes:
        renewed: buffers that get fresh notes whenever it runs, because the NumPy machine watches them.
    """

    items: list[Step] = field(default_factory=list)
    renewed: list[Buffer] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plan:
    """Records of a program.

    Attributes:
        words: of all stretches.
        native, interpreted: how many instructions there are of each kind, those of a loop once.
        reasons: why the others are not native, and how many for each reason.
    """

    words: array[int]
    steps: Steps
    native: int
    interpreted: int
    reasons: Mapping[str, int]


class Planner:
    """Builds the plan of one core's program.

    Args:
        forms: the form of an instruction; None for one with dynamic addresses.
        skipped: identities of transfers that need not be made.
        place_of: where buffers are.
        registers: where the accumulator registers of an engine are.
        barrier: address of the function by which threads wait for each other; 0 if one thread executes all.
    """

    def __init__(
        self,
        program: Program,
        proven: Proven,
        forms: Callable[[Issued], Form | None],
        skipped: frozenset[int],
        place_of: PlaceOf,
        registers: RegisterPlace,
        barrier: int = 0,
    ) -> None:
        self._program = program
        self._proven = proven
        self._forms = forms
        self._skipped = skipped
        self._place_of = place_of
        self._registers = registers
        self._barrier = barrier
        self._arguments = _perhaps_same(program)
        self._aliases = frozenset(place_of(buffer).base for buffer in program.inputs if buffer.id in self._arguments)
        self._sharing = Sharing(self._aliases)
        self._work = 0.0
        self._words: list[int] = []
        self._position = 0
        self._native = 0
        self._reasons: dict[str, int] = {}

    def plan(self) -> Plan:
        """The plan; only functions that are compiled are used."""
        steps = self._block(self._program.body)
        interpreted = sum(self._reasons.values())
        return Plan(array("q", self._words), steps, self._native, interpreted, self._reasons)

    def _block(self, block: Block) -> Steps:
        steps = Steps(renewed=[buffer for buffer in block.buffers if buffer.id in self._proven.doubtful])
        inside: dict[int, Issued] = {}
        for item in block.items:
            if isinstance(item, Issued):
                words = [] if id(item) in self._skipped else self._record(item)
                self._position += 1
                if words is not None:
                    if words:
                        inside[len(self._words)] = item
                        self._words += words
                    continue
            self._close(steps, inside)
            steps.items.append(item if isinstance(item, Issued) else Repeat(item, self._block(item.body)))
            inside = {}
        self._close(steps, inside)
        return steps

    def _close(self, steps: Steps, inside: dict[int, Issued]) -> None:
        """What was recorded since the last step that is not native becomes one stretch."""
        if inside:
            steps.items.append(Stretch(min(inside), len(self._words), inside, self._work))
        self._work, self._sharing = 0.0, Sharing(self._aliases)

    def _record(self, issued: Issued) -> list[int] | None:
        """The words of an instruction; None if NumPy executes it."""
        words, reason = self._attempt(issued)
        if words is None:
            self._reasons[reason] = self._reasons.get(reason, 0) + 1
        else:
            self._native += 1
        return words

    def _attempt(self, issued: Issued) -> tuple[list[int] | None, str]:
        form = self._forms(issued)
        if form is None:
            return None, "dynamic address"
        native = form.native
        if native is None:
            return None, f"{issued.instruction.name}: {form.reason}"
        if not form.function:
            return None, "not compiled yet"
        if any(view.buffer.id in self._proven.doubtful for _, view in issued.views()):
            return None, "may read what was never written"
        views, places = self._operands(native, issued)
        if self._crosses_arguments(issued):
            return None, "arguments may overlap"
        words = record(native, form.function, views, places, self._proven.adds.get(self._position, False))
        if words is None:
            return None, f"{issued.instruction.name}: operands overlap"
        self._work += form.cost
        if self._barrier and self._sharing.waits(native, words, views, places):
            self._words += [self._barrier, HEADER, 0, 0]
        return words, ""

    def _crosses_arguments(self, issued: Issued) -> bool:
        """Whether an instruction writes to an argument that may be the same memory as another one it has."""
        touched = {view.buffer.id for _, view in issued.views()} & self._arguments
        return len(touched) > 1 and any(
            issued.instruction.operands[name].writes and view.buffer.id in touched for name, view in issued.views()
        )

    def _operands(self, native: Native, issued: Issued) -> tuple[list[View | None], list[Place]]:
        views: list[View | None] = []
        places = []
        for source in native.sources:
            if isinstance(source, Source):
                view = source.of(issued.arguments)
                views.append(view)
                places.append(self._place_of(view.buffer))
            else:
                views.append(None)
                places.append(self._registers(issued.engine, source.path))
        return views, places


def _perhaps_same(program: Program) -> frozenset[int]:
    """Ids of the inputs if one of them is written: the caller may have passed arrays that overlap."""
    inputs = frozenset(buffer.id for buffer in program.inputs)
    for issued in program.body.walk():
        for name, view in issued.views():
            if view.buffer.id in inputs and issued.instruction.operands[name].writes:
                return inputs
    return frozenset()
