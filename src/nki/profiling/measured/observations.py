"""What matched instructions tell of the coefficients: durations, and times between instructions that follow each other.

An observation is a time that the model has as a sum of what single instructions cost, so that neither where timelines
begin nor what happened before counts. Whether an instruction waited for something else is what the predicted timeline
says; times that several equal instructions take are one observation, the median. Where a table is loaded it is the
least: operands that come late on the device only lengthen these, and the load hides how long they were awaited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nki.profiling.facts.timed_core import CoreFacts, core_of
from nki.profiling.formats.executed import LOAD, RUN, START
from nki.profiling.measured.capture import Capture, Event
from nki.profiling.measured.matching import Matched, Pair
from nki.spec.program import Issued, Program
from nki.target.model import Target
from nki.timing.cores import timelines
from nki.timing.cost import Key, signature
from nki.timing.hardware import hardware_of
from nki.timing.recipe import MATMUL, TRANSFER, Recipe
from nki.timing.state import NONE, TABLE, WAIT

Trips = Sequence[Mapping[int, float]]

Term = tuple[str, Key | None]
"""What an instruction costs, by its signature: see `Prices`; None for what does not depend on one."""

_NEAR = 0.5
"""ns; what is closer is the same time."""


class Observation(NamedTuple):
    """A time in ns.

    Attributes:
        what: "duration", "load", "first byte", "data", "spacing" or "signal".
        terms: the sum of which the model predicts.
        measured: median, or the least where a table is loaded.
        long: ns that the noise of the measurement is a part of.
        times: how often it was measured.
    """

    what: str
    terms: tuple[Term, ...]
    measured: float
    long: float
    times: int


class Timed(NamedTuple):
    """The cores of a program in time, and the id of the first instruction of each."""

    cores: list[CoreFacts]
    first: list[int]

    def place(self, ident: int) -> tuple[CoreFacts, int]:
        """Core and position of an instruction."""
        number = max(at for at, first in enumerate(self.first) if first <= ident)
        return self.cores[number], ident - self.first[number]


def timed(programs: Sequence[Program], target: Target, trips: Trips | None, before: Timed | None = None) -> Timed:
    """Time the programs; `before` are the same ones with other coefficients."""
    cores, first, base = [], [], 0
    for number, line in enumerate(timelines(programs, target, trips)):
        counted = trips[number] if trips is not None else None
        needs = before.cores[number].needs if before is not None else None
        core = core_of(number, programs[number], target, line, counted, needs)
        cores.append(core)
        first.append(base)
        base += len(core.items)
    return Timed(cores, first)


class Prices:
    """What instructions cost with some coefficients, by signature."""

    def __init__(self, target: Target, examples: Mapping[Key, Issued]) -> None:
        hardware = hardware_of(target)
        self._table, self._semaphore = hardware.table_load, hardware.semaphore
        self._limit = target.throttle.start_utilization
        self._recipes = {key: Recipe(each, target, hardware) for key, each in examples.items()}

    def of(self, term: Term) -> float:
        """ns."""
        name, key = term
        if key is None:
            return self._table if name == "table" else self._semaphore
        recipe = self._recipes[key]
        if name == "load":
            return recipe.chain[0][1] + recipe.chain[0][2]
        if name == "issue":
            return sum(ns for _, ns, _ in recipe.chain)
        if name == "first byte":
            return sum(ns for _, ns, _ in recipe.chain) + recipe.chain[-1][2]
        return {
            "work": recipe.ns,
            "whole": recipe.ns + recipe.latency,
            "limited": recipe.ns / self._limit + recipe.latency,
            "latency": recipe.latency,
        }[name]


def observe(matched: Matched, capture: Capture, found: Timed) -> tuple[list[Observation], dict[Key, Issued]]:
    """All observations, and an instruction for each signature in them."""
    seen = _Seen(matched, capture, found)
    return seen.observations(), seen.examples


class _Seen:
    def __init__(self, matched: Matched, capture: Capture, found: Timed) -> None:
        self.matched, self.capture, self.found = matched, capture, found
        self.pairs = [pair for pair in matched.pairs if pair.how != "engine"]
        self.examples: dict[Key, Issued] = {}

    def observations(self) -> list[Observation]:
        """Equal ones are one."""
        groups: dict[tuple[str, tuple[Term, ...]], list[tuple[float, float]]] = defaultdict(list)
        for what, terms, ns, long in (*self._single(), *self._spacings(), *self._signals()):
            if ns >= 0.0:
                groups[what, terms].append((ns, long))
        return [
            Observation(*key, _typical(key[1], [ns for ns, _ in times]), max(long for _, long in times), len(times))
            for key, times in groups.items()
        ]

    def _term(self, name: str, core: CoreFacts, at: int) -> Term:
        key = signature(core.items[at])
        self.examples.setdefault(key, core.items[at])
        return name, key

    def _single(self) -> Iterator[tuple[str, tuple[Term, ...], float, float]]:
        """What single instructions took; a product of several passes is as long as all of them."""
        passes: dict[int, list[Event]] = defaultdict(list)
        for pair in self.pairs:
            part, event = pair.item.part, pair.event
            core, at = self.found.place(part.id)
            lasted = event.end - event.start
            if part.what == LOAD:
                yield "load", (self._term("load", core, at),), lasted, lasted
            elif part.what == START:
                yield from self._transfer(core, at, event)
            elif core.recipes[at].kind == MATMUL:
                passes[part.id].append(event)
            elif _near(core.visible[at] - core.start[at], core.recipes[at].ns + core.recipes[at].latency):
                yield "duration", (self._term("whole", core, at),), lasted, lasted
        counts = {pair.item.part.id: round(1.0 / pair.item.part.share) for pair in self.pairs if pair.item.part.share}
        for ident, events in passes.items():
            core, at = self.found.place(ident)
            for first in range(0, len(events), counts[ident]):
                some = events[first : first + counts[ident]]
                start, end = min(each.start for each in some), max(each.end for each in some)
                name = self._product(core, at, start, end)
                if name and len(some) == counts[ident]:
                    yield "duration", (self._term(name, core, at),), end - start, end - start

    def _product(self, core: CoreFacts, at: int, start: float, end: float) -> str:
        """What the time of a product tells: nothing if the limit on Tensor's current held for a part of it."""
        ns, took = core.recipes[at].ns, core.end[at] - core.move[at]
        limits = self.capture.throttled
        if _near(took, ns):
            return "" if any(one < end and start < other for one, other in limits) else "whole"
        limited = _near(took, ns / core.target.throttle.start_utilization)
        whole = not limits or any(one <= start and start + ns <= other for one, other in limits)
        return "limited" if limited and whole else ""

    def _transfer(self, core: CoreFacts, at: int, event: Event) -> Iterator[tuple[str, tuple[Term, ...], float, float]]:
        """The start of a transfer, until its first byte if its queue was free, and its data if nothing slowed it."""
        lasted = event.end - event.start
        yield "duration", (self._term("issue", core, at),), lasted, lasted
        if event.moves is None:
            return
        recipe, moving = core.recipes[at], event.moves[1] - event.moves[0]
        if _near(core.move[at], core.arrival[at]):
            until = event.moves[0] - event.start
            yield "first byte", (self._term("first byte", core, at),), until, until
        if _near(core.end[at] - core.move[at], recipe.ns):
            yield "data", (self._term("work", core, at),), moving, moving

    def _spacings(self) -> Iterator[tuple[str, tuple[Term, ...], float, float]]:
        """From start to start of instructions that follow each other on an engine, if the second one did not wait.

        Nothing else may lie between them on either side.
        """
        lanes: dict[tuple[int, str], list[Pair]] = defaultdict(list)
        for pair in self.pairs:
            lanes[pair.item.part.core, pair.item.part.engine].append(pair)
        strange: dict[tuple[int, str], list[float]] = defaultdict(list)
        for event in (*self.matched.events, *self.matched.own):
            strange[event.core, event.engine].append(event.start)
        missing: dict[tuple[int, str], list[float]] = defaultdict(list)
        for item in self.matched.items:
            missing[item.part.core, item.part.engine].append(item.part.start)
        for place, lane in lanes.items():
            order = {id(pair): at for at, pair in enumerate(sorted(lane, key=lambda each: each.item.part.start))}
            others, gaps = np.sort(strange[place]), np.sort(missing[place])
            for one, two in pairwise(sorted(lane, key=lambda each: each.event.start)):
                follows = order[id(two)] == order[id(one)] + 1
                between = _between(others, one.event.start, two.event.start)
                if follows and not between and not _between(gaps, one.item.part.start, two.item.part.start):
                    yield from self._spacing(one, two)

    def _spacing(self, first: Pair, second: Pair) -> Iterator[tuple[str, tuple[Term, ...], float, float]]:
        one, two = first.item.part, second.item.part
        core, at = self.found.place(two.id)
        before = one.id - two.id + at
        if one.what != RUN or two.what != RUN or core.recipes[at].kind == MATMUL:
            return
        waited = core.start[at] - core.turn[at]
        terms = (self._term("work", core, before),)
        ns = second.event.start - first.event.start
        if not _near(core.end[before] - core.start[before], core.recipes[before].ns):
            return
        if core.cause[at] == NONE and waited < _NEAR and second.event.waited < _NEAR:
            yield "spacing", terms, ns, ns
        elif core.cause[at] == TABLE and waited - core.table[at] < _NEAR:
            yield "spacing", (*terms, ("table", None)), ns, ns

    def _signals(self) -> Iterator[tuple[str, tuple[Term, ...], float, float]]:
        """From the end of an instruction to the start of one that waited for its signal, and for nothing else."""
        done = {pair.item.part.id: _done(pair) for pair in self.pairs if pair.item.part.what != LOAD}
        for pair in self.pairs:
            part = pair.item.part
            core, at = self.found.place(part.id)
            begins = part.what == LOAD or core.recipes[at].kind != MATMUL
            waited = core.cause[at] == WAIT and core.start[at] - core.turn[at] > _NEAR
            if part.number or not begins or not waited or core.blocker[at] < 0:
                continue
            producer = done.get(part.id - at + core.blocker[at])
            if producer is None:
                continue
            begin, end = producer
            ns = pair.event.start - end
            moves = core.recipes[core.blocker[at]].kind == TRANSFER
            term: Term = self._term("latency", core, core.blocker[at]) if moves else ("semaphore", None)
            yield "signal", (term,), ns, max(ns, 0.0) + end - begin


def _typical(terms: tuple[Term, ...], times: list[float]) -> float:
    """The time that stands for equal ones."""
    return float(min(times) if ("table", None) in terms else np.median(times))


def _near(one: float, other: float) -> bool:
    return abs(one - other) < _NEAR


def _between(sorted_times: np.ndarray, start: float, end: float) -> bool:
    return bool(np.searchsorted(sorted_times, start) != np.searchsorted(sorted_times, end))


def _done(pair: Pair) -> tuple[float, float] | None:
    """From when to when an instruction made its result; of a transfer, its data."""
    if pair.item.part.what == START:
        return pair.event.moves[:2] if pair.event.moves is not None else None
    return pair.event.start, pair.event.end
