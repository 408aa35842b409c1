"""Where the time of every engine and DMA queue went: working, waiting by reason, barriers, idle."""

from __future__ import annotations

from nki.profiling.facts.extents import LoopSpan, SegmentSpan, Span, inside, top
from nki.profiling.facts.timed_core import TABLE, CoreFacts, is_transfer
from nki.profiling.intervals import Interval, divided
from nki.spec.queue import SEQUENCERS
from nki.timing.state import CAUSES

Spent = dict[str, dict[str, float]]
"""ns by track and category."""

KINDS = {"wait": "signal"} | {name: name for name in CAUSES if name and name != "wait"}
"""Names of the timeline's causes here."""

ALL = "dma"
"""The track of all DMA queues together."""


def tracks(core: CoreFacts) -> tuple[str, ...]:
    """The engines, all DMA queues together, and the queues that are used."""
    used = sorted({core.queue[position] for position in core.transfers()})
    return (*SEQUENCERS, ALL, *(core.line.queues[queue] for queue in used))


def spent(core: CoreFacts) -> Spent:
    """ns of every track by category, over all trips of loops; the categories of a track add up to the makespan."""
    total: Spent = {track: {} for track in tracks(core)}
    for span in top(core):
        _add(total, _of_span(core, span))
    if any(loop.trips != 1.0 for loop in core.line.loops):
        _fit(core, total)
    for categories in total.values():  # what rounding left over
        rest = core.line.makespan - sum(ns for name, ns in categories.items() if name != "idle")
        categories["idle"] = max(0.0, rest)
    return total


def _add(total: Spent, more: Spent, times: float = 1.0) -> None:
    for track, categories in more.items():
        here = total.setdefault(track, {})
        for name, ns in categories.items():
            here[name] = here.get(name, 0.0) + ns * times


def _of_span(core: CoreFacts, span: Span) -> Spent:
    if isinstance(span, SegmentSpan):
        return _of_segment(core, span)
    found: Spent = {track: {"barrier": min(span.first, span.end) - span.start} for track in tracks(core)}
    left = span.end - span.first
    if left <= 0.0:
        return found
    trip = _of_trip(core, span)
    _add(found, trip, left / span.trip if span.trip else 1.0)
    return found


def _of_trip(core: CoreFacts, loop: LoopSpan) -> Spent:
    """The first trip with its barrier; of one that is not shown nothing is known."""
    if not loop.whole:
        return {track: {"idle": loop.end - loop.first} for track in tracks(core)}
    found: Spent = {track: {"barrier": core.plan.hardware.barrier} for track in tracks(core)}
    for span in inside(core, loop):
        _add(found, _of_span(core, span))
    return found


def _of_segment(core: CoreFacts, span: SegmentSpan) -> Spent:
    names = tracks(core)
    busy: dict[str, list[Interval]] = {track: [] for track in names}
    waits: dict[str, dict[str, list[Interval]]] = {track: {} for track in names}
    for position in range(span.plan.first, span.plan.first + len(span.plan.items)):
        queue = core.line.queues[core.queue[position]]
        start, turn = core.start[position], core.turn[position]
        table = core.table[position]
        mine = waits[queue]
        if table:
            mine.setdefault("table", []).append((start - table, start))
        if start - table > turn:
            cause = core.cause[position]
            kind = "signal" if cause == TABLE else KINDS.get(CAUSES[cause], "signal")
            mine.setdefault(kind, []).append((turn, start - table))
        if is_transfer(core, position):
            _transfer(core, position, busy, mine)
        else:
            busy[core.unit(position).partition(".")[0]].append((start, core.end[position]))
    found = {}
    for track in names:
        layers = [("busy", busy[track]), *sorted(waits[track].items(), key=lambda item: _ORDER.index(item[0]))]
        found[track] = divided((span.start, span.end), layers)
    return found


_ORDER = ("table", "trigger", "queue", "unit", "port", "operand", "core", "signal")


def _transfer(
    core: CoreFacts, position: int, busy: dict[str, list[Interval]], waits: dict[str, list[Interval]]
) -> None:
    moving = (core.move[position], core.end[position])
    busy[core.line.queues[core.queue[position]]].append(moving)
    busy[ALL].append(moving)
    start, arrival = core.start[position], core.arrival[position]
    if core.trigger(position):
        busy[core.trigger(position)].append((start, start + sum(ns for _, ns, _ in core.recipes[position].chain)))
        waits.setdefault("trigger", []).append((start, arrival))
    waits.setdefault("queue", []).append((arrival, core.move[position]))


def _fit(core: CoreFacts, total: Spent) -> None:
    """With loops: the work that the timeline counted over all trips; what was seen of waiting shares the rest."""
    for track in ("vector", "scalar", "gpsimd", "sync", ALL):
        categories, work = total[track], core.line.busy[track]
        mine = categories.get("busy", 0.0) + categories.get("table", 0.0)
        others = sum(categories.values()) - mine
        for name in categories:
            if name in ("busy", "table"):
                categories[name] *= work / mine if mine else 0.0
            elif others:
                categories[name] *= max(0.0, core.line.makespan - work) / others
