"""Calls that make tensors: dimensions of blocks become Python lists, and defaults are written out."""

from __future__ import annotations

import libcst as cst

import nki.beta1.language as old_language
from nki.tools.migrate.facts import Fact
from nki.tools.migrate.rewriting.arguments import bound
from nki.tools.migrate.rewriting.context import Context

CREATIONS = ("nl.ndarray", "nl.zeros", "nl.ones", "nl.full", "nl.empty")


def creation(c: Context, call: cst.Call, name: str = "") -> str | None:
    """The new call; None if only its arguments change.

    Args:
        name: that it is assigned to.
    """
    function = c.names.canonical(call.func)
    given = bound(c, call, getattr(old_language, function[3:]))
    fact = c.facts.one(call)
    sizes, partition = _dimensions(c, given["shape"])
    if fact is not None and fact.buffer not in ("sbuf", "psum"):
        partition = 0
    blocks, tile = sizes[:partition], sizes[partition:]
    rank = len(fact.shape) - partition if fact is not None else len(tile)
    c.shapes[name] = tile if len(tile) == rank else [f"{tile[0]}[{at}]" for at in range(rank)]
    buffer = _buffer(c, given.get("buffer"), fact)
    today = _today(c, function, name, buffer)
    if not blocks and today == function and _is_today(c, call, given, buffer):
        return None
    text = f"{c.nl(today[3:])}({_shape(c, given['shape'], blocks, tile)}{_more(c, given, blocks, buffer)})"
    for size in reversed(blocks):
        text = f"[{text} for _ in range({size})]"
    return text


def _today(c: Context, function: str, name: str, buffer: str) -> str:
    """The function to call today. What products are added to needs no zeros."""
    if function == "nl.empty" or (function == "nl.zeros" and buffer.endswith("psum") and name in c.accumulated):
        return "nl.ndarray"
    return function


def _shape(c: Context, shape: cst.BaseExpression, blocks: list[str], tile: list[str]) -> str:
    if not blocks and not isinstance(shape, cst.Tuple | cst.List):
        return c.code(shape)  # as it is written, a sum of lists too
    return f"({', '.join(tile)}{',' if len(tile) == 1 else ''})"


def _more(c: Context, given: dict[str, cst.BaseExpression], blocks: list[str], buffer: str) -> str:
    """The arguments behind the shape."""
    value = f", {c.code(given['fill_value'])}" if "fill_value" in given else ""
    dtype = c.dtype(given["dtype"]) if "dtype" in given else c.nl("float32")
    label = f", name={c.code(given['name'])}" if _has_name(c, given, blocks) else ""
    return f"{value}, dtype={dtype}, buffer={buffer}{label}"


def _has_name(c: Context, given: dict[str, cst.BaseExpression], blocks: list[str]) -> bool:
    """Whether the tensor has a name; blocks would all have the same one."""
    return "name" in given and not blocks and c.one_line(given["name"]) not in ("''", '""')


def _is_today(c: Context, call: cst.Call, given: dict[str, cst.BaseExpression], buffer: str) -> bool:
    """Whether a call is one of today already."""
    keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    if not keywords <= {"shape", "dtype", "buffer", "name"} or isinstance(given["shape"], cst.List):
        return False
    if "fill_value" in given or "dtype" not in given or _has_name(c, given, []) != ("name" in given):
        return False
    place = c.one_line(given["buffer"]) if "buffer" in given else c.nl("sbuf")
    return place == buffer and c.dtype(given["dtype"]) == c.one_line(given["dtype"])


def _buffer(c: Context, node: cst.BaseExpression | None, fact: Fact | None) -> str:
    if node is None:
        return c.nl("sbuf")
    if fact is not None and not c.names.canonical(node).startswith("nl."):
        return c.nl(fact.buffer)
    return c.code(node)


def _dimensions(c: Context, shape: cst.BaseExpression) -> tuple[list[str], int]:
    """The sizes of a shape, and which is the partitions'."""
    elements = _elements(shape)
    if elements is None:
        return [c.code(shape)], 0
    sizes, partition = [], 0
    for at, node in enumerate(elements):
        if isinstance(node, cst.Call) and c.names.canonical(node.func) == "nl.par_dim":
            partition = at
            node = node.args[0].value
        sizes.append(c.code(node))
    return sizes, partition


def _elements(shape: cst.BaseExpression) -> list[cst.BaseExpression] | None:
    """The sizes of a shape that is written one by one, also as ``[2] + [nl.par_dim(128), 512]``; None for others."""
    if isinstance(shape, cst.Tuple | cst.List):
        return [element.value for element in shape.elements]
    if isinstance(shape, cst.BinaryOperation) and isinstance(shape.operator, cst.Add):
        left, right = _elements(shape.left), _elements(shape.right)
        return None if left is None or right is None else left + right
    return None


def sizes_of_shape(c: Context, shape: cst.BaseExpression) -> list[str]:
    """The sizes of a shape as it is written."""
    return _dimensions(c, shape)[0]
