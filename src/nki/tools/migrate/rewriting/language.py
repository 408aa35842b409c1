"""Calls of ``nki.language``: functions of tiles keep their names, and lose their masks."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import libcst as cst

import nki.beta1.language as old_language
import nki.language as nl
from nki.core.dtypes import as_dtype
from nki.language.combine import promoted
from nki.tools.migrate.masks import Bounds
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.arguments import bound
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.joined import by_rows, predicate
from nki.tools.migrate.rewriting.operators import BINARY, Binary, binary_of
from nki.tools.migrate.rewriting.regions import Cuts, joint
from nki.tools.migrate.rewriting.results import axes_of, tiles_of
from nki.tools.migrate.rewriting.tiles import operand, tile, two_operands

Given = dict[str, cst.BaseExpression]

INDEX_OUTSIDE = "an index expression is used outside of a subscript"
_REDUCTIONS = ("sum", "max", "min", "mean", "var", "prod")
_SHAPED = ("where", "broadcast_to")
"""Functions whose result has no dtype of its own to be named."""


def language(c: Context, name: str, call: cst.Call) -> str | None:
    """The new text of a call; None where only its arguments change."""
    kind = c.facts.kind(call)
    if kind in ("index", "grid") or name in ("arange", "mgrid"):
        raise Unmigrated(INDEX_OUTSIDE)
    if kind == "number" and name in BINARY:
        return None
    if name in _OWN:
        return _OWN[name](c, call)
    old, new = getattr(old_language, name, None), getattr(nl, name, None)
    if old is None or not callable(new):
        raise Unmigrated(f"nl.{name} has no counterpart")
    given = bound(c, call, old)
    mask = c.masks.read(given.pop("mask", None), joined=True)
    operands = tiles_of(c, given)
    if not operands:
        return None
    for key, node in given.items():
        if node not in operands and key not in inspect.signature(new).parameters:
            raise Unmigrated(f"nl.{name} has no argument {key} any more")
    if name in _WHOLE:
        return _whole(c, name, call, given, mask)
    operation = binary_of(c, call)
    if operation is not None:
        return binary(c, call, operation, mask)
    return _general(c, name, given, call, mask)


def _program(c: Context, call: cst.Call) -> str | None:
    return c.programs.text(c.names.canonical(call.func).removeprefix("nl."), call)


def _constant(c: Context, call: cst.Call) -> str:
    """A constant; a dtype of its own is that of its array now."""
    given = bound(c, call, old_language.shared_constant)
    text = c.code(next(iter(given.values())))
    array = f"{text}.astype({c.code(given['dtype'])})" if "dtype" in given else text
    return f"{c.code(call.func)}({array})"


def _rand(c: Context, call: cst.Call) -> str | None:
    given = bound(c, call, old_language.rand)
    if "dtype" in given:
        return None
    return f"{c.code(call.func)}({c.code(given['shape'])}, dtype={c.nl('float32')})"


def _cast(c: Context, call: cst.Call) -> str:
    """``nl.static_cast(x, dtype)`` is a copy."""
    given = bound(c, call, old_language.static_cast)
    value, dtype = given.values()
    return f"{c.nl('copy')}({c.code(value)}, dtype={c.dtype(dtype)})"


def _as_it_is(c: Context, call: cst.Call) -> None:
    return None


_OWN: dict[str, Callable[[Context, cst.Call], str | None]] = {
    **dict.fromkeys(("program_id", "num_programs", "program_ndim"), _program),
    **dict.fromkeys(("ds", "device_print"), _as_it_is),
    "shared_constant": _constant,
    "rand": _rand,
    "static_cast": _cast,
}
"""Functions that are no functions of tiles."""

_WHOLE = ("load", "load_transpose2d", "matmul", "transpose")
"""Functions whose operands are no parts of each other's shapes."""


def _loaded_by_rows(c: Context, call: cst.Call, given: Given, mask: Bounds) -> str:
    """A tile of zeros with the rows that a mask of several axes leaves."""
    fact, made = c.facts.known(call), c.fresh("tile")
    shape = ", ".join(str(size) for size in fact.shape)
    c.emit(f"{made} = {c.nl('zeros')}(({shape}), dtype={c.nl(fact.dtype)}, buffer={c.nl('sbuf')})")

    def copied(cuts: Cuts) -> str:
        row, columns = cuts[0], cuts[-1]
        dst = f"{made}[{row.low}:{row.high}, {columns.low}:{columns.high}]"
        return f"{c.nisa('dma_copy')}(dst={dst}, src={tile(c, given['src'], cuts)})"

    c.emit(by_rows(c, mask, copied))
    return made


def _whole(c: Context, name: str, call: cst.Call, given: Given, mask: Bounds) -> str:
    if mask.joined and name == "load":
        return _loaded_by_rows(c, call, given, mask)
    if mask.joined or (mask.axes and name in ("matmul", "transpose")):
        raise Unmigrated(f"nl.{name} with this mask")
    operands = tiles_of(c, given)
    texts = [tile(c, each, mask.axes) for each in operands]
    more = [f"{key}={c.code(node)}" for key, node in given.items() if node not in operands]
    return f"{c.code(call.func)}({', '.join([*texts, *more])})"


def binary(c: Context, node: cst.CSTNode, operation: Binary, mask: Bounds | None = None) -> str:
    """A function of two operands; the dtype of its result is written where it is not the usual one."""
    operands = [operation.left, operation.right]
    cuts = joint(c, operands, mask or Bounds())
    texts = [*two_operands(c, operation.left, operation.right, cuts)]
    fact = c.facts.one(node)
    kinds = [as_dtype(c.facts.known(each).dtype) for each in operands if c.facts.kind(each) == "tensor"]
    if operation.dtype is not None:
        texts.append(f"dtype={c.dtype(operation.dtype)}")
    elif fact is not None and kinds and fact.dtype != str(promoted(kinds[0], kinds[-1])):
        texts.append(f"dtype={c.nl(fact.dtype)}")
    return f"{c.nl(operation.name)}({', '.join(texts)})"


def _general(c: Context, name: str, given: Given, call: cst.Call, mask: Bounds) -> str:
    """Any other function of tiles."""
    operands = tiles_of(c, given)
    cuts = joint(c, operands, mask)
    positional = {id(arg.value) for arg in call.args if arg.keyword is None}
    moved = _last_axes(c, given) if name in _REDUCTIONS and "axis" in given else None
    texts = []
    for key, node in given.items():
        chosen = name == "where" and c.facts.kind(node) == "mask"
        text = _mask_tile(c, node, call) if chosen else operand(c, node, cuts)
        if moved is not None:
            order, axes = moved
            text = {"x": f"{text}.permute({order})", "axis": str(axes)}.get(key, text)
        texts.append(text if id(node) in positional else f"{key}={text}")
    result, first = c.facts.one(call), c.facts.one(operands[0])
    if result is None or result.kind != "tensor" or first is None:
        return f"{c.code(call.func)}({', '.join(texts)})"
    if "dtype" not in given and name not in _SHAPED:
        texts += [f"dtype={c.nl(result.dtype)}"] if result.dtype != first.dtype else []
    return f"{c.code(call.func)}({', '.join(texts)})"


def _mask_tile(c: Context, node: cst.BaseExpression, call: cst.Call) -> str:
    """A comparison of index expressions as a tile: its positions, compared with 0."""
    expression, relation = c.masks.relation(node)
    text = predicate(c, [expression], c.facts.known(call).shape)
    return text.replace(c.nl("greater_equal"), c.nl(relation), 1).replace(f", dtype={c.nl('uint8')}", "")


def _last_axes(c: Context, given: Given) -> tuple[tuple[int, ...], list[int]] | None:
    """The order of axes in which those that are reduced are the last ones, and these; None if they are."""
    rank = len(c.facts.known(given["x"]).shape)
    axes = axes_of(c, given["axis"], rank)
    last = list(range(rank - len(axes), rank)) if axes is not None else None
    if axes is None or last is None or axes == last:
        return None
    if "keepdims" in given:
        raise Unmigrated("a reduction of axes that are not the last ones, and that keeps them")
    return (*(axis for axis in range(rank) if axis not in axes), *axes), last
