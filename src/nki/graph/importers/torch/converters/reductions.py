"""ATen's reductions and scans: sums, means, extremes with their places, variances, cumulative sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from nki.core.dtypes import bool_, complex64, float32, int32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, Converter, axes, axis, converts, refused, wide
from nki.graph.ir import TensorType, Value

Dims = int | Sequence[int] | None


def _computed(b: Builder, call: Call, x: Value) -> Value:
    """The operand in the dtype of the result, as ATen converts it before it adds up; small floats in float32."""
    return wide(b, b.convert(x, call.dtype))


@converts("sum.dim_IntList")
def _sum(b: Builder, call: Call, x: Value, dims: Dims, keep: bool, dtype: object) -> Value:
    return b.convert(b.reduce("add", _computed(b, call, x), axes(x, dims), keep), call.dtype)


def share(x: Value, dims: Sequence[int]) -> float:
    """By what a sum is multiplied to be a mean; NaN if nothing is added up."""
    count = prod(x.type.shape[i] for i in dims)
    return 1.0 / count if count else np.nan


@converts("mean.dim")
def _mean(b: Builder, call: Call, x: Value, dims: Dims, keep: bool, dtype: object) -> Value:
    dimensions = axes(x, dims)
    total = b.reduce("add", _computed(b, call, x), dimensions, keep)
    return b.convert(b.multiply(total, share(x, dimensions)), call.dtype)


@converts("mean")
def _mean_all(b: Builder, call: Call, x: Value, dtype: object) -> Value:
    return _mean(b, call, x, None, False, dtype)


@converts("prod.dim_int")
def _prod(b: Builder, call: Call, x: Value, dim: int, keep: bool, dtype: object) -> Value:
    return b.convert(b.reduce("multiply", _computed(b, call, x), axes(x, dim), keep), call.dtype)


@converts("prod")
def _prod_all(b: Builder, call: Call, x: Value, dtype: object) -> Value:
    return b.convert(b.reduce("multiply", _computed(b, call, x), axes(x, None)), call.dtype)


def _extreme(b: Builder, call: Call, kind: str, x: Value, dims: Sequence[int], keep: bool) -> Value:
    """The largest or smallest of some elements, of which there must be one, as ATen demands."""
    if any(not x.type.shape[i] for i in dims) and call.type.size:
        reason = f"dimensions {tuple(dims)} of {x.type.shape} have no element to choose"
        raise refused(b, call, reason, "put a number in the place of the result where there is none", x)
    return b.reduce(kind, x, dims, keep)


@converts("amax")
def _amax(b: Builder, call: Call, x: Value, dims: Dims, keep: bool) -> Value:
    return _extreme(b, call, "maximum", x, axes(x, dims), keep)


@converts("amin")
def _amin(b: Builder, call: Call, x: Value, dims: Dims, keep: bool) -> Value:
    return _extreme(b, call, "minimum", x, axes(x, dims), keep)


@converts("max")
def _max_all(b: Builder, call: Call, x: Value) -> Value:
    return _extreme(b, call, "maximum", x, axes(x, None), False)


@converts("min")
def _min_all(b: Builder, call: Call, x: Value) -> Value:
    return _extreme(b, call, "minimum", x, axes(x, None), False)


@converts("any", "any.dim", "any.dims")
def _any(b: Builder, call: Call, x: Value, dims: Dims = None, keep: bool = False) -> Value:
    return b.convert(b.reduce("or", b.convert(x, bool_), axes(x, dims), keep), call.dtype)  # uint8 gives uint8


@converts("all", "all.dim", "all.dims")  # PyTorch asks for no false one, which is an operation more
def _all(b: Builder, call: Call, x: Value, dims: Dims = None, keep: bool = False) -> Value:
    return b.convert(b.reduce("and", b.convert(x, bool_), axes(x, dims), keep), call.dtype)


@converts("linalg_vector_norm")
def _vector_norm(b: Builder, call: Call, x: Value, order: float, dims: Dims, keep: bool, dtype: object) -> Value:
    size = b.one("abs", (x,), TensorType(x.type.shape, float32)) if x.type.dtype is complex64 else x
    size, dimensions = b.unary("abs", _computed(b, call, size)), axes(x, dims)
    if order in (np.inf, -np.inf):
        made = b.reduce("maximum" if order > 0 else "minimum", size, dimensions, keep)
    elif order == 0:
        made = b.reduce("add", b.convert(b.compare("NE", size, 0.0), size.type.dtype), dimensions, keep)
    elif order == 1:
        made = b.reduce("add", size, dimensions, keep)
    elif order == 2:
        made = b.unary("sqrt", b.reduce("add", b.multiply(size, size), dimensions, keep))
    else:
        made = b.binary("power", b.reduce("add", b.binary("power", size, order), dimensions, keep), 1.0 / order)
    return b.convert(made, call.dtype)


# ------------------------------------------------------------------------------------------------------------- extremes


def place(b: Builder, x: Value, extreme: Value, dim: int, keep: bool) -> Value:
    """Where an extreme, which was kept as a dimension of size 1, comes first; NaN counts as the extreme."""
    found = b.compare("EQ", x, extreme)
    if x.type.dtype.is_float:
        found = b.binary("or", found, b.compare("NE", x, x))
    numbers = b.iota(x.type.shape, dim)
    return b.reduce("minimum", b.select(found, numbers, x.type.shape[dim]), (dim,), keep)


def _place_of(kind: str) -> Converter:
    def convert(b: Builder, call: Call, x: Value, dim: int | None, keep: bool) -> Value:
        data = x if dim is not None else b.reshape(x, (x.type.size,))
        if not data.type.shape:
            return b.constant(0, int32)
        at = axis(data, dim or 0)
        extreme = _extreme(b, call, kind, data, (at,), True)
        where = place(b, data, extreme, at, keep and dim is not None)
        return b.reshape(where, call.type.shape)

    return convert


argmax = converts("argmax")(_place_of("maximum"))
argmin = converts("argmin")(_place_of("minimum"))


def _with_place(kind: str) -> Converter:
    def convert(b: Builder, call: Call, x: Value, dim: int, keep: bool) -> list[Value | None]:
        if not x.type.shape:
            return [x, b.constant(0, int32)]
        dim = axis(x, dim)
        extreme = _extreme(b, call, kind, x, (dim,), True)
        shape = x.type.shape if keep else (*x.type.shape[:dim], *x.type.shape[dim + 1 :])
        value = extreme if keep else b.reshape(extreme, shape)
        return [value, place(b, x, extreme, dim, keep) if 1 in call.used else None]

    return convert


max_dim = converts("max.dim")(_with_place("maximum"))
min_dim = converts("min.dim")(_with_place("minimum"))


# ------------------------------------------------------------------------------------------------------------ variances


def moments(b: Builder, x: Value, dims: Sequence[int]) -> tuple[Value, Value]:
    """Mean, and the mean square of what is left without it; the dimensions stay with size 1."""
    factor = share(x, dims)
    middle = b.multiply(b.reduce("add", x, dims, True), factor)
    rest = b.subtract(x, middle)
    return middle, b.multiply(b.reduce("add", b.multiply(rest, rest), dims, True), factor)


@converts("var.correction")
def _var(b: Builder, call: Call, x: Value, dims: Dims, correction: float | None, keep: bool) -> Value:
    dimensions = axes(x, dims)
    count = prod(x.type.shape[i] for i in dimensions)
    square = moments(b, wide(b, x), dimensions)[1]
    degrees = count - (1 if correction is None else correction)
    factor = count / degrees if degrees > 0 else np.nan if not count else np.inf
    return b.convert(b.reshape(b.multiply(square, factor), call.type.shape), call.dtype)


@converts("var_mean.correction")
def _var_mean(b: Builder, call: Call, x: Value, dims: Dims, correction: float | None, keep: bool) -> list[Value]:
    return [_var(b, call, x, dims, correction, keep), _mean(b, call, x, dims, keep, None)]


# ---------------------------------------------------------------------------------------------------------------- scans


def _scan(kind: str, start: float) -> Converter:
    """After step s, each element holds what 2**s elements up to it give together."""

    def convert(b: Builder, call: Call, x: Value, dim: int, dtype: object) -> Value:
        data = _computed(b, call, x)
        if not data.type.shape:
            return b.convert(data, call.dtype)
        dim = axis(x, dim)
        size, reach = data.type.shape[dim], 1
        while reach < size:
            low = [reach if i == dim else 0 for i in range(len(data.type.shape))]
            high = [-n for n in low]
            data = b.binary(kind, data, b.pad(data, start, low, high))
            reach *= 2
        return b.convert(data, call.dtype)

    return convert


cumsum = converts("cumsum")(_scan("add", 0.0))
cumprod = converts("cumprod")(_scan("multiply", 1.0))


# -------------------------------------------------------------------------------------------------------------- softmax


@converts("_softmax")
def _softmax(b: Builder, call: Call, x: Value, dim: int, half_to_float: bool) -> Value:
    data = wide(b, x)
    dims = axes(x, dim)
    grown = b.unary("exponential", b.subtract(data, b.reduce("maximum", data, dims, True)))
    return b.convert(b.divide(grown, b.reduce("add", grown, dims, True)), call.dtype)


@converts("_log_softmax")
def _log_softmax(b: Builder, call: Call, x: Value, dim: int, half_to_float: bool) -> Value:
    data = wide(b, x)
    dims = axes(x, dim)
    shifted = b.subtract(data, b.reduce("maximum", data, dims, True))
    logarithm = b.unary("log", b.reduce("add", b.unary("exponential", shifted), dims, True))
    return b.convert(b.subtract(shifted, logarithm), call.dtype)
