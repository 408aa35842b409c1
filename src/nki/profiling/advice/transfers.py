"""The rules of the advice on transfers: small pieces, many starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from nki.profiling.advice.ranking import Advice, Evidence, amount, busy, counted, duration, ranked, where
from nki.profiling.advice.repeated_loads import caused_by_repeats


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
        f"in {counted(len(saved), 'transfer')} the DMA engines move {counted(nbytes / pieces, 'contiguous byte')} at a "
        f"time on average, which takes as long as {least}: {duration(sum(saved.values()))} of their time is lost"
        f"{where(evidence, costs)}",
        f"make rows contiguous for at least {evidence.core.target.dma.good_bytes_per_partition} bytes in device memory "
        "and in SBUF, or load rows as they lie and transpose them on chip",
        evidence.possible("dma", sum(saved.values())),
        ranked(costs),
    )


def transfer_starts(evidence: Evidence) -> Advice | None:
    """Starting transfers takes more time than moving them, and most of all time."""
    core = evidence.core
    by_unit: dict[str, dict[int, float]] = defaultdict(dict)
    for position in core.transfers():
        if core.trigger(position):
            by_unit[core.trigger(position)][position] = evidence.starting(position)
    if not by_unit:
        return None
    unit, costs = max(by_unit.items(), key=lambda item: sum(item[1].values()))
    starting = sum(costs.values())
    nbytes = sum(evidence.facts[at].nbytes * evidence.runs(at) for at in costs)
    moving = nbytes / core.target.dma.aggregate_gbps
    if starting < _STARTING * evidence.makespan or starting < moving:
        return None
    if caused_by_repeats(evidence, costs):
        return None  # larger transfers of what need not be moved at all would not help
    count = sum(evidence.runs(at) for at in costs)
    return Advice(
        "transfer-starts",
        unit,
        f"{busy(evidence, unit)}; it starts {counted(count, 'transfer')} of {amount(nbytes / count)} on average, which "
        f"takes {starting / count:.0f} ns each and {duration(starting)} in all, but moving their bytes takes only "
        f"{duration(moving)}{where(evidence, costs)}",
        f"move more with each transfer, {amount(good_transfer(evidence, costs))} or more: half as many, twice as "
        "large, take half the time to start",
        evidence.possible(unit, starting / 2.0),
        ranked(costs),
    )


def good_transfer(evidence: Evidence, transfers: Collection[int]) -> float:
    """Bytes that take twice as long to move as a transfer takes to be started, on average of these.

    With such transfers moving bounds, and not starting; no rule recommends smaller ones.
    """
    count = sum(evidence.runs(at) for at in transfers)
    starting = sum(evidence.starting(at) for at in transfers)
    return 2.0 * starting / count * evidence.core.target.dma.aggregate_gbps if count else 0.0


_STARTING = 0.5
"""Part of the makespan."""
