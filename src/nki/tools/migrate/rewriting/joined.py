"""Masks that join the partitions and the last axis, as a triangle does: row by row, or with a predicate."""

from __future__ import annotations

from collections.abc import Callable

from nki.tools.migrate.index_expressions import Symbolic
from nki.tools.migrate.linear import Linear
from nki.tools.migrate.masks import Bounds, Cut
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.regions import Cuts
from nki.tools.migrate.rewriting.views import pattern_of


def by_rows(c: Context, mask: Bounds, statement: Callable[[Cuts], str]) -> str:
    """A loop over rows around a statement, which gets what is left of a row."""
    (joined,) = mask.joined if len(mask.joined) == 1 else (None,)
    if joined is None or joined.rank != 2 or joined.axes.keys() != {-2, -1}:
        raise Unmigrated("a mask of several comparisons, or of other axes than partitions and the last one")
    row = c.fresh("row")
    rows, columns = joined.axes[-2], joined.axes[-1]
    rest = joined.base + rows.step * Linear.of(row)
    step = columns.step.constant
    if not step:
        raise Unmigrated("the mask has a step that is no number")
    size, limit = str(columns.size), rest if abs(step) == 1 else Linear.of(f"({rest}) // {abs(step)}")
    if step < 0:
        name = c.fresh("f_size")
        bound, holds = f"{name} = min({size}, {limit + Linear.number(1)})", f"{name} > 0"
        cut = Cut("0", name)
    else:
        name = c.fresh("f_first")
        bound, holds = f"{name} = max(0, {-limit})", f"{name} < {size}"
        cut = Cut(name, size)
    inner = statement({0: Cut(row, f"{row} + 1"), -1: cut})
    indent = c.module.default_indent
    lines = [bound, f"if {holds}:", *(f"{indent}{line}" for line in inner.splitlines())]
    span = mask.axes.get(0, Cut("0", str(rows.size)))
    steps = span.high if span.low == "0" else f"{span.low}, {span.high}"
    body = "\n".join(f"{indent}{line}" for line in lines)
    return f"for {row} in range({steps}):\n{body}"


def predicated(c: Context, mask: Bounds, dst: str, source: str, shape: tuple[int, ...]) -> str:
    """The statement that copies a tile to where a mask of several axes is true."""
    if mask.axes:
        raise Unmigrated("a mask of several axes, and of one")
    chosen = predicate(c, mask.joined, shape)
    return f"{c.nisa('tensor_copy_predicated')}(dst={dst}, src={source}, predicate={chosen})"


def predicate(c: Context, conditions: list[Symbolic], shape: tuple[int, ...]) -> str:
    """A tile that is 1 where all expressions are at least 0."""
    found = ""
    sizes = ", ".join(str(size) for size in shape)
    for each in conditions:
        position = c.fresh("position")
        c.emit(f"{position} = {c.nl('ndarray')}(({sizes}), dtype={c.nl('int32')}, buffer={c.nl('sbuf')})")
        c.emit(f"{c.nisa('iota')}(dst={position}, {', '.join(pattern_of(each))})")
        text = f"{c.nl('greater_equal')}({position}, 0, dtype={c.nl('uint8')})"
        found = f"{c.nl('logical_and')}({found}, {text})" if found else text
    return found
