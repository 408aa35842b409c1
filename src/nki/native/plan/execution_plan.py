"""A program as records: which instructions run natively, and the words of those that do.

Built once for a compiled kernel. Instructions between two that NumPy executes are one stretch of words, which one call
executes; a device loop of which NumPy executes nothing is part of the stretch.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nki.core.tensor import Buffer, View
from nki.native.operand_layout import HEADER, Place
from nki.native.plan.control import Control, apart, steers, still
from nki.native.plan.definite_initialization import Proven
from nki.native.plan.packed_panels import Panels
from nki.native.plan.steps import BlockSteps, ExecutionPlan, Recorded, Repeat, Stretch, trips
from nki.native.plan.work_sharing import Shapes, Sharing
from nki.native.primitives.abi import ALONE
from nki.native.primitives.control import TARGET
from nki.native.records.fill import record
from nki.native.records.forms import Form, Native, ViewSource
from nki.spec.engine import engine as Engine
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop, depends_on_data, loops

_WORTH_TRIPS = 3e-3
"""Seconds that NumPy would take for one trip, from which threads share the trips."""

PlaceOf = Callable[[Buffer], Place]
RegisterPlace = Callable[[Engine, str], Place]


@dataclass(slots=True)
class _Inside:
    """What was recorded since the last step: see `Stretch`."""

    issued: dict[int, Recorded] = field(default_factory=dict)
    after: dict[int, int] = field(default_factory=dict)


class ExecutionPlanner:
    """Builds the plan of one core's program.

    Args:
        forms: the form of an instruction, as if scalar offsets were 0; None for one with other dynamic addresses.
        moving: identities of instructions with a dynamic address.
        skipped: identities of transfers that need not be made.
        versions: instructions with the versions of tiles that they touch, by identity of those in the program.
        place_of: where buffers are.
        accumulators: where the accumulator registers of an engine are.
        control: records of what steers.
        barrier: address of the function by which threads wait for each other; 0 if one thread executes all.
    """

    def __init__(
        self,
        program: Program,
        proven: Proven,
        forms: Callable[[Issued], Form | None],
        moving: frozenset[int],
        skipped: frozenset[int],
        versions: Mapping[int, Issued],
        place_of: PlaceOf,
        accumulators: RegisterPlace,
        control: Control,
        barrier: int = 0,
    ) -> None:
        self._program = program
        self._proven = proven
        self._forms = forms
        self._moving = moving
        self._skipped = skipped
        self._versions = versions
        self._place_of = place_of
        self._accumulators = accumulators
        self._control = control
        self._barrier = barrier
        self._arguments = _perhaps_same(program)
        self._aliases = frozenset(place_of(buffer).base for buffer in program.inputs if buffer.id in self._arguments)
        self._shapes: Shapes = {}
        self._sharing = Sharing(self._aliases, self._shapes)
        self._panels = Panels(self._aliases)
        self._work = 0.0
        self._words: list[int] = []
        self._position = 0
        self._native = 0
        self._reasons: dict[str, int] = {}
        self._stepwise: set[int] = set()

    def plan(self) -> ExecutionPlan:
        """The plan; only functions that are compiled are used."""
        steps = self._block(self._program.body)
        interpreted = sum(self._reasons.values())
        control = self._control
        counted = {n: loop for n, loop in enumerate(loops(self._program.body)) if depends_on_data(loop)}
        totals = {number: control.total(loop) for number, loop in counted.items()}
        words = array("q", self._words)
        return ExecutionPlan(
            words=words,
            steps=steps,
            registers=control.registers,
            fuel=control.fuel,
            context=control.end,
            panels=self._panels.bytes,
            native=self._native,
            interpreted=interpreted,
            reasons=self._reasons,
            trips=totals,
            numbers={id(loop): number for number, loop in counted.items()},
        )

    def _block(self, block: Block) -> BlockSteps:
        steps = BlockSteps(renewed=[buffer for buffer in block.buffers if buffer.id in self._proven.doubtful])
        inside = _Inside()
        for item in block.items:
            if isinstance(item, Issued):
                if self._instruction(item, inside):
                    continue
                self._close(steps, inside)
                steps.items.append(self._versions.get(id(item), item))
            else:
                if self._loop(item, inside):
                    continue
                self._close(steps, inside)
                steps.items.append(Repeat(item, self._block(item.body)))
            inside = _Inside()
        self._close(steps, inside)
        return steps

    def _instruction(self, issued: Issued, inside: _Inside) -> bool:
        """Record an instruction; False if NumPy executes it."""
        named = self._versions.get(id(issued), issued)
        found = [] if id(issued) in self._skipped else self._record(issued, named)
        self._position += 1
        if found is None:
            return False
        start = len(self._words)
        for words in found:
            inside.issued[len(self._words)] = issued
            self._words += words
        if len(found) > 1:
            inside.after.update({at: len(self._words) for at in inside.issued if at >= start})
        return True

    def _loop(self, loop: ForLoop | WhileLoop, inside: _Inside) -> bool:
        """Record a loop; False, and nothing done, if NumPy executes something of it."""
        if id(loop) in self._stepwise or not _can_run(loop, self._proven.doubtful):
            return False
        before = len(self._words), self._position, self._native, self._work, dict(self._reasons)
        tried = _Inside()
        if self._trips(loop, tried):
            inside.issued |= tried.issued
            inside.after |= tried.after
            return True
        length, self._position, self._native, self._work, self._reasons = before
        del self._words[length:]
        self._panels.forget()
        self._stepwise.add(id(loop))
        return False

    def _trips(self, loop: ForLoop | WhileLoop, inside: _Inside) -> bool:
        start = len(self._words)
        inside.issued[start] = loop
        self._words += self._control.start(loop)
        self._panels.forget()
        body, outside = len(self._words), self._work
        self._work = 0.0
        self._meet()
        if depends_on_data(loop):
            inside.issued[len(self._words)] = loop
            self._words += self._control.count(loop)
        for item in loop.body.items:
            if not (self._instruction(item, inside) if isinstance(item, Issued) else self._loop(item, inside)):
                return False
        inside.issued[len(self._words)] = loop
        self._words += self._control.next(loop, body)
        self._words[start + TARGET] = len(self._words)
        self._panels.forget()
        self._meet()
        times = trips(loop) if self._work > _WORTH_TRIPS else 1
        self._work = outside + times * self._work
        return True

    def _meet(self) -> None:
        """Every trip begins together, and so does what comes after the loop."""
        self._sharing = Sharing(self._aliases, self._shapes)
        if self._barrier:
            self._words += [self._barrier, HEADER, 0, 0]

    def _close(self, steps: BlockSteps, inside: _Inside) -> None:
        """What was recorded since the last step that is not native becomes one stretch."""
        if inside.issued:
            start, end = min(inside.issued), len(self._words)
            steps.items.append(Stretch(start, end, inside.issued, inside.after, self._work))
        self._work, self._sharing = 0.0, Sharing(self._aliases, self._shapes)
        self._panels.forget()

    def _record(self, issued: Issued, named: Issued) -> list[list[int]] | None:
        """The records of an instruction; None if NumPy executes it."""
        words, reason = self._attempt(issued, named)
        if words is None:
            self._reasons[reason] = self._reasons.get(reason, 0) + 1
        else:
            self._native += 1
        return words

    def _attempt(self, issued: Issued, named: Issued) -> tuple[list[list[int]] | None, str]:
        doubtful = self._proven.doubtful
        if steers(issued):
            if doubtful and any(view.buffer.id in doubtful for _, view in issued.views()):
                return None, "may read what was never written"
            return self._steering(named)
        form = self._forms(issued)
        if form is None:
            return None, "dynamic address"
        native = form.native
        if native is None:
            return None, f"{issued.instruction.name}: {form.reason}"
        if not form.function:
            return None, "not compiled yet"
        if doubtful and any(view.buffer.id in doubtful for view in _all_views(issued)):
            return None, "may read what was never written"
        views, places = self._operands(native, named)
        if self._arguments and self._crosses_arguments(issued):
            return None, "arguments may overlap"
        adds = self._proven.adds.get(self._position, False)
        if id(issued) in self._moving:
            found = self._at_dynamic_addresses(form, native, named, views, places, adds)
        else:
            found = self._at_static_addresses(native, form.function, views, places, adds)
        if found is None:
            return None, f"{issued.instruction.name}: operands overlap"
        if not found[-1][1] & ALONE:  # no other thread would help
            self._work += form.cost
        return found, ""

    def _at_static_addresses(
        self, native: Native, function: int, views: Sequence[View | None], places: Sequence[Place], adds: bool
    ) -> list[list[int]] | None:
        words = record(native, function, views, places, adds)
        if words is None:
            return None
        self._wait(self._barrier != 0 and self._sharing.waits(native, words, views, places))
        self._panels.recorded(native, words, places, self._words)
        return [words]

    def _at_dynamic_addresses(
        self, form: Form, native: Native, issued: Issued, views: Sequence[View | None], places: list[Place], adds: bool
    ) -> list[list[int]] | None:
        based, bases = self._based(native, issued, places)
        words = record(native, form.function, [still(view) for view in views], bases, adds)
        if words is None or not apart(views, places, [source.writes for source in native.sources]):
            return None
        indices = [(view, self._place_of(view.buffer)) for view in _indices(issued)]
        self._wait(self._barrier != 0 and self._sharing.waits(native, words, views, places, indices))
        self._panels.written(place for source, place in zip(native.sources, places, strict=True) if source.writes)
        return [*based, words]

    def _steering(self, issued: Issued) -> tuple[list[list[int]] | None, str]:
        """The record of an instruction on registers."""
        found = self._control.instruction(issued)
        if found is None:
            return None, "dynamic address"
        words, spots = found
        self._wait(self._barrier != 0 and any([self._sharing.waits_for(*spot) for spot in spots]))
        self._panels.written(place for _, place, writes in spots if writes)
        return [words], ""

    def _wait(self, waits: bool) -> None:
        if waits:
            self._words += [self._barrier, HEADER, 0, 0]

    def _based(self, native: Native, issued: Issued, places: Sequence[Place]) -> tuple[list[list[int]], list[Place]]:
        """Records that set the bases of operands at dynamic addresses, and the places with these bases."""
        records: list[list[int]] = []
        found = list(places)
        for at, source in enumerate(native.sources):
            if isinstance(source, ViewSource) and source.given(issued.arguments).dynamic is not None:
                based, found[at] = self._control.based(source.given(issued.arguments), places[at], at)
                records += based
        return records, found

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
            if isinstance(source, ViewSource):
                view = source.of(issued.arguments)
                views.append(view)
                places.append(self._place_of(view.buffer))
            else:
                views.append(None)
                places.append(self._accumulators(issued.engine, source.path))
        return views, places


def _can_run(loop: ForLoop | WhileLoop, doubtful: frozenset[int]) -> bool:
    """Whether native code knows this kind of loop, and nobody watches what it allocates."""
    forward = isinstance(loop, WhileLoop) or loop.step > 0
    return forward and not any(buffer.id in doubtful for buffer in loop.body.buffers)


def _indices(issued: Issued) -> list[View]:
    """The tensors that hold scalar offsets."""
    dynamic = [view.dynamic for _, view in issued.views() if view.dynamic is not None]
    return [item.indices for item in dynamic if isinstance(item.indices, View)]


def _all_views(issued: Issued) -> list[View]:
    return [view for _, view in issued.views()] + _indices(issued)


def _perhaps_same(program: Program) -> frozenset[int]:
    """Ids of the inputs if one of them is written: the caller may have passed arrays that overlap."""
    inputs = frozenset(buffer.id for buffer in program.inputs)
    for issued in program.body.walk():
        for name, view in issued.views():
            if view.buffer.id in inputs and issued.instruction.operands[name].writes:
                return inputs
    return frozenset()
