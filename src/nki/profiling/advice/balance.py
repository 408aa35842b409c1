"""The rules of the advice on the balance of engines: one has most of the work, and another one time for some of it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from nki.profiling.advice.forms import Forms
from nki.profiling.advice.ranking import (
    Advice,
    Evidence,
    Gain,
    busy,
    duration,
    engine_name,
    line_of,
    percent,
    where,
)
from nki.profiling.facts.change import Change, scaled
from nki.spec.program import Issued
from nki.timing.recipe import Recipe


class _Group(NamedTuple):
    """The instructions of one line that another engine could run, what they are and take there, and how to write it."""

    line: int
    text: str
    moved: dict[int, Recipe]
    items: dict[int, Issued]
    here: float
    there: float


def slow_engine(evidence: Evidence) -> Advice | None:
    """GpSimd does what Vector could do faster."""
    groups = [group for group in _groups(evidence, "gpsimd", "vector") if group.there < group.here]
    if not groups:
        return None
    costs = {at: evidence.ns(at) for group in groups for at in group.moved}
    there = sum(group.there for group in groups)
    spare = evidence.makespan - evidence.busy("vector")
    return Advice(
        "slow-engine",
        "gpsimd",
        f"{busy(evidence, 'gpsimd')}; {percent(sum(costs.values()), evidence.busy('gpsimd'))} of its work could be "
        f"done by VectorE in {duration(there)}, which is idle for {duration(spare)}{where(evidence, costs)}",
        "write engine=nisa.engine.vector for these instructions, as many of them as VectorE has time for",
        _moved(evidence, "gpsimd", "vector", groups),
        costs,
    )


def engine_balance(evidence: Evidence) -> Advice | None:
    """Vector or Scalar has more work than the other one, which could do some of it."""
    best: Advice | None = None
    for unit, other in (("vector", "scalar"), ("scalar", "vector"), ("vector", "gpsimd")):
        if evidence.busy(unit) <= max(evidence.busy(other), _BUSY * evidence.makespan):
            continue
        groups = _chosen(evidence, unit, other)
        if groups:
            found = _balanced(evidence, unit, other, groups)
            if best is None or found.gain.expected > best.gain.expected:
                best = found
    return best


def _balanced(evidence: Evidence, unit: str, other: str, groups: list[_Group]) -> Advice:
    costs = {at: evidence.ns(at) for group in groups for at in group.moved}
    total = sum(group.here for group in groups)
    here, there = evidence.busy(unit), evidence.busy(other)
    part = _part(here, there, groups)
    how = "; ".join(f"in line {group.line} write {group.text}" for group in groups)
    last = " of the last of these lines" if len(groups) > 1 else ""
    some = "" if part > _ALL else f", for {100.0 * part:.0f} % of the instructions{last}: then both have as much to do"
    return Advice(
        "engine-balance",
        unit,
        f"{busy(evidence, unit)}, {engine_name(other)} {percent(there, evidence.makespan)}; {engine_name(other)} could "
        f"do {duration(total)} of that in {duration(sum(group.there for group in groups))}{where(evidence, costs)}",
        f"{how}{some}",
        _moved(evidence, unit, other, groups),
        costs,
    )


_ALL = 0.95
_MOST = 3
_BUSY = 0.25
_LEAST = 0.02


def _groups(evidence: Evidence, unit: str, other: str) -> list[_Group]:
    """Lines whose instructions another engine could run, those first that it is best at."""
    forms = Forms(evidence)
    moved: dict[tuple[int, str], dict[int, Recipe]] = defaultdict(dict)
    items: dict[int, Issued] = {}
    for at in evidence.on(unit):
        found = forms.elsewhere(at, other)
        if found is not None:
            moved[line_of(evidence, at), found[0].text][at] = found[1]
            items[at] = found[0].issued
    groups = [
        _Group(
            line,
            text,
            there,
            {at: items[at] for at in there},
            sum(evidence.ns(at) for at in there),
            sum(recipe.ns * evidence.runs(at) for at, recipe in there.items()),
        )
        for (line, text), there in moved.items()
    ]
    return sorted(groups, key=lambda group: (group.there / group.here if group.here else 0.0, -group.here))


def _chosen(evidence: Evidence, unit: str, other: str) -> list[_Group]:
    """As many lines as make the busier of both engines less busy."""
    here, there = evidence.busy(unit), evidence.busy(other)
    found: list[_Group] = []
    for group in _groups(evidence, unit, other):
        if group.here < _LEAST * evidence.makespan or here <= there or len(found) == _MOST:
            continue
        part = _part(here, there, [group])
        found.append(group)
        here, there = here - part * group.here, there + part * group.there
        if part < 1.0:
            break
    return found


def _part(here: float, there: float, groups: list[_Group]) -> float:
    """Which part of the last group moves, so that both engines are busy for the same time; at most all of it."""
    for group in groups[:-1]:
        here, there = here - group.here, there + group.there
    last = groups[-1]
    return max(0.0, min(1.0, (here - there) / (last.here + last.there))) if last.here else 1.0


def _moved(evidence: Evidence, unit: str, other: str, groups: list[_Group]) -> Gain:
    """What moving as much saves as makes both engines equally busy.

    At most: as if what could move took no time of either engine, but both together had to do it.
    """
    here, there = evidence.busy(unit), evidence.busy(other)
    part = _part(here, there, groups)
    free: dict[int, Recipe] = {}
    recipes: dict[int, Recipe] = {}
    items: dict[int, Issued] = {}
    for group in groups:
        recipes |= _spread(group, part if group is groups[-1] else 1.0)
        items |= group.items
        for at, recipe in group.moved.items():
            free[at] = scaled(min(recipe, evidence.core.recipes[at], key=lambda each: each.alone), working=0.0)
        share = part if group is groups[-1] else 1.0
        here, there = here - share * group.here, there + share * group.there
    change = Change(recipes, {at: items[at] for at in recipes})
    if part > _ALL:
        return evidence.gain(change)
    gain = evidence.within(evidence.expected(change), Change(recipes=free))
    most = min(gain.most, max(0.0, evidence.makespan - max(here, there)))
    return Gain(min(most, gain.expected), most)


def _spread(group: _Group, part: float) -> dict[int, Recipe]:
    """A part of them: all that write some of the tiles, which are at equal distances."""
    tiles: dict[int, list[int]] = defaultdict(list)
    for at in group.moved:
        tiles[next(group.items[at].written()).buffer.id].append(at)
    each, count = list(tiles.values()), round(part * len(tiles))
    chosen = (each[number * len(each) // count] for number in range(count))
    return {at: group.moved[at] for mine in chosen for at in mine}
