"""The rules of the advice on transfers: small pieces, many starts, the same bytes again."""

from __future__ import annotations

from collections import defaultdict

from nki.core.tensor import View
from nki.profile.advice import Advice, Evidence, duration, percent, ranked, where


def small_descriptors(evidence: Evidence) -> Advice | None:
    """A descriptor below the least size costs as much as one of that size."""
    core, least = evidence.core, evidence.core.target.dma.overhead_bound_bytes
    saved: dict[int, float] = {}
    costs: dict[int, float] = {}
    for position in core.transfers():
        fact, recipe = evidence.facts[position], core.recipes[position]
        if 0 < fact.nbytes < fact.descriptors * least:
            working = recipe.work * evidence.runs(position)
            costs[position] = working
            saved[position] = working * (1.0 - fact.nbytes / (fact.descriptors * least))
    if not saved:
        return None
    nbytes = sum(evidence.facts[at].nbytes * evidence.runs(at) for at in saved)
    pieces = sum(evidence.facts[at].descriptors * evidence.runs(at) for at in saved)
    return Advice(
        "small-descriptors",
        "dma",
        f"{len(saved)} transfers move pieces of {nbytes / pieces:.0f} bytes on average, each costs as much as {least}: "
        f"{duration(sum(saved.values()))} of the DMA engines' time is lost; {where(evidence, costs)}",
        f"make rows contiguous for at least {evidence.core.target.dma.good_bytes_per_partition} bytes on both sides, "
        "or transpose on chip",
        evidence.possible("dma", sum(saved.values())),
        ranked(costs),
    )


def transfer_starts(evidence: Evidence) -> Advice | None:
    """Starting transfers takes more time than moving them, and most of all time."""
    core = evidence.core
    by_unit: dict[str, dict[int, float]] = defaultdict(dict)
    for position in core.transfers():
        if core.trigger(position):
            starting = sum(ns for _, ns, _ in core.recipes[position].chain)
            by_unit[core.trigger(position)][position] = starting * evidence.runs(position)
    if not by_unit:
        return None
    unit, costs = max(by_unit.items(), key=lambda item: sum(item[1].values()))
    starting = sum(costs.values())
    nbytes = sum(evidence.facts[at].nbytes * evidence.runs(at) for at in costs)
    moving = nbytes / core.target.dma.aggregate_gbps
    if starting < _STARTING * evidence.makespan or starting < moving:
        return None
    count = sum(evidence.runs(at) for at in costs)
    return Advice(
        "transfer-starts",
        unit,
        f"{unit} {percent(evidence.busy(unit), evidence.makespan)} busy; it starts {count:,.0f} transfers of "
        f"{nbytes / count / 1024:.3g} KiB on average, {starting / count:.0f} ns each, {duration(starting)} in all, "
        f"where moving the bytes takes {duration(moving)}; {where(evidence, costs)}",
        "move more with each transfer: half as many, twice as large, take half the time to start",
        evidence.possible(unit, starting / 2.0),
        ranked(costs),
    )


_STARTING = 0.5
"""Part of the makespan."""


def repeated_loads(evidence: Evidence) -> Advice | None:
    """The same tensor is loaded several times."""
    core = evidence.core
    loads: dict[int, dict[int, float]] = defaultdict(dict)
    reached: dict[int, dict[View, float]] = defaultdict(dict)
    names: dict[int, tuple[str, int]] = {}
    for position in core.transfers():
        issued = core.items[position]
        if not evidence.facts[position].writes[1]:
            continue
        for name, view in issued.views():
            if view.buffer.region.is_hbm and issued.instruction.operands[name].reads:
                loads[view.buffer.id][position] = evidence.facts[position].nbytes * evidence.runs(position)
                times = 1.0 if view.dynamic is None else evidence.runs(position)
                reached[view.buffer.id][view] = reached[view.buffer.id].get(view, 0.0) + times
                names[view.buffer.id] = (view.buffer.name, view.buffer.nbytes)
    again = {
        number: sum(each.values()) - _distinct(reached[number], names[number][1]) for number, each in loads.items()
    }
    worst = max(again, key=lambda number: again[number], default=None)
    if worst is None or again[worst] <= 0.0:
        return None
    (name, nbytes), total = names[worst], sum(loads[worst].values())
    extra = sum(more for more in again.values() if more > 0.0)
    return Advice(
        "repeated-loads",
        "dma",
        f"{name} ({nbytes / 2**20:.3g} MiB) is loaded {total / (total - again[worst]):.3g} times; tensors are loaded "
        f"again for {extra / 2**20:.3g} MiB in all, {duration(extra / core.target.dma.aggregate_gbps)} at the full "
        f"rate; {where(evidence, loads[worst])}",
        "keep it in SBUF, or change the order of the loops so that a tile is used up while it is there",
        evidence.possible("dma", extra / core.target.dma.aggregate_gbps),
        ranked(loads[worst]),
    )


def _distinct(views: dict[View, float], nbytes: int) -> float:
    """Bytes that different views hold, at most those of the tensor; a dynamic one is another one every time."""
    sizes = 0.0
    for view, times in views.items():
        size = view.dtype.itemsize * (1.0 if view.dynamic is None else times)
        for count, stride in zip(view.shape, view.strides, strict=True):
            size *= count if stride else 1
        sizes += size
    return float(min(nbytes, sizes))
