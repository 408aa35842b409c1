"""Reductions over the last free dimensions: sum, max, min, mean, prod, var, all.

`x` is a tile in SBUF or PSUM, `axis` an int or a sequence of ints: the last free dimensions without gap, counted from
the end if negative. The result is a new SBUF tile; `dtype` is its dtype, by default that of `x`. All reductions are
float32 and round once, so that 32-bit integers are exact up to 2**24 only. A tile has at least two dimensions: without
`keepdims`, a reduction of all free dimensions gives ``(P, 1)``.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
from nki.core.dtypes import float32
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.language.arguments import flag, public, reduced_axes, result_dtype, tile
from nki.language.combine import combine
from nki.language.memory import new_tile
from nki.spec.operator import Operator


@public
def sum(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Sum."""
    return _reduced(alu.ADD, "sum", x, axis, dtype, keepdims)


@public
def max(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Largest element; NaN if there is one."""
    return _reduced(alu.MAXIMUM, "max", x, axis, dtype, keepdims)


@public
def min(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Smallest element; NaN if there is one."""
    return _reduced(alu.MINIMUM, "min", x, axis, dtype, keepdims)


@public
def prod(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Product."""
    return _reduced(alu.MULTIPLY, "prod", x, axis, dtype, keepdims)


@public
def all(x: Any, axis: Any, dtype: Any = None) -> NkiTensor:
    """1 where no element is 0, else 0."""
    return _reduced(alu.LOGICAL_AND, "all", x, axis, dtype, False)


@public
def mean(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Arithmetic mean: the float32 sum times the reciprocal of the number of elements."""
    source = tile(x, "x", "mean")
    total = _reduced(alu.ADD, "mean", source, axis, float32, keepdims)
    return combine(alu.MULTIPLY, total, _reciprocal_count(source, axis, "mean"), result_dtype(dtype, source.dtype))


@public
def var(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Population variance in two passes; the reduced dimensions always stay with size 1, `keepdims` or not.

    (nki/api/nki/language/__init__.py, var.)
    """
    flag(keepdims, "keepdims", "var")
    source = tile(x, "x", "var")
    scale = _reciprocal_count(source, axis, "var")
    middle = combine(alu.MULTIPLY, _reduced(alu.ADD, "var", source, axis, float32, True), scale)
    distance = combine(alu.SUBTRACT, source, middle, float32)
    squares = _reduced(alu.ADD, "var", combine(alu.MULTIPLY, distance, distance), axis, float32, True)
    return combine(alu.MULTIPLY, squares, scale, result_dtype(dtype, source.dtype))


def _reduced(operator: Operator, function: str, x: Any, axis: Any, dtype: Any, keepdims: bool) -> NkiTensor:
    source = tile(x, "x", function)
    axes = reduced_axes(axis, source, function)
    keep = flag(keepdims, "keepdims", function)
    result = new_tile(_reduced_shape(source.shape, len(axes), keep), result_dtype(dtype, source.dtype))
    nisa.tensor_reduce(dst=result, op=operator, data=source, axis=axes, keepdims=keep)
    return result


def _reduced_shape(shape: tuple[int, ...], count: int, keep: bool) -> tuple[int, ...]:
    left = shape[: len(shape) - count]
    if keep:
        return (*left, *[1] * count)
    return left if len(left) > 1 else (*left, 1)


def _reciprocal_count(x: NkiTensor, axis: Any, function: str) -> float:
    count = 1
    for dim in reduced_axes(axis, x, function):
        count *= x.shape[dim]
    return 1.0 / count
