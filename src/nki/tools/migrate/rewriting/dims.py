"""Subscripts, dimension by dimension: what each is along the axes of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from nki.tools.migrate.facts import Fact
from nki.tools.migrate.index_expressions import Symbolic
from nki.tools.migrate.linear import Linear
from nki.tools.migrate.problems import NoBox, Unmigrated
from nki.tools.migrate.rewriting.context import Context


@dataclass
class Dim:
    """One dimension of a subscript, in today's words.

    Attributes:
        axis: of the result; None if an int drops the dimension.
        text: the start.
        size: how many; "" for all.
        step: of a slice with steps.
        raw: a slice as it stood.
    """

    axis: int | None
    text: str = "0"
    size: str = ""
    step: str = ""
    raw: str = ""


def read_dims(c: Context, node: cst.Subscript) -> list[Dim]:
    """What each dimension of a subscript is. Raises NoBox for what is no box of slices."""
    base, fact = c.facts.known(node.value), c.facts.known(node)
    elements = [each.slice for each in node.slice]
    nodes = [each.value for each in elements if isinstance(each, cst.Index)]
    kinds = [c.facts.kind(each) for each in nodes]
    if len(elements) == 1 and kinds == ["grid"]:
        return _along_axes(grid_of(c, nodes[0]), base, fact)
    if "runtime" in kinds or "tensor" in kinds:
        raise Unmigrated("an index of run time")
    if any(isinstance(each, cst.Name) and each.value == "None" for each in nodes):
        raise Unmigrated("None in an index of a tensor")
    if "index" not in kinds:
        return _basic(c, elements, base, fact)
    if len(nodes) != len(elements):
        raise Unmigrated("slices and index expressions in one subscript")
    return _along_axes([_symbolic(c, each) for each in nodes], base, fact)


def grid_of(c: Context, node: cst.BaseExpression) -> list[Symbolic]:
    """The index expressions of a grid."""
    grid = c.indices.grid(node)
    if grid is None:
        raise Unmigrated("the grid of indices is no nl.mgrid of plain ranges")
    return grid


def _symbolic(c: Context, node: cst.BaseExpression) -> Symbolic:
    symbolic = c.indices.read(node)
    if symbolic is None:
        raise Unmigrated(f"the index {c.one_line(node)} is no sum of multiples of nl.arange")
    return symbolic


def _basic(c: Context, elements: Sequence[cst.BaseSlice], base: Fact, fact: Fact) -> list[Dim]:
    """Slices and numbers. A number keeps its dimension on the chip, where the result has an axis for it."""
    given = _filled(elements, len(base.shape))
    found: list[Dim] = []
    axis = 0
    keep = len(fact.shape) - sum(_is_slice(c, each) for each in given)
    for dim, each in enumerate(given):
        if _is_slice(c, each):
            found.append(_slice(c, each, axis))
            axis += 1
            continue
        assert isinstance(each, cst.Index), "what is no slice"
        if dim >= base.blocks and keep > 0 and base.buffer in ("sbuf", "psum"):
            found.append(Dim(axis, c.code(each.value), "1"))
            axis, keep = axis + 1, keep - 1
        else:
            found.append(Dim(None, c.code(each.value)))
    return found


def _filled(elements: Sequence[cst.BaseSlice], count: int) -> list[cst.BaseSlice]:
    """The elements with a slice for each dimension that ``...`` or nothing stands for."""
    whole = cst.Slice(None, None)
    given = list(elements)
    for at, each in enumerate(given):
        if isinstance(each, cst.Index) and isinstance(each.value, cst.Ellipsis):
            given[at : at + 1] = [whole] * (count - len(given) + 1)
            break
    return given + [whole] * (count - len(given))


def _is_slice(c: Context, each: cst.BaseSlice) -> bool:
    if isinstance(each, cst.Slice):
        return True
    assert isinstance(each, cst.Index), "the other element of a subscript"
    return c.facts.kind(each.value) == "slice"


def _slice(c: Context, each: cst.BaseSlice, axis: int) -> Dim:
    if isinstance(each, cst.Index):
        text = c.code(each.value)
        if isinstance(each.value, cst.Name):
            start, size = c.slices.get(text, (f"{text}.start", f"{text}.size"))
            return Dim(axis, start, size, raw=text)
        if not isinstance(each.value, cst.Call) or len(each.value.args) != 2:
            raise Unmigrated("a slice that is neither written here nor has a name")
        start, size = (c.code(arg.value) for arg in each.value.args)
        return Dim(axis, start, size, raw=text)
    assert isinstance(each, cst.Slice), "the other one that is a slice"
    low = c.code(each.lower) if each.lower is not None else "0"
    step = c.code(each.step) if each.step is not None else ""
    if each.upper is None:
        return Dim(axis, low, "", step, raw=c.one_line(each))
    size = str(Linear.of(c.code(each.upper)) - Linear.of(low))
    return Dim(axis, low, size, step, raw=c.one_line(each))


def _along_axes(found: list[Symbolic], base: Fact, fact: Fact) -> list[Dim]:
    """Index expressions, each along one axis of the result, in its order."""
    rank = max(each.rank for each in found)
    dims = [_along_one(each, rank) for each in found]
    if len(fact.shape) == rank:
        _fill_axes(dims, rank, base.blocks)
    order = [dim.axis for dim in dims if dim.axis is not None]
    if order != sorted(order) or len(set(order)) != len(order):
        raise NoBox("the index permutes or repeats axes")
    if len(order) != len(fact.shape) and not (len(order) == 1 and len(fact.shape) == 2):
        raise NoBox("the index has more axes than dimensions")
    return dims + [Dim(len(order) + at, raw=":") for at in range(len(base.shape) - len(dims))]


def _along_one(index: Symbolic, rank: int) -> Dim:
    axes = {axis: extent for axis, extent in index.axes.items() if extent.step.terms}
    if len(axes) > 1:
        raise NoBox("one dimension is indexed along several axes")
    if not axes:
        return Dim(None, index.text)
    ((axis, extent),) = axes.items()
    step = extent.step.constant
    if step is not None and step < 1:
        raise NoBox("an index with a negative step")
    return Dim(axis + rank, index.text, str(extent.size), "" if step == 1 else str(extent.step))


def _fill_axes(dims: list[Dim], rank: int, blocks: int) -> None:
    """Axes of size 1 that no index has are those of numbers, which then keep their dimension."""
    for axis in sorted(set(range(rank)) - {dim.axis for dim in dims}):
        for at, dim in enumerate(dims):
            if at < blocks or dim.axis is not None:
                continue
            left = [each.axis for each in dims[:at] if each.axis is not None]
            right = [each.axis for each in dims[at + 1 :] if each.axis is not None]
            if all(each < axis for each in left) and all(each > axis for each in right):
                dim.axis, dim.size = axis, "1"
                break
