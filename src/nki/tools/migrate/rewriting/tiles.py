"""Tiles as operands of today's language: names, subscripts with slices, and what masks left of them."""

from __future__ import annotations

from math import prod

import libcst as cst

from nki.tools.migrate.facts import Fact
from nki.tools.migrate.problems import NoBox, Unmigrated
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.dims import Dim, read_dims
from nki.tools.migrate.rewriting.regions import Cuts, extents, extents_of_part, meet
from nki.tools.migrate.rewriting.slices import slice_of, subscript
from nki.tools.migrate.rewriting.views import chosen_rows, moved_view, pattern_view


def operand(c: Context, node: cst.BaseExpression, cuts: Cuts) -> str:
    """An operand that may be a tile or a number."""
    return tile(c, node, cuts) if c.facts.kind(node) == "tensor" else c.code(node)


def two_operands(c: Context, left: cst.BaseExpression, right: cst.BaseExpression, cuts: Cuts) -> tuple[str, str]:
    """Two operands of one instruction, which reads one of them from PSUM at most."""
    one, other = operand(c, left, cuts), operand(c, right, cuts)
    facts = [c.facts.one(node) for node in (left, right)]
    if all(fact is not None and fact.buffer == "psum" for fact in facts):
        other = f"{c.nl('copy')}({other})"
    return one, other


def tile(c: Context, node: cst.BaseExpression, cuts: Cuts) -> str:
    """A tile as an operand, of which only a part is taken."""
    if isinstance(node, cst.Subscript) and c.facts.kind(node.value) == "tensor":
        return part(c, node, cuts)
    text = c.code(node)
    fact = c.facts.one(node)
    if fact is None or (isinstance(node, cst.Call) and c.names.canonical(node.func).startswith("nisa.")):
        return text
    left = extents(c, node)
    return _sliced(text, fact, {key: cut for key, cut in cuts.items() if left.get(key) != cut})


def _sliced(text: str, fact: Fact, cuts: Cuts) -> str:
    rank = len(fact.shape)
    parts = [":"] * rank
    for key, cut in cuts.items():
        at = 0 if key == 0 else rank + key
        if (at > 0 or key == 0) and fact.shape[at] != 1:
            parts[at] = f"{cut.low}:{cut.high}"
    return subscript(text, parts)


def part(c: Context, node: cst.Subscript, cuts: Cuts) -> str:
    """A subscript with slices."""
    first = node.slice[0].slice
    if isinstance(first, cst.Index):
        kind = c.facts.kind(first.value)
        if len(node.slice) == 1 and kind == "mask":
            return tile(c, node.value, {**cuts, **c.masks.read(first.value).axes})
        if len(node.slice) == 1 and isinstance(first.value, cst.Ellipsis):
            return tile(c, node.value, cuts)
        if kind == "tensor" and prod(c.facts.known(first.value).shape) > 1:
            return chosen_rows(c, node, cuts)
    if any(isinstance(each.slice, cst.Index) and _is_run_time(c, each.slice.value) for each in node.slice):
        return moved_view(c, node, cuts)
    try:
        dims = read_dims(c, node)
    except NoBox:
        return pattern_view(c, node, cuts)
    return _box(c, node, dims, meet(c, cuts, extents_of_part(c, node)))


def _is_run_time(c: Context, node: cst.BaseExpression) -> bool:
    return c.facts.kind(node) in ("tensor", "runtime")


def _box(c: Context, node: cst.Subscript, dims: list[Dim], cuts: Cuts) -> str:
    """A subscript of slices and numbers."""
    fact, base = c.facts.known(node), c.facts.known(node.value)
    text = c.code(node.value)
    blocks, rest = dims[: base.blocks], dims[base.blocks :]
    if fact.blocks and all(dim.raw == ":" for dim in dims[-len(fact.shape) :]):
        blocks, rest = dims[: base.blocks - fact.blocks], []
    for dim in blocks:
        if dim.axis is not None:
            raise Unmigrated("an access spans several blocks, which are tiles of their own now")
        text += f"[{dim.text}]"
    parts = [slice_of(c, dim, fact, cuts) for dim in rest]
    if base.buffer in ("sbuf", "psum") and len(rest) == len(base.shape) - base.blocks:
        sizes = c.shapes.get(node.value.value, []) if isinstance(node.value, cst.Name) else []
        whole = [part == ":" or (at < len(sizes) and part == f"0:{sizes[at]}") for at, part in enumerate(parts)]
        parts = [":" if is_whole else part for is_whole, part in zip(whole, parts, strict=True)]
        if all(whole) or (len(sizes) == len(parts) and not cuts and _is_all(rest, fact, base)):
            return text
    return subscript(text, parts, keep=1)


def _is_all(dims: list[Dim], fact: Fact, base: Fact) -> bool:
    """Whether index expressions name all of a tile."""
    starts = all(dim.text == "0" and not dim.raw and not dim.step for dim in dims)
    return starts and fact.shape == base.shape[base.blocks :]


def sizes_of_tile(c: Context, node: cst.BaseExpression) -> list[str]:
    """The sizes of a tile, in the user's names where that is possible."""
    fact = c.facts.known(node)
    if isinstance(node, cst.Name):
        return [f"{node.value}.shape[{at}]" for at in range(len(fact.shape))]
    if isinstance(node, cst.Subscript):
        base = c.facts.known(node.value)
        dims = _dims_of_box(c, node)
        whole = _sizes_of_whole(c, node.value, dims, base)
        by_axis = {
            dim.axis: dim.size or whole[at - base.blocks]
            for at, dim in enumerate(dims)
            if dim.axis is not None and at >= base.blocks
        }
        if len(by_axis) == len(fact.shape) and all(by_axis.values()):
            return [by_axis[axis] for axis in range(len(fact.shape))]
    return [str(size) for size in fact.shape]


def _sizes_of_whole(c: Context, node: cst.BaseExpression, dims: list[Dim], base: Fact) -> list[str]:
    """The sizes of a tensor, or of a block of it, as texts; "" where they have none."""
    rank = len(base.shape) - base.blocks
    if not isinstance(node, cst.Name):
        return [""] * rank
    known = c.shapes.get(node.value, [])
    owner = node.value + "".join(f"[{dim.text}]" for dim in dims[: base.blocks])
    return known if len(known) == rank else [f"{owner}.shape[{at}]" for at in range(rank)]


def _dims_of_box(c: Context, node: cst.Subscript) -> list[Dim]:
    """The dimensions of a box; none of what is no box."""
    try:
        return read_dims(c, node)
    except Unmigrated:
        return []


def subscripted(text: str) -> str:
    """A tile as the target of an assignment."""
    return text if text.endswith("]") else f"{text}[...]"
