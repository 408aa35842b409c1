"""The rules of the advice on waiting: tables, clocks, ports, buffers, loops, and work that does not overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from math import prod

from nki.profiling.advice.ranking import (
    Advice,
    Evidence,
    Gain,
    amount,
    counted,
    duration,
    engine_name,
    percent,
    where,
)
from nki.profiling.advice.repeated_loads import BOUND, caused_by_repeats
from nki.profiling.advice.transfers import good_transfer
from nki.profiling.facts.change import OVERWRITES, Change
from nki.profiling.facts.timed_core import is_matmul
from nki.timing.loops import LoopTime

_ON_PATH = 0.3


def activation_tables(evidence: Evidence) -> Advice | None:
    """Scalar loads the same tables again and again."""
    core = evidence.core
    loads = {at: core.table[at] * evidence.runs(at) for at in range(len(core.items)) if core.table[at]}
    tables = {core.recipes[at].table for at in loads}
    saved = sum(loads.values()) - len(tables) * core.plan.hardware.table_load
    if saved <= 0.0:
        return None
    count = sum(evidence.runs(at) for at in loads)
    names = ", ".join(sorted(str(name) for name in tables))
    return Advice(
        "activation-tables",
        "scalar",
        f"ScalarE loads a table whenever another function begins, {count:.0f} times ({names}): "
        f"{duration(sum(loads.values()))}, {percent(sum(loads.values()), evidence.makespan)} of the time"
        f"{where(evidence, loads)}",
        "do all activations of one function before those of the next one, for example for several tiles at once",
        evidence.within(saved, Change()),
        loads,
    )


def tensor_clock(evidence: Evidence) -> Advice | None:
    """Tensor multiplies at a part of its rate after pauses."""
    core, throttle = evidence.core, evidence.core.target.throttle
    slow: dict[int, float] = {}
    for position in evidence.on("tensor"):
        if not is_matmul(core, position):
            continue
        extra = core.end[position] - core.move[position] - core.recipes[position].ns
        if extra > 1.0:
            slow[position] = extra * evidence.runs(position)
    once = throttle.ramp_ns * (1.0 - throttle.start_utilization)  # every program starts once
    saved = sum(slow.values()) - once
    if saved <= 0.0:
        return None
    return Advice(
        "tensor-clock",
        "tensor",
        f"{len(slow)} of {len(evidence.on('tensor'))} matmuls begin at {throttle.start_utilization:.0%} of the full "
        f"rate, because TensorE had paused before: {duration(sum(slow.values()))} lost{where(evidence, slow)}",
        f"keep TensorE busy: load the next tile ahead, and put matmuls of several tiles next to each other; after "
        f"{throttle.ramp_ns / 1000:.3g} µs without a pause it works at its full rate",
        evidence.within(saved, Change(own_tiles=True)),
        slow,
    )


def shared_ports(evidence: Evidence) -> Advice | None:
    """Engines take turns at a port of SBUF or PSUM."""
    waits = _waits(evidence, lambda kind, text: kind == "port")
    if not waits:
        return None
    queue, here = max(waits.items(), key=lambda item: sum(item[1].values()))
    return Advice(
        "shared-ports",
        queue,
        f"{engine_name(queue)} waits {duration(sum(here.values()))}, "
        f"{percent(sum(here.values()), evidence.makespan)} of the time, because another engine uses the same port of "
        f"SBUF or the same bank of PSUM{where(evidence, here)}",
        "let the two engines work on tiles in different banks of PSUM",
        evidence.gain(Change(no_ports=True)),
        here,
    )


def reused_buffers(evidence: Evidence) -> Advice | None:
    """Chains of dependences are longer because tiles are overwritten."""
    core, edges = evidence.core, evidence.edges
    path: dict[int, float] = defaultdict(float)
    for piece in evidence.path:
        path[piece.position] += piece.end - piece.start
    reuse = {
        consumer: path[consumer]
        for consumer, needs in enumerate(core.needs)
        if path.get(consumer) and any(edges.kind(producer, consumer)[0] in OVERWRITES for producer in needs)
    }
    if not reuse:
        return None
    free = Change(own_tiles=True)
    gain = evidence.within(evidence.most(free) - evidence.most(Change()), free)
    return Advice(
        "reused-buffers",
        _queue(evidence, max(reuse, key=lambda position: reuse[position])),
        f"{counted(len(reuse), 'instruction')} on the critical path overwrite a tile, and wait until earlier ones are "
        f"done with it; with tiles of their own the program could take {duration(evidence.makespan - gain.most)} "
        f"instead of {duration(evidence.makespan)}{where(evidence, reuse)}",
        "allocate the tile inside the loop instead of outside, so that two or more buffers take turns",
        gain,
        reuse,
    )


def _queue(evidence: Evidence, position: int) -> str:
    return evidence.core.line.queues[evidence.core.queue[position]]


def no_overlap(evidence: Evidence) -> Advice | None:
    """Transfers and computation take turns, and no unit is busy for most of the time."""
    unit = evidence.busiest()
    most = evidence.busy(unit)
    costs: dict[int, float] = defaultdict(float)
    transfers = set(evidence.core.transfers())
    for piece in evidence.path:
        if piece.position in transfers:
            costs[piece.position] += piece.end - piece.start
    moving, rest = sum(costs.values()), evidence.makespan
    if most > BOUND * rest or not _ON_PATH * rest <= moving <= (1.0 - LEAST_WORK) * rest:
        return None
    if caused_by_repeats(evidence, costs):
        return None  # what need not be loaded at all need not overlap with anything
    split = _splits(evidence, transfers)
    return Advice(
        "no-overlap",
        "dma",
        f"transfers and computation take turns: no unit is busy for most of the time ({engine_name(unit)} "
        f"{percent(most, rest)}), and {percent(moving, rest)} of the critical path is transfers"
        f"{where(evidence, costs)}",
        _overlap(evidence, transfers, split),
        _overlapped(evidence, transfers, moving, split),
        costs,
    )


def _overlapped(evidence: Evidence, transfers: Collection[int], moving: float, split: bool) -> Gain:
    """What overlap saves: the first load and the last store, of a whole tile or of a piece, remain."""
    if not split:
        return evidence.within(_between(evidence, transfers), Change(own_tiles=True))
    count = sum(evidence.runs(at) for at in transfers)
    nbytes = sum(evidence.facts[at].nbytes * evidence.runs(at) for at in transfers)
    pieces = min(1.0, good_transfer(evidence, transfers) * count / nbytes)
    return evidence.within(moving, Change(own_tiles=True, pieces=pieces))


def _between(evidence: Evidence, transfers: Collection[int]) -> float:
    """ns of the critical path in which a transfer waits for computation and is waited for by computation.

    The first load and the last store are left out: without smaller tiles nothing can be computed in that time.
    """
    path = evidence.path
    computing = [n for n, piece in enumerate(path) if piece.position >= 0 and piece.position not in transfers]
    inner = path[computing[0] : computing[-1]] if computing else ()
    return sum(piece.end - piece.start for piece in inner if piece.position in transfers)


def _splits(evidence: Evidence, transfers: Collection[int]) -> bool:
    """Whether transfers are so large that starting them would not bound if they were smaller."""
    nbytes = sum(evidence.facts[at].nbytes * evidence.runs(at) for at in transfers)
    return nbytes >= 2.0 * good_transfer(evidence, transfers) * sum(evidence.runs(at) for at in transfers)


def _overlap(evidence: Evidence, transfers: Collection[int], split: bool) -> str:
    """How to make transfers and computation overlap without making transfers so small that starting them bounds."""
    good = good_transfer(evidence, transfers)
    if split:
        least = f" of {amount(good)} or more" if good else ""
        return f"split the work into tiles{least}, and load the next one while this one is computed"
    return (
        "load the next tile while this one is computed: allocate the tiles inside the loop, so that two take turns; do "
        f"not make them smaller, because each transfer takes as long to start as {amount(good / 2.0)} take to move"
    )


LEAST_WORK = 0.1
"""Part of the critical path that has to be computation: there is something to overlap with."""


def loop_barriers(evidence: Evidence) -> Advice | None:
    """All queues meet between the trips of a loop."""
    lost = evidence.spent["sync"].get("barrier", 0.0)
    loops = [loop for loop in evidence.core.line.loops if loop.trips > 0]
    if not loops or not lost:
        return None
    trips = sum(prod(each.trips for each in loops if _around(each, loop)) for loop in loops)
    firsts = {loop.first: lost for loop in loops if loop.first < loop.last}
    return Advice(
        "loop-barriers",
        "all",
        f"{counted(trips, 'trip')} of {counted(len(loops), 'device loop')} are separated by barriers, where all "
        f"engines wait for each other: {duration(lost)}, {percent(lost, evidence.makespan)} of the time, in which "
        "nothing overlaps",
        "use a Python loop, which is unrolled, or do more in each trip",
        evidence.within(lost, Change(unrolled=True)),
        firsts,
    )


def _around(outer: LoopTime, loop: LoopTime) -> bool:
    """Whether a loop is another one, or around it."""
    return outer.number <= loop.number and outer.first <= loop.first and loop.last <= outer.last


def _waits(evidence: Evidence, wanted: Callable[[str, str], bool]) -> dict[str, dict[int, float]]:
    """ns of waiting by queue and position."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    core = evidence.core
    for position, waited in enumerate(evidence.waited):
        if waited.kind and wanted(waited.kind, waited.text):
            found[_queue(evidence, position)][position] = (core.start[position] - core.turn[position]) * evidence.runs(
                position
            )
    return found
