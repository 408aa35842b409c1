"""The rules of the advice on waiting: tables, clocks, ports, buffers, loops, and work that does not overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import prod

from nki.profile.advice import LEAST, Advice, Evidence, duration, percent, ranked, where
from nki.profile.bounds import dependence_bound
from nki.profile.core import is_matmul
from nki.timing.loops import LoopTime

_BOUND = 0.7
"""A unit that is busy for more of the time than this is what bounds a program, and not the lack of overlap."""

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
        f"ScalarE loads activation tables {count:.0f} times ({names}), {duration(sum(loads.values()))} in all, "
        f"{percent(sum(loads.values()), evidence.makespan)} of the time; {where(evidence, loads)}",
        "do all activations of one function before those of the next one",
        evidence.possible("scalar", saved),
        ranked(loads),
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
        f"{len(slow)} of {len(evidence.on('tensor'))} matmuls start at {throttle.start_utilization:.0%} of the rate, "
        f"because TensorE had paused: {duration(sum(slow.values()))} lost; {where(evidence, slow)}",
        f"keep TensorE busy: load ahead, and put matmuls of several tiles next to each other; after "
        f"{throttle.ramp_ns / 1000:.3g} µs it runs at its full rate",
        evidence.possible("tensor", saved),
        ranked(slow),
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
        f"{queue} waits {duration(sum(here.values()))} for a port that another engine holds, "
        f"{percent(sum(here.values()), evidence.makespan)} of the time; {where(evidence, here)}",
        "let only one of the two engines work on that memory or PSUM bank at a time: other banks, or another engine",
        sum(here.values()),
        ranked(here),
    )


def reused_buffers(evidence: Evidence) -> Advice | None:
    """Chains of dependences are longer because tiles are overwritten."""
    core, edges = evidence.core, evidence.edges
    path: dict[int, float] = defaultdict(float)
    for piece in evidence.path:
        path[piece.position] += piece.end - piece.start
    renamed = [
        {producer for producer in needs if edges.kind(producer, consumer)[0] in _REUSE}
        for consumer, needs in enumerate(core.needs)
    ]
    reuse = {consumer: path[consumer] for consumer, found in enumerate(renamed) if found and path.get(consumer)}
    chain = evidence.bounds["dependences"]
    fewest = [
        tuple(producer for producer in needs if producer not in renamed[consumer])
        for consumer, needs in enumerate(core.needs)
    ]
    if not reuse or chain - dependence_bound(core, fewest, evidence.trips) < LEAST * evidence.makespan:
        return None  # and with the dependences that are left out below, even less
    free = dependence_bound(core, _kept(evidence, renamed), evidence.trips)
    return Advice(
        "reused-buffers",
        _queue(evidence, max(reuse, key=lambda position: reuse[position])),
        f"{len(reuse)} instructions on the critical path overwrite a tile that earlier ones have to be done with: no "
        f"schedule takes less than {duration(chain)}, with tiles of their own {duration(free)} would be possible; "
        f"{where(evidence, reuse)}",
        "take turns with two or more buffers: allocate the tile inside the loop instead of outside",
        chain - free,
        ranked(reuse),
    )


def _kept(evidence: Evidence, renamed: Sequence[set[int]]) -> list[tuple[int, ...]]:
    """Dependences if no tile is overwritten.

    Those that followed from a dependence which is gone come back if they are for data; where they are too many to look
    at, all come back, so that less is promised.
    """
    needs, kind = evidence.core.needs, evidence.edges.kind
    kept, left = [], _MOST_LOOKS
    for consumer, mine in enumerate(needs):
        behind = {first for producer in renamed[consumer] for first in needs[producer]}
        left -= len(behind)
        back = {first for first in behind if kind(first, consumer)[0] in _DATA} if left > 0 else behind
        kept.append(tuple(sorted({*mine, *back} - renamed[consumer])))
    return kept


_MOST_LOOKS = 100_000
_REUSE = ("anti", "output")
_DATA = ("flow", "register", "state", "schedule")


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
    if most > _BOUND * rest or not _ON_PATH * rest <= moving <= (1.0 - LEAST_WORK) * rest:
        return None
    return Advice(
        "no-overlap",
        "dma",
        f"no unit is busy for most of the time ({unit} {percent(most, rest)}): transfers and computation take turns, "
        f"{percent(moving, rest)} of the critical path is transfers; {where(evidence, costs)}",
        "split the work into tiles and load the next one while this one is computed",
        rest - most,
        ranked(costs),
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
    firsts = tuple(loop.first for loop in loops if loop.first < loop.last)
    return Advice(
        "loop-barriers",
        "all",
        f"{trips:.0f} trips of {len(loops)} device loops are separated by barriers of all queues: {duration(lost)}, "
        f"{percent(lost, evidence.makespan)} of the time, in which nothing overlaps",
        "use a Python loop, which is unrolled, or do more in each trip",
        lost,
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
