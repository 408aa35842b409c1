"""The rule of the advice on instructions that one could do, because engines do several steps in one pass."""

from __future__ import annotations

from collections import defaultdict

from nki.profiling.advice.forms import Forms
from nki.profiling.advice.fusion_patterns import Fused, FusionSearch
from nki.profiling.advice.ranking import Advice, Evidence, counted, duration, most_of
from nki.profiling.facts.change import Change
from nki.spec.program import Issued
from nki.timing.recipe import Recipe


def fusion(evidence: Evidence) -> Advice | None:
    """Several instructions that could be one."""
    program = FusionSearch(evidence)
    for at in range(len(program.items)):
        if evidence.core.ran[at]:
            program.look(at)
    groups: dict[str, list[Fused]] = defaultdict(list)
    for fused in program.found.values():
        groups[fused.text].append(fused)
    change, texts = _worth(evidence, program.forms, list(groups.items()))
    if not texts:
        return None
    gone = {at: evidence.ns(at) for at in change.gone}
    costs = gone | {at: evidence.ns(at) for at in change.recipes}
    unit = most_of(evidence, costs)
    return Advice(
        "fusion",
        unit,
        f"{counted(sum(evidence.runs(at) for at in gone), 'instruction')} of {duration(sum(gone.values()))} in all "
        "would not be needed, because others can do their work at the same time",
        "; ".join(texts),
        evidence.gain(change),
        costs,
    )


_MOST = 4


def _worth(evidence: Evidence, forms: Forms, groups: list[tuple[str, list[Fused]]]) -> tuple[Change, list[str]]:
    """Groups that shorten the program, or an engine's work if they do not lengthen it; what saves most comes first."""
    sized = []
    for text, members in groups:
        one = _change(evidence, forms, members)
        if one is not None:
            gone = sum(evidence.ns(at) for at in one.gone)
            more = sum(
                (recipe.ns - evidence.core.recipes[at].ns) * evidence.runs(at) for at, recipe in one.recipes.items()
            )
            sized.append((gone - more, text, members))
    sized.sort(key=lambda item: (-item[0], item[1]))
    kept: list[Fused] = []
    texts: list[str] = []
    change, best = Change(), 0.0
    for saved, text, members in sized:
        if saved <= 0.0 or len(texts) == _MOST:
            break
        tried = _change(evidence, forms, [*kept, *members])
        gained = evidence.expected(tried) if tried is not None else -1.0
        if tried is not None and gained >= best:
            kept, change, best = [*kept, *members], tried, gained
            texts.append(text)
    return change, texts


def _change(evidence: Evidence, forms: Forms, members: list[Fused]) -> Change | None:
    """All of them together; None if something of it is not legal."""
    gone: dict[int, int] = {}
    recipes: dict[int, Recipe] = {}
    items: dict[int, Issued] = {}
    for fused in members:
        for at, issued in fused.instead.items():
            recipe = forms.recipe(issued)
            if recipe is None:
                return None
            recipes[at] = recipe
        gone |= fused.gone
        items |= fused.instead
    return Change(recipes, items, gone)
