"""``nl.load`` into a tile, ``nl.store``, and what else is a statement by itself."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

import nki.beta1.isa as old_isa
import nki.beta1.language as old_language
from nki.tools.migrate.masks import Bounds
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.arguments import bound
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.instructions import GIVEN, instruction
from nki.tools.migrate.rewriting.joined import by_rows
from nki.tools.migrate.rewriting.operators import operator
from nki.tools.migrate.rewriting.regions import Cuts, joint
from nki.tools.migrate.rewriting.tiles import subscripted, tile
from nki.tools.migrate.rewriting.views import chosen_rows


def load_into(c: Context, target: cst.Subscript, call: cst.Call) -> list[str]:
    """``tile[...] = nl.load(x)`` as a copy to the tile."""
    given = bound(c, call, old_language.load)
    place, own = c.facts.known(target), c.facts.known(call)
    if "dtype" in given and not c.facts.same_dtype(call, target):
        raise Unmigrated(f"nl.load rounds to {own.dtype} first, and the tile is {place.dtype}")
    mask = c.masks.read(given.get("mask"))
    dst, src = tile(c, target, mask.axes), tile(c, given["src"], mask.axes)
    more = f", oob_mode={c.code(given['mode'])}" if "mode" in given else ""
    return [f"{c.nisa('dma_copy')}(dst={dst}, src={src}{more})"]


def loop_reduce_into(c: Context, target: cst.Subscript, call: cst.Call) -> list[str]:
    """``tile[...] = nl.loop_reduce(x, ...)`` as an operation in each trip of the loop."""
    given = bound(c, call, old_language.loop_reduce)
    mask = c.masks.read(given.get("mask"))
    dst = tile(c, target, mask.axes)
    source = tile(c, next(iter(given.values())), mask.axes)
    op = operator(c, given["op"])
    return [f"{c.nisa('tensor_tensor')}(dst={dst}, data1={dst}, data2={source}, op={op})"]


def _copy(c: Context, call: cst.Call) -> list[str]:
    """``nisa.dma_copy``; what adds to its destination is another instruction today."""
    given = bound(c, call, old_isa.dma_copy)
    if "dst_rmw_op" not in given or c.one_line(given["dst_rmw_op"]) == "None":
        instruction(c, call)
        return c.taken()
    if "oob_mode" in given:
        raise Unmigrated("nisa.dma_copy with dst_rmw_op and oob_mode")
    mask = c.masks.read(given.get("mask"))
    dst, src = tile(c, given["dst"], mask.axes), tile(c, given["src"], mask.axes)
    return [_added(c, dst, src, given["dst_rmw_op"])]


def _atomic_rmw(c: Context, call: cst.Call) -> list[str]:
    """``nl.atomic_rmw`` as a loop over rows, so that rows which occur twice get both values."""
    given = bound(c, call, old_language.atomic_rmw)
    dst, value = given["dst"], given["value"]
    if "mask" in given or not isinstance(dst, cst.Subscript) or not isinstance(value, cst.Name):
        raise Unmigrated("nl.atomic_rmw with a mask, or of a part of a tile")
    row, place, held, more = (c.fresh(name) for name in ("row", "place", "held", "more"))
    lines = [
        f"{place} = {chosen_rows(c, dst, {}, row)}",
        f"{held} = {c.nl('load')}({place})",
        f"{more} = {c.nl('ndarray')}({held}.shape, dtype={value.value}.dtype, buffer={c.nl('sbuf')})",
        f"{c.nisa('dma_copy')}(dst={more}, src={value.value}[{row}:{row} + 1])",
        f"{c.nisa('tensor_tensor')}(dst={held}, data1={held}, data2={more}, op={operator(c, given['op'])})",
        f"{c.nl('store')}({place}, {held})",
    ]
    inner = "\n".join(f"{c.module.default_indent}{line}" for line in lines)
    return [f"for {row} in range({value.value}.shape[0]):\n{inner}"]


def _added(c: Context, dst: str, src: str, op: cst.BaseExpression) -> str:
    return f"{c.nisa('dma_compute')}(dst={dst}, srcs=[{dst}, {src}], reduce_op={operator(c, op)})"


def call_statement(c: Context, call: cst.Call) -> list[str] | None:
    """The statements for a call whose value nobody reads; None where only its expressions change."""
    function = c.names.canonical(call.func)
    if function in _STATEMENTS:
        return _STATEMENTS[function](c, call)
    if function.startswith("nisa.") and function[5:] in GIVEN:
        instruction(c, call)
        return c.taken()
    return None


def _store(c: Context, call: cst.Call) -> list[str]:
    given = bound(c, call, old_language.store)
    mask = c.masks.read(given.get("mask"), joined=True)
    value = given["value"]
    if mask.joined:
        if "mode" in given:
            raise Unmigrated("nl.store with a mode and a mask of several axes")
        text = _stored_by_rows(c, call, given["dst"], value, mask)
        return [*c.taken(), text]
    cuts = joint(c, [value], mask)
    dst = tile(c, given["dst"], cuts)
    fact = c.facts.one(value)
    if fact is None or fact.kind != "tensor":
        return [f"{subscripted(dst)} = {c.code(value)}"]
    source = tile(c, value, cuts)
    if "mode" in given:
        mode = c.code(given["mode"])
        return [f"{c.nisa('dma_copy')}(dst={dst}, src={source}, oob_mode={mode})"]
    return [f"{c.code(call.func)}({dst}, {source})"]


def _stored_by_rows(
    c: Context, call: cst.Call, dst: cst.BaseExpression, value: cst.BaseExpression, mask: Bounds
) -> str:
    """``nl.store`` with a mask of several axes."""
    store, made = c.code(call.func), ""
    if not isinstance(value, cst.Name | cst.Subscript):
        made, text = c.fresh("tile"), c.code(value)
        c.emit(f"{made} = {text}")

    def stored(cuts: Cuts) -> str:
        row, columns = cuts[0], cuts[-1]
        part = f"{made}[{row.low}:{row.high}, {columns.low}:{columns.high}]" if made else tile(c, value, cuts)
        return f"{store}({tile(c, dst, cuts)}, {part})"

    return by_rows(c, mask, stored)


_STATEMENTS: dict[str, Callable[[Context, cst.Call], list[str]]] = {
    "nl.store": _store,
    "nl.atomic_rmw": _atomic_rmw,
    "nisa.dma_copy": _copy,
}
