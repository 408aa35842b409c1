"""Dimensions of subscripts as texts: ``0:128``, ``nl.ds(i * 128, p_size)``, ``i``."""

from __future__ import annotations

from nki.tools.migrate.facts import Fact
from nki.tools.migrate.index_expressions import ONE
from nki.tools.migrate.linear import Linear
from nki.tools.migrate.masks import Cut
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.dims import Dim
from nki.tools.migrate.rewriting.regions import Cuts


def slice_of(c: Context, dim: Dim, fact: Fact, cuts: Cuts) -> str:
    """A dimension in a subscript.

    Args:
        fact: of the result.
        cuts: what is left of its axes.
    """
    if dim.axis is None:
        return dim.text
    cut = cuts.get(0 if dim.axis == 0 else dim.axis - len(fact.shape))
    if cut is not None and fact.shape[dim.axis] != 1:
        return _cut(c, dim, cut)
    if dim.raw:
        return dim.raw
    if dim.step:
        last = Linear.of(dim.text) + (Linear.of(dim.size) - ONE) * Linear.of(dim.step) + ONE
        return f"{dim.text}:{last}:{dim.step}"
    number, size = Linear.of(dim.text).constant, Linear.of(dim.size)
    if number is not None:
        return f"{number}:{size + Linear.number(number)}"
    if dim.size == "1":
        return f"{dim.text}:{Linear.of(dim.text) + ONE}"
    return f"{c.nl('ds')}({dim.text}, {dim.size})"


def _cut(c: Context, dim: Dim, cut: Cut) -> str:
    if dim.step:
        raise Unmigrated("a mask cuts a slice with steps")
    if dim.raw == ":" or (not dim.raw and dim.text == "0"):
        return f"{cut.low}:{cut.high}"
    start = dim.text if cut.low == "0" else f"{dim.text} + {cut.low}"
    return f"{c.nl('ds')}({start}, {cut.size})"


def subscript(text: str, parts: list[str], keep: int = 0) -> str:
    """A tensor with a subscript; whole dimensions at its end are left out, but for the first `keep` ones."""
    parts = list(parts)
    while len(parts) > keep and parts[-1] == ":":
        parts.pop()
    return f"{text}[{', '.join(parts)}]" if parts else text
