"""The list of passes, by stage; each stage can be written out and read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nki.graph.errors import guarded
from nki.graph.ir import Module
from nki.graph.passes.context import GraphContext
from nki.graph.passes.cse import cse
from nki.graph.passes.dce import dce
from nki.graph.passes.fold import fold
from nki.graph.passes.fusion.fuse import fuse
from nki.graph.passes.fusion.rematerialize import rematerialize
from nki.graph.passes.legalization.fold_narrowed import fold_narrowed
from nki.graph.passes.legalization.inline_calls import inline_calls
from nki.graph.passes.legalization.legalize import legalize
from nki.graph.passes.legalization.quotients import quotients
from nki.graph.passes.legalization.split_complex import split_complex
from nki.graph.passes.patterns import patterns
from nki.graph.passes.reductions import reductions
from nki.graph.passes.reorder import reorder
from nki.graph.passes.simplify import simplify
from nki.graph.passes.spread import spread
from nki.graph.passes.widen import widen

Pass = Callable[[Module, GraphContext], Module]

STAGES: Mapping[str, tuple[Pass, ...]] = {
    "legalized": (inline_calls, split_complex, dce, fold_narrowed, dce, legalize, quotients, dce),
    "simplified": (fold, simplify, cse, fold, simplify, cse, dce),
    "patterns": (patterns, simplify, dce),
    "fused": (reductions, simplify, widen, spread, reorder, cse, dce, rematerialize, dce, fuse),
}
"""Passes in order, by the stage that they lead to."""


def run_passes(
    module: Module,
    context: GraphContext,
    *,
    start: str = "imported",
    end: str = "",
    after: Callable[[str, Module], None] | None = None,
) -> Module:
    """A model taken to its groups; the records of the given one are used up.

    Args:
        start: the stage that the model has reached already.
        end: the last stage; "" for the last of all.
        after: called after each stage with its name.

    Raises:
        GraphError: "graph.unsupported", or "graph.internal" for a failure of a pass.
    """
    names = list(STAGES)
    last = names.index(end) + 1 if end else len(names)
    for name in names[names.index(start) + 1 if start in names else 0 : last]:
        for step in STAGES[name]:
            if step.__name__ not in context.disabled:
                with guarded(f"the pass {step.__name__}"):
                    module = step(module, context)
        if after is not None:
            after(name, module)
    return module
