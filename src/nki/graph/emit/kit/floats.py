"""Functions of floating-point tiles that no single instruction computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from nki.core.dtypes import DType, float32, int32, uint8, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MAX
from nki.graph.emit.kit.engines import EngineOps, Splat
from nki.isa import alu
from nki.isa import functions as unit

_INTEGRAL = float(1 << 23)
"""From here on every float32 is an integer."""

_TINY = 2.0**-126
_NEAR_ZERO = 2.0**-64
_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip
"""Polynomials of the inverse error function in w - 2.5 and sqrt(w) - 3: M. Giles, Approximating the erfinv function."""


def floor(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The largest integer that is not above x."""
    return _integral(e, x, dtype, lambda n: e.binary(n, e.binary(n, x, alu.GREATER, float32), alu.SUBTRACT, float32))


def ceil(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The smallest integer that is not below x."""
    return _integral(e, x, dtype, lambda n: e.binary(n, e.binary(n, x, alu.LESS, float32), alu.ADD, float32))


def round_nearest_even(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The nearest integer, ties to even: as the engines convert."""
    return _integral(e, x, dtype, lambda n: e.copy(n, float32))


def round_nearest_afz(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The nearest integer, ties away from zero."""
    return _integral(e, x, dtype, lambda n: _ties_away(e, x, n))


def _ties_away(e: EngineOps, x: NkiTensor, nearest: NkiTensor) -> NkiTensor:
    rest = e.binary(x, nearest, alu.SUBTRACT, float32)
    tied = e.scalar(rest, alu.ABS, 0.0, alu.EQUAL, 0.5, dtype=float32)
    same = e.binary(rest, x, alu.MULTIPLY, float32)  # below zero where the tie went away from zero already
    moved = e.fused(same, alu.GREATER, 0.0, alu.MULTIPLY, tied)
    signed = e.binary(e.activate(x, unit.SIGN, float32), moved, alu.MULTIPLY, float32)
    return e.binary(nearest, signed, alu.ADD, float32)


def _integral(e: EngineOps, x: NkiTensor, dtype: DType, rounded: Callable[[NkiTensor], NkiTensor]) -> NkiTensor:
    """What `rounded` makes of the nearest int32, with the sign of x; x itself where it is integral, inf or NaN."""
    whole = rounded(e.copy(x, int32))
    wide = x if x.dtype == float32 else e.copy(x, float32)
    sign = e.bits(wide.view(uint32), alu.BITWISE_AND, 1 << 31)
    whole = e.binary(whole.view(uint32), sign, alu.BITWISE_OR).view(float32)
    large = e.scalar(x, alu.ABS, 0.0, alu.LESS, _INTEGRAL, dtype=uint8)
    return _cast(e, e.where(large, whole, wide, float32), dtype)


def truncated(e: EngineOps, x: NkiTensor, word: DType) -> NkiTensor:
    """float32 without its fraction, for a conversion to integers of up to 32 bits; the sign of zero is lost.

    Args:
        word: uint32 for conversions to it, else int32: larger numbers become its largest one.
    """
    size = e.scalar(x, alu.ABS, 0.0, dtype=float32)
    nearest = e.copy(size, word)
    over = e.binary(nearest, size, alu.GREATER, float32)
    whole = e.binary(nearest, over, alu.SUBTRACT, float32)
    return e.binary(whole, e.activate(x, unit.SIGN, float32), alu.MULTIPLY, float32)


def exponential_minus_one(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """``exp(x) - 1``: near 0 as ``2 t / (1 - t)`` with ``t = tanh(x / 2)``."""
    half = e.activate(x, unit.TANH, float32, scale=0.5)
    below = e.inverse(e.scalar(half, alu.MULTIPLY, -1.0, alu.ADD, 1.0, dtype=float32))
    near = e.fused(half, alu.MULTIPLY, 2.0, alu.MULTIPLY, below)
    far = e.scalar(e.activate(x, unit.EXP, float32), alu.SUBTRACT, 1.0)
    e.replace(far, e.scalar(x, alu.ABS, 0.0, alu.LESS, 0.5, dtype=uint8), near)
    return _cast(e, far, dtype)


def log_plus_one(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """``log(1 + x)``, with what the sum lost put back: ``log(u) + (x - (u - 1)) / u``."""
    bounded = e.scalar(x, alu.MINIMUM, FP32_MAX / 2, dtype=float32)
    total = e.scalar(bounded, alu.ADD, 1.0, dtype=float32)
    lost = e.fused(total, alu.SUBTRACT, 1.0, alu.SUBTRACT, bounded, reverse1=True)
    factor = e.inverse(e.scalar(total, alu.MAXIMUM, _TINY))
    correction = e.binary(lost, factor, alu.MULTIPLY)
    result = e.binary(e.activate(x, unit.LOG, float32, bias=1.0), correction, alu.ADD)
    # -0 and what 1 + x swallows whole
    e.replace(result, e.scalar(x, alu.ABS, 0.0, alu.LESS, 2.0**-30, dtype=uint8), e.copy(x, float32))
    return _cast(e, result, dtype)


def cbrt(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The cube root: the power of the magnitude, one step of Newton's method, the sign."""
    size = e.scalar(x, alu.ABS, 0.0, dtype=float32)
    root = e.scalar(size, alu.POWER, 1.0 / 3.0)
    square = e.binary(root, root, alu.MULTIPLY)
    quotient = e.binary(size, e.inverse(e.scalar(square, alu.MAXIMUM, _TINY)), alu.MULTIPLY)
    step = e.binary(root, quotient, alu.SUBTRACT)
    better = e.fused(step, alu.MULTIPLY, -1.0 / 3.0, alu.ADD, root)
    e.replace(root, e.scalar(size, alu.LESS_EQUAL, FP32_MAX, dtype=uint8), better)
    return _cast(e, _with_sign(e, root, e.copy(x, float32)), dtype)


def erf_inv(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The inverse of the error function."""
    wide = e.copy(x, float32)
    less = e.scalar(wide, alu.SUBTRACT, 1.0, reverse0=True)
    w = e.fused(wide, alu.ADD, 1.0, alu.MULTIPLY, less)  # the square of x would lose what is left of 1
    w = e.scalar(e.activate(w, unit.LOG, float32), alu.MULTIPLY, -1.0)
    central = _polynomial(e, e.scalar(w, alu.ADD, -2.5), _CENTRAL)
    tail = _polynomial(e, e.scalar(e.activate(w, unit.SQRT, float32), alu.ADD, -3.0), _TAIL)
    e.replace(tail, e.scalar(w, alu.LESS, 5.0, dtype=uint8), central)
    result = e.binary(tail, wide, alu.MULTIPLY)
    edge = e.scalar(wide, alu.ABS, 0.0, alu.EQUAL, 1.0, dtype=uint8)
    e.replace(result, edge, e.scalar(wide, alu.MULTIPLY, math.inf))
    return _cast(e, result, dtype)


def _polynomial(e: EngineOps, x: NkiTensor, coefficients: Sequence[float]) -> NkiTensor:
    first, *rest = coefficients
    value = e.scalar(x, alu.MULTIPLY, first)
    for coefficient in rest[:-1]:
        value = e.fused(value, alu.ADD, coefficient, alu.MULTIPLY, x)
    return e.scalar(value, alu.ADD, rest[-1])


def atan2(e: EngineOps, y: NkiTensor, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The angle of a point: the arctangent of the smaller by the larger coordinate, then octant by octant."""
    shape = e.common(x, y)
    y, x = (e.copy(e.fit(tile, shape), float32, e.new(shape, float32)) for tile in (y, x))
    height, width = e.scalar(y, alu.ABS, 0.0), e.scalar(x, alu.ABS, 0.0)
    large, small = e.binary(height, width, alu.MAXIMUM), e.binary(height, width, alu.MINIMUM)
    # Numbers whose reciprocals are none are brought nearer to 1, both by one factor.
    factor = e.scalar(large, alu.LESS, _NEAR_ZERO, alu.MULTIPLY, 1 / _NEAR_ZERO - 1, dtype=float32)
    factor = e.scalar(factor, alu.ADD, 1.0)
    large, small = e.binary(large, factor, alu.MULTIPLY), e.binary(small, factor, alu.MULTIPLY)
    ratio = e.binary(small, e.inverse(e.scalar(large, alu.MAXIMUM, _TINY)), alu.MULTIPLY)
    both = e.scalar(small, alu.GREATER, FP32_MAX, dtype=uint8)
    e.replace(ratio, both, Splat(1.0))
    angle = e.activate(ratio, unit.ARCTAN, float32)
    steep = e.binary(height, width, alu.GREATER, uint8)
    e.replace(angle, steep, e.scalar(angle, alu.MULTIPLY, -1.0, alu.ADD, math.pi / 2))
    behind = e.copy(e.bits(x.view(uint32), alu.RIGHT_SHIFT, 31), uint8)
    e.replace(angle, behind, e.scalar(angle, alu.MULTIPLY, -1.0, alu.ADD, math.pi))
    return _cast(e, _with_sign(e, angle, y), dtype)


def _with_sign(e: EngineOps, magnitude: NkiTensor, like: NkiTensor) -> NkiTensor:
    sign = e.bits(like.view(uint32), alu.BITWISE_AND, 1 << 31)
    return e.binary(magnitude.view(uint32), sign, alu.BITWISE_OR).view(float32)


def sign(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """-1, 1, NaN, or zero with its own sign, which the activation unit drops."""
    return _cast(e, _with_sign(e, e.activate(x, unit.SIGN, float32), e.copy(x, float32)), dtype)


def _cast(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    return x if x.dtype == dtype else e.copy(x, dtype)
