"""Assignments: to names, to tuples of names, and to parts of tiles."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from nki.tools.migrate.masks import Bounds
from nki.tools.migrate.nodes import all_of
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.all_reduce import all_reduce_to
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.creation import CREATIONS, creation
from nki.tools.migrate.rewriting.dims import grid_of
from nki.tools.migrate.rewriting.direct import direct
from nki.tools.migrate.rewriting.instructions import instruction, instruction_into
from nki.tools.migrate.rewriting.joined import predicated
from nki.tools.migrate.rewriting.regions import bounds, extents
from nki.tools.migrate.rewriting.results import dtype_of_result
from nki.tools.migrate.rewriting.tiles import subscripted, tile
from nki.tools.migrate.rewriting.transfers import load_into, loop_reduce_into


def assign(c: Context, target: cst.BaseAssignTargetExpression, value: cst.BaseExpression) -> list[str] | None:
    """The statements for an assignment; None where only its expressions change."""
    if isinstance(target, cst.Tuple):
        return _to_tuple(c, target, value)
    if isinstance(target, cst.Name):
        return _to_name(c, target.value, value)
    if isinstance(target, cst.Subscript) and c.facts.kind(target) == "tensor":
        return _to_part(c, target, value)
    return None


def _to_tuple(c: Context, target: cst.Tuple, value: cst.BaseExpression) -> list[str] | None:
    grid = c.indices.grid(value)
    names = [each.value.value for each in target.elements if isinstance(each.value, cst.Name)]
    for name in names:
        c.forget(name)
    if grid is None or len(names) != len(grid):
        return None
    c.indices.known |= dict(zip(names, grid, strict=True))
    return []


def _to_name(c: Context, name: str, value: cst.BaseExpression) -> list[str] | None:
    kind = c.facts.kind(value)
    if kind in _REMEMBERED:
        _REMEMBERED[kind](c, name, value)
        return []
    if kind != "tensor":
        _rebound(c, name)
        if kind == "slice" and isinstance(value, cst.Call) and len(value.args) == 2:
            c.slices[name] = (c.code(value.args[0].value), c.code(value.args[1].value))
        return _mask_or_none(c, name, value)
    if any(read.value == name for read in all_of(value, cst.Name)):
        return _to_its_own_name(c, name, value)
    _rebound(c, name)
    function = c.names.canonical(value.func) if isinstance(value, cst.Call) else ""
    if isinstance(value, cst.Call) and function in CREATIONS:
        text = creation(c, value, name)
        return [f"{name} = {text}"] if text is not None else None
    if isinstance(value, cst.Call) and function.startswith("nisa."):
        instruction(c, value, name)
        return c.taken()
    if isinstance(value, cst.Call) and function == "nl.all_reduce":
        return all_reduce_to(c, name, value)
    left = extents(c, value)
    text = tile(c, value, {})
    if left:
        c.extents[name] = left
    return [f"{name} = {text}"]


def _mask_or_none(c: Context, name: str, value: cst.BaseExpression) -> list[str] | None:
    """``mask = condition if causal else None`` ends with True, as it becomes the condition of an ``if``."""
    if name not in c.only_masks or not isinstance(value, cst.IfExp):
        return None
    branches = [c.code(each) for each in (value.body, value.orelse)]
    if "None" not in branches:
        return None
    c.conditions.add(name)
    body, other = ("True" if each == "None" else each for each in branches)
    return [f"{name} = {body} if {c.code(value.test)} else {other}"]


def _to_its_own_name(c: Context, name: str, value: cst.BaseExpression) -> list[str]:
    """A value that is computed of what the name stood for before, which keeps the name until then."""
    left = extents(c, value)
    text = tile(c, value, {})
    left = c.extents.get(text, left)
    _rebound(c, name)
    if left:
        c.extents[name] = left
    before = c.taken()
    return [*before, f"{name} = {text}"] if text != name or not before else before


def _rebound(c: Context, name: str) -> None:
    """A name stands for something else from here on."""
    c.forget(name)
    for known in (c.extents, c.shapes, c.indices.known, c.indices.grids, c.masks.known):
        known.pop(name, None)


def _remember_grid(c: Context, name: str, value: cst.BaseExpression) -> None:
    grid = grid_of(c, value)
    _rebound(c, name)
    c.indices.grids[name] = grid


def _remember_index(c: Context, name: str, value: cst.BaseExpression) -> None:
    found = c.indices.read(value)
    if found is None:
        raise Unmigrated("the index expression is no sum of multiples of nl.arange")
    _rebound(c, name)
    c.indices.known[name] = found


def _remember_mask(c: Context, name: str, value: cst.BaseExpression) -> None:
    """A mask is read where it is used; what it says of the name itself is what that was before."""
    before = c.masks.known.get(name)
    for read in all_of(value, cst.Name) if before is not None else []:
        if read.value == name:
            value = value.deep_replace(read, before)  # type: ignore[arg-type]
    _rebound(c, name)
    c.masks.known[name] = value


_REMEMBERED: dict[str, Callable[[Context, str, cst.BaseExpression], None]] = {
    "grid": _remember_grid,
    "index": _remember_index,
    "mask": _remember_mask,
}
"""Kinds of values that are written where they are used."""


def _to_part(c: Context, target: cst.Subscript, value: cst.BaseExpression) -> list[str] | None:
    function = c.names.canonical(value.func) if isinstance(value, cst.Call) else ""
    if isinstance(value, cst.Call) and function.startswith("nisa."):
        instruction_into(c, value, target)
        return c.taken()
    if isinstance(value, cst.Call) and function in _INTO:
        return _INTO[function](c, target, value)
    mask = bounds(c, value, joined=True)
    if mask.joined:
        return _predicated(c, target, value, mask)
    return direct(c, target, value) or _copied(c, target, value)


_INTO: dict[str, Callable[[Context, cst.Subscript, cst.Call], list[str]]] = {
    "nl.load": load_into,
    "nl.loop_reduce": loop_reduce_into,
}


def _predicated(c: Context, target: cst.Subscript, value: cst.BaseExpression, mask: Bounds) -> list[str]:
    """A value that is copied to where a mask of several axes is true."""
    place, own = c.facts.known(target), c.facts.one(value)
    if own is None or own.kind != "tensor" or own.shape != place.shape:
        raise Unmigrated("a mask of several axes, of a value that is no tile of that shape")
    source = tile(c, value, {})
    if own.dtype != place.dtype:
        source = f"{c.nl('copy')}({source}, dtype={c.nl(place.dtype)})"
    return [predicated(c, mask, tile(c, target, {}), source, place.shape)]


def _number(c: Context, target: cst.Subscript, dst: str, value: str) -> list[str]:
    """A number that is written to a part of a tile; one in a row that no instruction can begin at is copied there."""
    place = c.facts.known(target)
    row = dst.rpartition("[")[2].partition(":")[0]
    anywhere = place.buffer == "sbuf" and place.shape[0] == 1 and not (row.isdecimal() and int(row) % 32 == 0)
    if not anywhere or not dst.endswith("]"):
        return [f"{subscripted(dst)} = {value}"]
    made = c.fresh("number")
    shape = ", ".join(str(size) for size in place.shape)
    dtype = dtype_of_result(c, {"dst": target}, place)
    c.emit(f"{made} = {c.nl('full')}(({shape}), {value}, dtype={dtype}, buffer={c.nl('sbuf')})")
    return [*c.taken(), f"{c.nisa('dma_copy')}(dst={dst}, src={made})"]


def _copied(c: Context, target: cst.Subscript, value: cst.BaseExpression) -> list[str]:
    """What is assigned is computed somewhere else, and copied."""
    mask = bounds(c, value)
    dst = tile(c, target, mask.axes)
    if c.facts.kind(value) != "tensor":
        return _number(c, target, dst, c.code(value))
    source = tile(c, value, mask.axes)
    if isinstance(value, cst.Name | cst.Subscript):
        return [f"{c.nisa('tensor_copy')}(dst={dst}, src={source})"]
    return [f"{subscripted(dst)} = {source}"]
