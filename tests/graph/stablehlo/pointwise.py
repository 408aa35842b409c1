"""Cases of operations that compute element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.graph.stablehlo.draw import (
    ALL,
    BOOL,
    F32,
    FLOATS,
    INTEGERS,
    SIGNED,
    Array,
    Case,
    Draw,
    is_float,
    lowered,
    mlir_type,
    type_of,
    written,
)  # fmt: skip

Generator = Callable[[Draw], Case]
Function = Callable[..., Any]

_SMALL_ULPS = 1.0
"""Of bfloat16 and float16, where both sides compute in float32: it may be rounded to the other neighbour."""

_NEAREST = 16367173.0 * 2.0**72
"""Of all float32 the one that is nearest to a multiple of pi / 2: 1.6e-9 away."""

_SPELLED_OUT = 8.0
"""From more ulps on an operation is spelled out in others, each of which rounds to the small type."""


def _allowed(ulps: float, dtype: np.dtype[Any]) -> float:
    return ulps if dtype == F32 else min(ulps, _SMALL_ULPS if ulps <= _SPELLED_OUT else 4 * _SMALL_ULPS)


def _unary(function: Function, ulps: float, low: float = 0.0, high: float = 0.0, special: bool = True) -> Generator:
    """Floats; of any magnitude, or between two bounds. Near zeros of a function its error is that of its argument."""

    def make(draw: Draw) -> Case:
        dtype, shape = draw.one(*FLOATS), draw.shape()
        x = draw.unit(shape, dtype, low, high) if low < high else draw.array(shape, dtype, special and None)
        scaled = 2e-7 if low < high else 0.0  # of float32, in which functions of small floats are computed as well
        return lowered(function, x, ulps=_allowed(ulps, dtype), scaled=scaled, note=type_of(x))

    return make


def _wave(function: Function, ulps: float) -> Generator:
    """Angles of all magnitudes, also the float32 that are nearest to multiples of pi / 2; and what is no angle."""

    def make(draw: Draw) -> Case:
        dtype, shape = draw.one(*FLOATS), draw.shape()
        x = draw.array(shape, dtype, False) * dtype.type(draw.one(1, 1, 100, 1000))
        numbers = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, np.pi / 2, -np.pi, 1e5, _NEAREST]).astype(dtype)
        some = numbers[draw.random.integers(0, len(numbers), shape)]
        x = np.where(draw.random.random(shape) < draw.one(0.0, 0.2), some, x)
        zeros = np.asarray(draw.random.integers(1, 1 << 24, shape) * (np.pi / 2)).astype(dtype)
        bits = np.frombuffer(draw.random.bytes(x.size * dtype.itemsize), dtype).reshape(shape)
        kind = draw.random.random(shape)
        x = np.where(kind < 0.2, zeros, np.where(kind < 0.5, bits, x)).astype(dtype)
        return lowered(function, x, ulps=_allowed(ulps, dtype), note=type_of(x))

    return make


def _unary_of(function: Function, kinds: tuple[Any, ...]) -> Generator:
    def make(draw: Draw) -> Case:
        x = draw.array(draw.shape(), draw.one(*kinds))
        return lowered(function, x, note=type_of(x))

    return make


def _either(*generators: Generator) -> Generator:
    return lambda draw: draw.one(*generators)(draw)


def _forms(draw: Draw, function: Function, a: Array, b: Array) -> Case:
    """A binary operation on whole tensors, on a constant, a scalar, a row, a column or the same tensor twice."""
    form = draw.one("whole", "whole", "constant", "left", "scalar", "row", "column", "same")
    shape = a.shape
    if form == "constant":
        number = b.reshape(-1)[0]
        return lowered(lambda x: function(x, jnp.full(shape, number, x.dtype)), a)
    if form == "left":
        number = a.reshape(-1)[0]
        return lowered(lambda x: function(jnp.full(shape, number, x.dtype), x), b)
    if form == "scalar":
        return lowered(lambda x, y: function(x, jnp.broadcast_to(y, shape)), a, b.reshape(-1)[0].reshape(()))
    if form == "row" and shape:
        row = b.reshape(-1)[: shape[-1]]
        return lowered(lambda x, y: function(x, jnp.broadcast_to(y, shape)), a, row)
    if form == "column" and len(shape) > 1:
        column = b[..., :1]
        return lowered(lambda x, y: function(jnp.broadcast_to(y, shape), x), a, column)
    if form == "same":
        return lowered(lambda x: function(x, x), a)
    return lowered(function, a, b)


def _with(case: Case, note: str, **limits: Any) -> Case:
    return replace(case, note=note, **limits)


def _binary(function: Function, kinds: tuple[Any, ...], ulps: float = 0.0, special: bool | None = None) -> Generator:
    def make(draw: Draw) -> Case:
        dtype, shape = draw.one(*kinds), draw.shape()
        a, b = (draw.array(shape, dtype, special) for _ in range(2))
        return _with(_forms(draw, function, a, b), type_of(a), ulps=_allowed(ulps, dtype))

    return make


def _shift(function: Function) -> Generator:
    def make(draw: Draw) -> Case:
        dtype, shape = draw.one(*INTEGERS), draw.shape()
        a = draw.array(shape, dtype)
        b = np.asarray(draw.random.integers(0, 8 * dtype.itemsize + 3, shape)).astype(dtype)
        return _with(_forms(draw, function, a, b), type_of(a))

    return make


def _integer_power(draw: Draw) -> Case:
    dtype, shape = draw.one(*INTEGERS), draw.shape(0, 2)
    a, b = draw.array(shape, dtype), draw.array(shape, dtype, False, top=draw.one(4, 40))
    kind = type_of(a)
    return written(f"%r0 = stablehlo.power %a0, %a1 : {kind}", [kind], a, b, note=kind)


def _float_power(draw: Draw) -> Case:
    dtype, shape = draw.one(*FLOATS), draw.shape()
    a = draw.array(shape, dtype, None)
    b = draw.one(draw.array(shape, dtype), draw.unit(shape, dtype, -4, 4), np.rint(draw.unit(shape, dtype, -5, 5)))
    b = b.astype(dtype)
    number = draw.one(0.5, -0.5, 2.0, 3.0, -1.0, 0.0, 1.0, 2.5)
    if draw.chance(0.3):
        return lowered(lambda x: lax.pow(x, jnp.full(shape, number, x.dtype)), a, ulps=_allowed(8, dtype))
    return lowered(lax.pow, a, b, ulps=_allowed(8, dtype), note=type_of(a))


_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")


def _compare(draw: Draw) -> Case:
    dtype, shape = draw.one(*ALL), draw.shape()
    a, b = draw.array(shape, dtype), draw.array(shape, dtype)
    if draw.chance(0.4):
        b = np.where(draw.random.random(shape) < 0.5, a, b).astype(dtype)
    direction = draw.one(*_DIRECTIONS)
    functions = {"EQ": lax.eq, "NE": lax.ne, "GE": lax.ge, "GT": lax.gt, "LE": lax.le, "LT": lax.lt}
    if draw.chance(0.6):
        return _with(_forms(draw, functions[direction], a, b), f"{direction} {type_of(a)}")
    kind = "SIGNED" if dtype.kind == "i" else "FLOAT" if is_float(dtype) else "UNSIGNED"
    if is_float(dtype) and draw.chance(0.6):
        kind = "TOTALORDER"
    result = mlir_type(shape, BOOL)
    line = f"%r0 = stablehlo.compare {direction}, %a0, %a1, {kind} : ({type_of(a)}, {type_of(b)}) -> {result}"
    return written(line, [result], a, b, note=f"{direction} {kind} {type_of(a)}")


def _select(draw: Draw) -> Case:
    dtype, shape = draw.one(*ALL), draw.shape()
    p = draw.array(draw.one(shape, shape, ()), BOOL)
    a, b = draw.array(shape, dtype), draw.array(shape, dtype)
    if draw.chance(0.3):
        number = b.reshape(-1)[0]
        return lowered(lambda p, x: lax.select(p, x, jnp.full(shape, number, x.dtype)), p, a, note=type_of(a))
    return lowered(lax.select, p, a, b, note=type_of(a))


def _clamp(draw: Draw) -> Case:
    dtype, shape = draw.one(*(d for d in ALL if d != BOOL)), draw.shape()
    low, x, high = (draw.array(shape, dtype) for _ in range(3))
    if draw.chance(0.5):
        low, high = low.reshape(-1)[:1].reshape(()), high.reshape(-1)[:1].reshape(())
    if draw.chance(0.3):
        return lowered(lambda x: lax.clamp(low, x, high), x, note=type_of(x))
    return lowered(lax.clamp, low, x, high, note=type_of(x))


def _convert(draw: Draw) -> Case:
    source, wanted = draw.one(*ALL), draw.one(*ALL)
    x = draw.array(draw.shape(), source)
    return lowered(lambda a: lax.convert_element_type(a, wanted), x, note=f"{type_of(x)} to {wanted.name}")


def _bitcast(draw: Draw) -> Case:
    kinds = [d for d in ALL if d != BOOL]
    source, wanted = draw.one(*kinds), draw.one(*kinds)
    shape = draw.shape(0, 3)
    if wanted.itemsize > source.itemsize:
        shape = (*shape, wanted.itemsize // source.itemsize)
    x = np.frombuffer(draw.random.bytes(int(np.prod(shape)) * source.itemsize), source).reshape(shape)
    x = np.where(np.isnan(x.astype(np.float64)), x.dtype.type(1), x) if is_float(source) else x
    if is_float(wanted):  # NaN keep no bits on the way through a host
        x = draw.array(shape, source, False, top=100)
    return lowered(lambda a: lax.bitcast_convert_type(a, wanted), x, note=f"{type_of(x)} to {wanted.name}")


def _reduce_precision(draw: Draw) -> Case:
    x = draw.array(draw.shape(), draw.one(*FLOATS))
    bits = draw.one((8, 7), (5, 10), (8, 23), (4, 3), (5, 2), (8, 3), (6, 9))
    return lowered(lambda a: lax.reduce_precision(a, *bits), x, note=f"{bits} {type_of(x)}")


def _iota(draw: Draw) -> Case:
    dtype, shape = draw.one(*(d for d in ALL if d != BOOL)), draw.shape(1)
    dim = draw.below(len(shape))
    kind = mlir_type(shape, dtype)
    if draw.chance(0.5):
        return written(f"%r0 = stablehlo.iota dim = {dim} : {kind}", [kind], note=f"dim {dim} {kind}")
    x = draw.array(shape, dtype, False, top=10)
    return lowered(lambda a: a + lax.broadcasted_iota(dtype, shape, dim), x, note=f"dim {dim} {kind}")


def _map(draw: Draw) -> Case:
    dtype, shape = draw.one(F32, np.dtype("int32")), draw.shape()
    a, b = draw.array(shape, dtype, False), draw.array(shape, dtype, False)
    scalar, kind, dims = mlir_type((), dtype), type_of(a), list(range(len(shape)))
    line = f"""
    %r0 = "stablehlo.map"(%a0, %a1) ({{
    ^bb0(%x: {scalar}, %y: {scalar}):
      %m = stablehlo.multiply %x, %y : {scalar}
      %s = stablehlo.add %m, %x : {scalar}
      stablehlo.return %s : {scalar}
    }}) {{dimensions = array<i64{": " if dims else ""}{", ".join(map(str, dims))}>}} : ({kind}, {kind}) -> {kind}"""
    return written(line, [kind], a, b, ulps=1, scaled=1e-6, note=kind)


def _constant(draw: Draw) -> Case:
    dtype, shape = draw.one(*ALL), draw.shape()
    x, c = draw.array(shape, dtype), draw.array(shape, dtype)
    return lowered(lambda a: (lax.rev(a, ()), jnp.asarray(c)), x, note=type_of(x))


def _is_special(name: str) -> Generator:
    def make(draw: Draw) -> Case:
        x = draw.array(draw.shape(), draw.one(*FLOATS))
        result = mlir_type(x.shape, BOOL)
        return written(f"%r0 = chlo.{name} %a0 : {type_of(x)} -> {result}", [result], x, note=type_of(x))

    return make


def _clo(name: str, ulps: float) -> Generator:
    """An operation of chlo that JAX spells out itself."""

    def make(draw: Draw) -> Case:
        dtype = draw.one(*FLOATS)
        x = draw.array(draw.shape(), dtype, False)
        kind = type_of(x)
        return written(f"%r0 = chlo.{name} %a0 : {kind} -> {kind}", [kind], x, ulps=_allowed(ulps, dtype), note=kind)

    return make


POINTWISE: Mapping[str, Generator] = {
    "abs": _either(_unary(lax.abs, 0), _unary_of(lax.abs, SIGNED)),
    "cbrt": _unary(lax.cbrt, 4),
    "ceil": _unary(lax.ceil, 0),
    "cosine": _wave(lax.cos, 4),
    "exponential": _unary(lax.exp, 4),
    "exponential_minus_one": _unary(lax.expm1, 8),
    "floor": _unary(lax.floor, 0),
    "is_finite": _unary(lax.is_finite, 0),
    "log": _unary(lax.log, 4),
    "log_plus_one": _unary(lax.log1p, 8),
    "logistic": _unary(lax.logistic, 8),
    "negate": _either(_unary(lax.neg, 0), _unary_of(lax.neg, INTEGERS)),
    "not": _unary_of(lax.bitwise_not, (*INTEGERS, BOOL)),
    "popcnt": _unary_of(lax.population_count, INTEGERS),
    "count_leading_zeros": _unary_of(lax.clz, INTEGERS),
    "round_nearest_afz": _unary(lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), 0),
    "round_nearest_even": _unary(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), 0),
    "rsqrt": _unary(lax.rsqrt, 4),
    "sign": _either(_unary(lax.sign, 0), _unary_of(lax.sign, INTEGERS)),
    "sine": _wave(lax.sin, 4),
    "sqrt": _unary(lax.sqrt, 1),
    "tan": _wave(lax.tan, 8),
    "tanh": _unary(lax.tanh, 8),
    "add": _binary(lax.add, (*FLOATS, *INTEGERS)),
    "subtract": _binary(lax.sub, (*FLOATS, *INTEGERS)),
    "multiply": _binary(lax.mul, (*FLOATS, *INTEGERS)),
    "divide": _either(_binary(lax.div, FLOATS, 2), _binary(lax.div, INTEGERS)),
    "remainder": _either(_binary(lax.rem, FLOATS), _binary(lax.rem, INTEGERS)),
    "maximum": _binary(lax.max, ALL),
    "minimum": _binary(lax.min, ALL),
    "power": _either(_float_power, _integer_power),
    "atan2": _binary(lax.atan2, FLOATS, 8),
    "and": _binary(lax.bitwise_and, (*INTEGERS, BOOL)),
    "or": _binary(lax.bitwise_or, (*INTEGERS, BOOL)),
    "xor": _binary(lax.bitwise_xor, (*INTEGERS, BOOL)),
    "shift_left": _shift(lax.shift_left),
    "shift_right_logical": _shift(lax.shift_right_logical),
    "shift_right_arithmetic": _shift(lax.shift_right_arithmetic),
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "convert": _convert,
    "bitcast_convert": _bitcast,
    "reduce_precision": _reduce_precision,
    "iota": _iota,
    "constant": _constant,
    "map": _map,
    "chlo.acos": _clo("acos", 16),
    "chlo.acosh": _unary(lax.acosh, 16, 1.0, 50.0),
    "chlo.asin": _clo("asin", 16),
    "chlo.asinh": _clo("asinh", 16),
    "chlo.atan": _clo("atan", 16),
    "chlo.atanh": _unary(lax.atanh, 16, -1.0, 1.0),
    "chlo.bessel_i1e": _clo("bessel_i1e", 32),
    "chlo.cosh": _unary(lax.cosh, 16, -80.0, 80.0),
    "chlo.sinh": _unary(lax.sinh, 16, -80.0, 80.0),
    "chlo.digamma": _unary(lax.digamma, 64, 0.05, 20.0),
    "chlo.erf": _unary(lax.erf, 8),
    "chlo.erf_inv": _unary(lax.erf_inv, 32, -1.0, 1.0),
    "chlo.erfc": _unary(lax.erfc, 64, -4.0, 4.0),
    "chlo.is_inf": _is_special("is_inf"),
    "chlo.is_neg_inf": _is_special("is_neg_inf"),
    "chlo.is_pos_inf": _is_special("is_pos_inf"),
    "chlo.lgamma": _unary(lax.lgamma, 256, 0.05, 20.0),
    "chlo.next_after": _binary(lax.nextafter, FLOATS, 0),
    "chlo.square": _unary(lax.square, 0),
    "chlo.tan": _wave(lax.tan, 8),
}
"""By the name of the operation."""
