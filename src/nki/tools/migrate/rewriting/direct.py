"""A value that is assigned to a part of a tile, as one instruction that writes there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import libcst as cst

import nki.beta1.language as old_language
from nki.tools.migrate.facts import Fact
from nki.tools.migrate.masks import Bounds
from nki.tools.migrate.rewriting.arguments import bound
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.instructions import read
from nki.tools.migrate.rewriting.operators import Binary, binary_of
from nki.tools.migrate.rewriting.regions import Cuts, bounds, joint
from nki.tools.migrate.rewriting.results import allocate, product_cuts
from nki.tools.migrate.rewriting.tiles import tile, two_operands

Given = dict[str, cst.BaseExpression]


class Direct(NamedTuple):
    """One instruction.

    Attributes:
        name: of it.
        arguments: all but the destination.
    """

    name: str
    arguments: str


def direct(c: Context, target: cst.Subscript, value: cst.BaseExpression) -> list[str] | None:
    """``tile[...] = nl.exp(x)`` as one instruction that writes to the tile; None if it is not one."""
    place, own = c.facts.one(target), c.facts.one(value)
    if own is None or place is None or own.kind != "tensor":
        return None
    mask = bounds(c, value)
    found = _one_instruction(c, value, c.facts.same_dtype(value, target), mask)
    if found is None:
        return None
    if own.buffer != "psum" or place.buffer == "psum":
        dst = tile(c, target, {**_left_of_product(c, found.name, value), **mask.axes})
        return [f"{c.nisa(found.name)}(dst={dst}, {found.arguments})"]
    made = allocate(c, None, own, [str(size) for size in own.shape], c.nl(own.dtype))
    c.emit(f"{c.nisa(found.name)}(dst={made}, {found.arguments})")
    c.emit(f"{c.nisa('tensor_copy')}(dst={tile(c, target, mask.axes)}, src={made})")
    return c.taken()


def _one_instruction(c: Context, value: cst.BaseExpression, same_dtype: bool, mask: Bounds) -> Direct | None:
    """The instruction that a value is.

    Args:
        same_dtype: whether the tile has the dtype of the value; otherwise a dtype that is given rounds once more.
    """
    issued = _issued(c.facts.of(value))
    binary = binary_of(c, value)
    if binary is not None and issued in ("tensor_tensor", "tensor_scalar"):
        if binary.name == "divide" or (binary.dtype is not None and not same_dtype):
            return None
        return _two_operands(c, issued, binary, mask)
    function = c.names.canonical(value.func) if isinstance(value, cst.Call) else ""
    if not function.startswith("nl."):
        return None
    assert isinstance(value, cst.Call), "it has a function"
    given = bound(c, value, getattr(old_language, function[3:], None))
    if "dtype" in given and not same_dtype:
        return None
    for names, instruction, arguments in _TABLE:
        if issued == instruction and (not names or function in names):
            text = arguments(c, value, given, mask.axes)
            return Direct(issued, text) if text is not None else None
    return None


def _left_of_product(c: Context, name: str, value: cst.BaseExpression) -> Cuts:
    if name != "nc_matmul" or not isinstance(value, cst.Call):
        return {}
    given = bound(c, value, old_language.matmul)
    return product_cuts(c, given["x"], given["y"])


def _issued(facts: list[Fact]) -> str:
    """The one instruction that an expression issued, each time; "" if it was not one."""
    found = {fact.own for fact in facts if fact.own}
    (own,) = found if len(found) == 1 else ((),)
    return own[0] if len(own) == 1 else ""


def _two_operands(c: Context, issued: str, binary: Binary, mask: Bounds) -> Direct:
    cuts = joint(c, [binary.left, binary.right], mask)
    a, b = two_operands(c, binary.left, binary.right, cuts)
    op = c.nl(binary.name)
    if issued == "tensor_tensor":
        return Direct(issued, f"data1={a}, data2={b}, op={op}")
    if is_scalar(c, binary.right) and c.facts.kind(binary.left) == "tensor":
        return Direct(issued, f"data={a}, op0={op}, operand0={b}")
    return Direct(issued, f"data={b}, op0={op}, operand0={a}, reverse0=True")


def is_scalar(c: Context, node: cst.BaseExpression) -> bool:
    """Whether an operand is a number, or has one for each partition."""
    fact = c.facts.one(node)
    if fact is None or fact.kind != "tensor":
        return True
    return fact.dtype == "float32" and all(size == 1 for size in fact.shape[1:])


def _copy(c: Context, call: cst.Call, given: Given, cuts: Cuts) -> str | None:
    return f"src={tile(c, given['src'], cuts)}"


def _activation(c: Context, call: cst.Call, given: Given, cuts: Cuts) -> str | None:
    return f"op={c.code(call.func)}, data={tile(c, given['x'], cuts)}" if "x" in given else None


def _reciprocal(c: Context, call: cst.Call, given: Given, cuts: Cuts) -> str | None:
    return f"data={tile(c, given['x'], cuts)}" if "x" in given else None


def _reduction(c: Context, call: cst.Call, given: Given, cuts: Cuts) -> str | None:
    data = tile(c, given["x"], cuts)
    keep = f", keepdims={c.code(given['keepdims'])}" if "keepdims" in given else ""
    op = c.nl(_REDUCTIONS[c.names.canonical(call.func)])
    return f"op={op}, data={data}, axis={c.code(given['axis'])}{keep}"


def _product(c: Context, call: cst.Call, given: Given, cuts: Cuts) -> str | None:
    if "transpose_x" not in given:
        return None
    stationary, moving = (
        read(c, "nc_matmul", "stationary", given["x"], {}),
        read(c, "nc_matmul", "moving", given["y"], {}),
    )
    return f"stationary={stationary}, moving={moving}, accumulate=False"


_REDUCTIONS = {"nl.max": "maximum", "nl.min": "minimum", "nl.sum": "add"}
_TABLE: tuple[tuple[tuple[str, ...], str, Callable[[Context, cst.Call, Given, Cuts], str | None]], ...] = (
    (("nl.copy",), "tensor_copy", _copy),
    ((), "activation", _activation),
    ((), "reciprocal", _reciprocal),
    (tuple(_REDUCTIONS), "tensor_reduce", _reduction),
    (("nl.matmul",), "nc_matmul", _product),
)
"""Functions (all, if none are named), the instruction that they issued, and its arguments."""
