"""Accesses that are no boxes of slices: rows that are chosen at run time, and patterns of strides."""

from __future__ import annotations

from math import prod

import libcst as cst

from nki.tools.migrate.facts import Fact
from nki.tools.migrate.index_expressions import ONE, Symbolic, plain
from nki.tools.migrate.linear import Linear
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.dims import Dim
from nki.tools.migrate.rewriting.regions import Cuts, extents, extents_of_part, meet
from nki.tools.migrate.rewriting.slices import slice_of, subscript


def chosen_rows(c: Context, node: cst.Subscript, cuts: Cuts, row: str = "") -> str:
    """Rows of a tensor in HBM that a tile chooses at run time.

    Args:
        row: the name of a variable, for the one row that the element of that number chooses.
    """
    fact, base = c.facts.known(node), c.facts.known(node.value)
    first, *rest = [each.slice for each in node.slice]
    assert isinstance(first, cst.Index), "a tile"
    index = c.facts.one(first.value)
    if base.buffer in ("sbuf", "psum") or index is None or index.shape[1:] != (1,) or cuts:
        raise Unmigrated("an index of run time")
    rows = c.code(first.value)
    if row and not isinstance(first.value, cst.Name):
        raise Unmigrated("the rows are chosen by a part of a tile")
    rows = f"{rows}[{row}:{row} + 1, 0:1]" if row else rows
    text = f"{c.code(node.value)}.vector_select(0, {rows})"
    parts = [_beside(c, each, at, fact, base) for at, each in enumerate(rest, 1)]
    return subscript(text, [":", *parts])


def _beside(c: Context, each: cst.BaseSlice, at: int, fact: Fact, base: Fact) -> str:
    """A dimension beside the one that is chosen at run time."""
    if isinstance(each, cst.Slice):
        return c.one_line(each)
    assert isinstance(each, cst.Index), "the other element of a subscript"
    if c.facts.kind(each.value) == "tensor":
        raise Unmigrated("several indices of run time")
    found = c.indices.read(each.value)
    if found is None or len(found.axes) > 1 or any(extent.step.constant != 1 for extent in found.axes.values()):
        raise Unmigrated("an index of run time")
    if not found.axes:
        return found.text
    ((_, extent),) = found.axes.items()
    if found.text == "0" and extent.size.constant == base.shape[at]:
        return ":"
    return slice_of(c, Dim(at, found.text, str(extent.size)), fact, {})


def moved_view(c: Context, node: cst.Subscript, cuts: Cuts) -> str:
    """An access that one number, which a tile holds at run time, moves along a dimension."""
    fact, base = c.facts.known(node), c.facts.known(node.value)
    nodes = [each.slice.value for each in node.slice if isinstance(each.slice, cst.Index)]
    parts = [_run_time_part(c, each) for each in nodes]
    moved = [at for at, (number, _) in enumerate(parts) if number is not None]
    if not base.whole or base.blocks or cuts or len(parts) != len(base.shape) or len(moved) != 1:
        raise Unmigrated("an index of run time")
    inner = [symbolic for _, symbolic in parts if symbolic is not None]
    if len(inner) != len(parts) or max(each.rank for each in inner) != len(fact.shape):
        raise Unmigrated("an index of run time")
    number = parts[moved[0]][0]
    assert number is not None, "it moves"
    where = f"scalar_offset={_element(c, number)}, indirect_dim={moved[0]}"
    return (
        f"{c.code(node.value)}.ap({_strides(inner, strides_of(_sizes(c, node.value, base)), fact.shape, {})}, {where})"
    )


def _run_time_part(c: Context, node: cst.BaseExpression) -> tuple[cst.BaseExpression | None, Symbolic | None]:
    """The tile that an index adds at run time, and the rest of the index."""
    if c.facts.kind(node) == "tensor":
        return node, plain("0")
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if c.facts.kind(one) == "tensor":
                return one, c.indices.read(other)
    if c.facts.kind(node) == "runtime":
        raise Unmigrated("an index of run time")
    return None, c.indices.read(node)


def _element(c: Context, node: cst.BaseExpression) -> str:
    """One element of a tile, as a tile."""
    if prod(c.facts.known(node).shape) != 1:
        raise Unmigrated("an index of run time")
    if not isinstance(node, cst.Subscript):
        return c.code(node)
    parts = []
    for each in node.slice:
        if not isinstance(each.slice, cst.Index) or c.indices.read(each.slice.value) is None:
            raise Unmigrated("an index of run time")
        text = c.code(each.slice.value)
        parts.append(f"{text}:{Linear.of(text) + ONE}")
    return f"{c.code(node.value)}[{', '.join(parts)}]"


def pattern_view(c: Context, node: cst.Subscript, cuts: Cuts) -> str:
    """An access along several axes at once, as a pattern of strides."""
    fact, base = c.facts.known(node), c.facts.known(node.value)
    nodes = [each.slice.value for each in node.slice if isinstance(each.slice, cst.Index)]
    found = [c.indices.read(each) for each in nodes]
    if not base.whole or len(found) != len(base.shape) or any(extents(c, node.value).keys() - {0}):
        raise Unmigrated("one dimension is indexed along several axes, of a part of a tensor")
    text = c.code(node.value)
    for symbolic in found[: base.blocks]:
        if symbolic is None or symbolic.axes:
            raise Unmigrated("an access spans several blocks, which are tiles of their own now")
        text += f"[{symbolic.text}]"
    inner = [each for each in found[base.blocks :] if each is not None]
    if max(each.rank for each in inner) != len(fact.shape):
        raise Unmigrated("the index has other axes than its tile")
    strides = strides_of(_sizes(c, node.value, base))
    return f"{text}.ap({_strides(inner, strides, fact.shape, meet(c, cuts, extents_of_part(c, node)))})"


def strides_of(sizes: list[Linear]) -> list[Linear]:
    """The strides of a tensor that is whole."""
    strides = [ONE]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    return strides


def _sizes(c: Context, node: cst.BaseExpression, base: Fact) -> list[Linear]:
    """The sizes of a tensor: as they were written where it was made, else what it says; numbers if it has no name."""
    if not isinstance(node, cst.Name) or base.blocks:
        return [Linear.number(size) for size in base.shape[base.blocks :]]
    written = c.shapes.get(node.value, [])
    texts = [f"{node.value}.shape[{at}]" for at in range(len(base.shape))]
    return [Linear.of(text) for text in (written if len(written) == len(texts) else texts)]


def _strides(indices: list[Symbolic], strides: list[Linear], shape: tuple[int, ...], cuts: Cuts) -> str:
    """The pattern of an access, for the strides of the dimensions that are indexed."""
    rank = len(shape)
    steps = [Linear()] * rank
    counts = [Linear.number(size) for size in shape]
    offset = Linear()
    for symbolic, stride in zip(indices, strides, strict=True):
        offset = offset + symbolic.base * stride
        for axis, extent in symbolic.axes.items():
            steps[axis + rank] = steps[axis + rank] + extent.step * stride
            counts[axis + rank] = extent.size
    for key, cut in cuts.items():
        axis = 0 if key == 0 else key + rank
        counts[axis] = Linear.of(cut.size)
        offset = offset + Linear.of(cut.low) * steps[axis]
    pattern = ", ".join(f"[{step}, {count}]" for step, count in zip(steps, counts, strict=True))
    return f"[{pattern}], offset={offset}" if offset.terms else f"[{pattern}]"


def pattern_of(found: Symbolic) -> list[str]:
    """The arguments of an instruction that computes an index expression."""
    parts = [found.axes.get(axis) for axis in range(-found.rank + 1, 0)]
    pattern = ", ".join("[0, 1]" if part is None else f"[{part.step}, {part.size}]" for part in parts)
    partition = found.axes.get(-found.rank)
    texts = [f"pattern=[{pattern or '[0, 1]'}]"]
    if str(found.base) != "0":
        texts.append(f"offset={found.base}")
    return [*texts, f"channel_multiplier={partition.step if partition is not None else 0}"]
