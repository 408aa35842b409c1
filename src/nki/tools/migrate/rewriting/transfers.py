"""``nl.load`` into a tile, ``nl.store``, and what else is a statement by itself."""

from __future__ import annotations

import libcst as cst

import nki.beta1.language as old_language
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.arguments import bound
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.instructions import GIVEN, instruction
from nki.tools.migrate.rewriting.operators import operator
from nki.tools.migrate.rewriting.regions import guarded, joint
from nki.tools.migrate.rewriting.tiles import subscripted, tile


def load_into(c: Context, target: cst.Subscript, call: cst.Call) -> list[str]:
    """``tile[...] = nl.load(x)`` as a copy to the tile."""
    given = bound(c, call, old_language.load)
    place, own = c.facts.known(target), c.facts.known(call)
    if "dtype" in given and own.dtype != place.dtype:
        raise Unmigrated(f"nl.load rounds to {own.dtype} first, and the tile is {place.dtype}")
    mask = c.masks.read(given.get("mask"))
    dst, src = tile(c, target, mask.axes), tile(c, given["src"], mask.axes)
    more = f", oob_mode={c.code(given['mode'])}" if "mode" in given else ""
    return guarded(c, mask, [f"{c.nisa('dma_copy')}(dst={dst}, src={src}{more})"])


def loop_reduce_into(c: Context, target: cst.Subscript, call: cst.Call) -> list[str]:
    """``tile[...] = nl.loop_reduce(x, ...)`` as an operation in each trip of the loop."""
    given = bound(c, call, old_language.loop_reduce)
    mask = c.masks.read(given.get("mask"))
    dst = tile(c, target, mask.axes)
    source = tile(c, next(iter(given.values())), mask.axes)
    op = operator(c, given["op"])
    return guarded(c, mask, [f"{c.nisa('tensor_tensor')}(dst={dst}, data1={dst}, data2={source}, op={op})"])


def call_statement(c: Context, call: cst.Call) -> list[str] | None:
    """The statements for a call whose value nobody reads; None where only its expressions change."""
    function = c.names.canonical(call.func)
    if function == "nl.store":
        return _store(c, call)
    if function.startswith("nisa.") and function[5:] in GIVEN:
        instruction(c, call)
        return c.taken()
    return None


def _store(c: Context, call: cst.Call) -> list[str]:
    given = bound(c, call, old_language.store)
    mask = c.masks.read(given.get("mask"))
    value = given["value"]
    cuts = joint(c, [value], mask)
    dst = tile(c, given["dst"], cuts)
    fact = c.facts.one(value)
    if fact is None or fact.kind != "tensor":
        return guarded(c, mask, [f"{subscripted(dst)} = {c.code(value)}"])
    source = tile(c, value, cuts)
    if "mode" in given:
        mode = c.code(given["mode"])
        return guarded(c, mask, [f"{c.nisa('dma_copy')}(dst={dst}, src={source}, oob_mode={mode})"])
    return guarded(c, mask, [f"{c.code(call.func)}({dst}, {source})"])
