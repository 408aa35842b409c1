"""The rules of the advice on the shapes of tiles: partitions and elements that an instruction could have."""

from __future__ import annotations

from collections.abc import Mapping

from nki.profiling.advice.ranking import Advice, Evidence, busy, counted, duration, most_of, percent, where
from nki.profiling.facts.change import Change, joined, scaled


def few_partitions(evidence: Evidence) -> Advice | None:
    """Lanes of partitions that an instruction does not use stand still."""
    lanes = evidence.core.target.partitions
    found: dict[int, float] = {}
    for position in evidence.on("vector", "scalar"):
        used = evidence.facts[position].partitions
        if used <= lanes // 2:
            found[position] = evidence.ns(position) * (1.0 - used / lanes)
    if not found:
        return None
    unit = most_of(evidence, found)
    here = {at: ns for at, ns in found.items() if evidence.core.unit(at) == unit}
    costs = {at: evidence.ns(at) for at in here}
    mean = lanes * (1.0 - sum(here.values()) / sum(costs.values()))
    return Advice(
        "few-partitions",
        unit,
        f"{busy(evidence, unit)}; {percent(sum(costs.values()), evidence.busy(unit))} of its work is done on "
        f"{mean:.0f} of {lanes} partitions on average{where(evidence, costs)}",
        f"spread the work over more partitions, for example by loading more rows at once: an instruction takes as long "
        f"for {lanes} partitions as for one",
        evidence.gain(_spread(evidence)),
        costs,
    )


def _spread(evidence: Evidence) -> Change:
    """All that works on at most half of the partitions, with as much less of it as there are more partitions."""
    core, made = evidence.core, {}
    for at, fact in enumerate(evidence.facts):
        if 0 < fact.partitions <= core.target.partitions // 2:
            part = fact.partitions / core.target.partitions
            made[at] = scaled(core.recipes[at], part, part)
    return Change(recipes=made, own_tiles=True)


def short_instructions(evidence: Evidence) -> Advice | None:
    """An instruction of few elements takes as long as one of the least interval, and all have to be started."""
    target = evidence.core.target
    least = target.issue.min_ii_cycles
    few = max(least, target.timing["issue_cycles"])
    found: dict[int, float] = {}
    for position in evidence.on("vector", "scalar"):
        elements = evidence.facts[position].elements
        if elements <= few:
            streaming = elements / target.engines[evidence.core.unit(position)].ghz * evidence.runs(position)
            found[position] = max(0.0, evidence.ns(position) - streaming)
    if not found:
        return None
    unit = most_of(evidence, found)
    here = {at: ns for at, ns in found.items() if evidence.core.unit(at) == unit}
    times = sum(evidence.runs(at) for at in here)
    mean = sum(evidence.facts[at].elements * evidence.runs(at) for at in here) / times
    return Advice(
        "short-instructions",
        unit,
        f"{busy(evidence, unit)}; in {counted(times, 'instruction')} it works on {counted(mean, 'element')} of each "
        f"partition on average, but none takes less time than {least} elements would, and each has to be started: "
        f"{duration(sum(here.values()))} in which nothing is computed{where(evidence, here)}",
        "let one instruction work on more elements: put several tiles next to each other in the free dimension",
        evidence.gain(_together(evidence, found)),
        here,
    )


def _together(evidence: Evidence, found: Mapping[int, float]) -> Change:
    """Without what is lost, as if the elements of all were worked on by one instruction, which waits for none of it."""
    core, made = evidence.core, {}
    for at, lost in found.items():
        recipe = core.recipes[at]
        made[at] = joined(recipe, max(0.0, 1.0 - lost / (recipe.ns * evidence.runs(at))))
    return Change(recipes=made, own_tiles=True)
