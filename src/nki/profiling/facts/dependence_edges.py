"""Why instructions follow each other: every dependence with its kind and what both touch, and which of them bind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nki.passes.analysis.dependences import segments_of
from nki.passes.analysis.disjoint import disjoint
from nki.passes.analysis.footprints import Accesses, Footprint, Touched
from nki.profiling.facts.timed_core import CORE, EPS, OPERAND, TABLE, WAIT, CoreFacts, is_transfer
from nki.timing.state import CAUSES


class Edge(NamedTuple):
    """A dependence between two positions; `kind` is one of `nki.profiling.schema.DEPENDENCES`."""

    producer: int
    consumer: int
    kind: str
    what: str
    gap: float
    binding: bool
    signal: bool


class Waited(NamedTuple):
    """What an instruction waited for: one of `nki.profiling.schema.WAITS`, the position that held it up, and words."""

    kind: str
    blocker: int
    text: str


NOTHING = Waited("", -1, "")


class Edges:
    """The dependences of one core."""

    def __init__(self, core: CoreFacts) -> None:
        self._core = core
        accesses = Accesses(core.program, core.target)
        self._touched = [accesses.of(issued) for issued in core.items]
        self._asked = {
            (segment.walk + first, segment.walk + last)
            for segment in segments_of(core.program)
            for first, last in segment.edges
        }
        self._fences = [
            (segment.walk + first, segment.walk + after)
            for segment in segments_of(core.program)
            for first, after in segment.fences
        ]
        self._kinds: dict[tuple[int, int], tuple[str, str]] = {}
        self._common: dict[tuple[Footprint, Footprint], str] = {}

    def all(self) -> Iterator[Edge]:
        """All dependences and all signals, by consumer."""
        core = self._core
        for consumer, needs in enumerate(core.needs):
            signals = core.signals[consumer]
            binds = self._binding(consumer)
            for producer in sorted({*needs, *signals}):
                kind, what = self.kind(producer, consumer)
                gap = core.start[consumer] - core.visible[producer] if core.ran[consumer] else 0.0
                yield Edge(producer, consumer, kind, what, gap, producer == binds, producer in signals)

    def kind(self, producer: int, consumer: int) -> tuple[str, str]:
        """The kind of a dependence, and what both touch."""
        key = (producer, consumer)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = self._kind(producer, consumer)
        return found

    def waited(self, position: int) -> Waited:
        """What held an instruction up; of several things the last."""
        core = self._core
        wait = core.start[position] - core.turn[position]
        if wait <= EPS or not core.ran[position]:
            return NOTHING
        cause, blocker = core.cause[position], core.blocker[position]
        name = CAUSES[cause]
        if cause == TABLE:
            blocker = self._binding(position)
            table = core.recipes[position].table
            before = f", after {self._name(blocker)}" if blocker >= 0 else ""
            return Waited("table", blocker, f"activation table of {table}, {core.table[position]:.0f} ns{before}")
        if cause == CORE:
            return Waited("core", -1, "the other core")
        if cause in (WAIT, OPERAND):
            return self._data(position, blocker, "signal" if cause == WAIT else "operand")
        unit = core.trigger(position) if is_transfer(core, position) else core.unit(position)
        what = (
            f"{unit} was busy with {self._name(blocker)}" if name == "unit" else f"port held by {self._name(blocker)}"
        )
        return Waited(name, blocker, what)

    def _data(self, position: int, blocker: int, kind: str) -> Waited:
        """A wait for data, with the dependence that it stands for."""
        edge, what = self.kind(blocker, position)
        if edge == "order":  # a signal also tells of what came before it in its queue
            before = [p for p in self._core.needs[position] if self._core.queue[p] == self._core.queue[blocker]]
            if before:
                edge, what = self.kind(max(before), position)
        words = f"{edge}: {what}" if what else edge
        return Waited(kind, blocker, f"{self._name(blocker)}; {words}")

    def _binding(self, position: int) -> int:
        """The producer whose completion set the start of an instruction, or -1."""
        core = self._core
        if not core.ran[position] or core.start[position] - core.turn[position] <= EPS:
            return -1
        if core.cause[position] in (WAIT, OPERAND):
            return core.blocker[position]
        if core.cause[position] == TABLE:
            found = [(core.visible[p] + core.recipes[p].signal, p) for p in core.signals[position]]
            last = max(found, default=(0.0, -1))
            return last[1] if last[0] > core.turn[position] + EPS else -1
        return -1

    def _name(self, position: int) -> str:
        if position < 0:
            return "an instruction"
        issued, core = self._core.items[position], self._core
        frame = issued.location.frame
        line = f" in line {frame.line}" if frame else ""
        return f"{issued.instruction.label} ({core.line.queues[core.queue[position]]}){line}"

    def _kind(self, producer: int, consumer: int) -> tuple[str, str]:
        a, b = self._touched[producer], self._touched[consumer]
        for kind, earlier, later in (
            ("flow", a.writes, b.reads),
            ("anti", a.reads, b.writes),
            ("output", a.writes, b.writes),
        ):
            shared = self._shared(earlier, later)
            if shared:
                return kind, shared
        state = _state(a, b)
        if state:
            return state
        asked = (producer, consumer) in self._asked or any(
            first <= producer < consumer < after for first, after in self._fences
        )
        return ("schedule", "order of the kernel") if asked else ("order", "")

    def _shared(self, earlier: Sequence[Footprint], later: Sequence[Footprint]) -> str:
        """The first bytes that something of both touches, in words; empty if there are none."""
        known = self._common
        for a in earlier:
            for b in later:
                if a.space == b.space:
                    found = known.get((a, b))
                    if found is None:
                        found = known[a, b] = _overlap(a, b)
                    if found:
                        return found
        return ""


def _overlap(a: Footprint, b: Footprint) -> str:
    if disjoint(a, b):
        return ""
    rows = "" if a.hbm else f" partitions {max(a.first, b.first)}:{min(a.after, b.after)}"
    return f"{a.label}{rows} bytes {max(a.low, b.low)}:{min(a.high, b.high)}"


def _state(a: Touched, b: Touched) -> tuple[str, str] | None:
    shared = {*a.sets} & {*b.uses, *b.sets} | {*a.uses} & {*b.sets}
    for name, number in sorted(shared, key=str):
        return ("register" if name == "register" else "state"), f"{name} {number}".strip()
    if (a.rendezvous and b.hbm) or (b.rendezvous and a.hbm):
        return "state", "meeting of cores"
    if a.fence or b.fence:
        return "state", "memory that is no operand"
    return None
