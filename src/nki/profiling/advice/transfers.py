"""The rules of the advice on transfers: small pieces, many starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from math import ceil

from nki.core.tensor import View, contiguous_strides
from nki.profiling.advice.ranking import Advice, Evidence, Gain, amount, busy, counted, duration, where
from nki.profiling.advice.repeated_loads import caused_by_repeats
from nki.profiling.facts.change import Change, recipe_of, scaled
from nki.spec.program import Issued
from nki.timing.recipe import Recipe


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
        evidence.gain(_contiguous(evidence, saved)),
        costs,
    )


def _contiguous(evidence: Evidence, transfers: Collection[int]) -> Change:
    """Transfers whose rows are contiguous on both sides, or those of the transposed tile if these take less time."""
    core = evidence.core
    made: dict[int, Recipe] = {}
    known: dict[int, Recipe] = {}
    for at in transfers:
        kind = id(core.recipes[at])
        if kind not in known:
            forms = [recipe_of(core, _dense(core.items[at], turned)) for turned in (False, True)]
            known[kind] = min(forms, key=lambda recipe: recipe.ns)
            known[kind].work = min(recipe.work for recipe in forms)
        made[at] = known[kind]
    return Change(recipes=made)


def _dense(issued: Issued, turned: bool) -> Issued:
    """A transfer between tensors of its own shape, with the first and the last dimension exchanged or not."""
    made = {}
    for name, value in zip(issued.instruction.operands, issued.arguments, strict=True):
        if type(value) is View:
            shape = (value.shape[-1], *value.shape[1:-1], value.shape[0]) if turned else value.shape
            strides = contiguous_strides(shape)
            if value.buffer.on_chip:
                strides = (value.row, *contiguous_strides(shape[1:]))
            made[name] = value._replace(shape=shape, strides=strides)
    return issued._replace(arguments=issued.arguments._replace(**made))


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
    factor = max(2.0, ceil(good_transfer(evidence, costs) / (nbytes / count)))
    return Advice(
        "transfer-starts",
        unit,
        f"{busy(evidence, unit)}; it starts {counted(count, 'transfer')} of {amount(nbytes / count)} on average, which "
        f"takes {starting / count:.0f} ns each and {duration(starting)} in all, but moving their bytes takes only "
        f"{duration(moving)}{where(evidence, costs)}",
        f"move {factor:.0f} times as much with each transfer, {amount(good_transfer(evidence, costs))} or more: "
        "fewer transfers of more bytes take less time to start",
        _fewer(evidence, costs, factor),
        costs,
    )


def _fewer(evidence: Evidence, transfers: Collection[int], factor: float) -> Gain:
    """With so many transfers in one; at most as if nothing but moving the bytes took time."""
    core = evidence.core
    least, fewer = {}, {}
    for at in transfers:
        recipe = core.recipes[at]
        moving = evidence.facts[at].nbytes / core.target.dma.aggregate_gbps
        part = min(1.0, moving / recipe.work) if recipe.work else 1.0
        least[at] = scaled(recipe, 0.0, part)
        fewer[at] = scaled(recipe, 1.0 / factor)
    return evidence.within(evidence.expected(Change(recipes=fewer)), Change(recipes=least))


def good_transfer(evidence: Evidence, transfers: Collection[int]) -> float:
    """Bytes that take twice as long to move as a transfer takes to be started, on average of these.

    With such transfers moving bounds, and not starting; no rule recommends smaller ones.
    """
    count = sum(evidence.runs(at) for at in transfers)
    starting = sum(evidence.starting(at) for at in transfers)
    return 2.0 * starting / count * evidence.core.target.dma.aggregate_gbps if count else 0.0


_STARTING = 0.5
"""Part of the makespan."""
