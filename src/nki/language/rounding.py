"""floor, ceil, trunc, mod and fmod: exact, although the engines round to integers only when they convert."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
from nki.core.dtypes import float32, int32, uint8, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MAX
from nki.isa import alu
from nki.language.arguments import Number, operand, public, result_dtype, tile
from nki.language.broadcasting import common_shape, fit
from nki.language.combine import cast, combine, copied, promoted, two_numbers
from nki.language.memory import filled_tile, new_tile
from nki.spec.operator import Operator

_SIGN = 1 << 31
_INTEGRAL = float(1 << 23)
"""From here on every float32 is an integer."""

_UPPER_HALF = 0xFFFF_F000
"""Sign, exponent and 11 bits of the mantissa of a float32: products of such numbers are exact."""


@public
def floor(x: Any, dtype: Any = None) -> NkiTensor:
    """The largest integer that is not above `x`, exactly; infinities, NaN and the sign of zeros stay."""
    return _rounded(tile(x, "x", "floor"), dtype, alu.GREATER, alu.SUBTRACT)


@public
def ceil(x: Any, dtype: Any = None) -> NkiTensor:
    """The smallest integer that is not below `x`, exactly; infinities, NaN and the sign of zeros stay."""
    return _rounded(tile(x, "x", "ceil"), dtype, alu.LESS, alu.ADD)


@public
def trunc(x: Any, dtype: Any = None) -> NkiTensor:
    """`x` without its fraction, exactly; infinities, NaN and the sign of zeros stay."""
    source = tile(x, "x", "trunc")
    if source.dtype.is_integer:
        return copied(source, result_dtype(dtype, source.dtype))
    magnitude = combine(alu.BITWISE_AND, _bits(_float32(source)), _SIGN - 1).view(float32)
    whole = _towards(magnitude, alu.GREATER, alu.SUBTRACT)
    return _kept_where_integral(source, whole, dtype)


@public
def fmod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Remainder of ``x / y`` with the sign of `x`, as `numpy.fmod`.

    Exact for quotients below 2**21 and divisors that are normal numbers; beyond that float32 arithmetic cannot hold the
    quotient, and the result means nothing. NaN where `y` is 0 or `x` is infinite. Integers pass through float32.
    """
    kind = _kind(x, y, dtype, "fmod")
    dividend, divisor = _operands(x, y, "fmod")
    return cast(_signed(_remainder(dividend, divisor), dividend), kind)


@public
def mod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Remainder of ``x / y`` with the sign of `y`, as `numpy.mod` and Python's ``%``; exact where `fmod` is."""
    kind = _kind(x, y, dtype, "mod")
    dividend, divisor = _operands(x, y, "mod")
    rest = _signed(_remainder(dividend, divisor), dividend)
    differs = combine(alu.LESS, combine(alu.BITWISE_XOR, _bits(rest), _bits(divisor)).view(int32), 0)
    moved = combine(alu.ADD, rest, divisor)
    wanted = combine(alu.LOGICAL_AND, differs, combine(alu.NOT_EQUAL, rest, 0), uint8)
    zero = combine(alu.BITWISE_AND, _bits(divisor), _SIGN).view(float32)
    result = copied(rest)
    nisa.tensor_copy_predicated(dst=result, src=zero, predicate=combine(alu.EQUAL, rest, 0, uint8))
    nisa.tensor_copy_predicated(dst=result, src=moved, predicate=wanted)
    return cast(result, kind)


def _rounded(x: NkiTensor, dtype: Any, off: Operator, correct: Operator) -> NkiTensor:
    if x.dtype.is_integer:
        return copied(x, result_dtype(dtype, x.dtype))
    source = _float32(x)
    return _kept_where_integral(x, _towards(source, off, correct), dtype)


def _towards(x: NkiTensor, off: Operator, correct: Operator) -> NkiTensor:
    """Round to nearest by way of int32, and correct by one where that went the wrong way."""
    nearest = copied(copied(x, int32), float32)
    return combine(correct, nearest, combine(off, nearest, x))


def _kept_where_integral(x: NkiTensor, whole: NkiTensor, dtype: Any) -> NkiTensor:
    """`whole` with the signs of `x`, but `x` itself where it has no fraction, is infinite or NaN."""
    source = _float32(x)
    small = new_tile(source.shape, uint8)
    nisa.tensor_scalar(dst=small, data=source, op0=alu.ABS, operand0=0.0, op1=alu.LESS, operand1=_INTEGRAL)
    result = copied(source)
    nisa.tensor_copy_predicated(dst=result, src=_signed(whole, source), predicate=small)
    return cast(result, result_dtype(dtype, x.dtype))


def _signed(magnitude: NkiTensor, like: NkiTensor) -> NkiTensor:
    """The sign bits of `like` added to a tile in which they are either not set or the same."""
    sign = combine(alu.BITWISE_AND, _bits(like), _SIGN)
    return combine(alu.BITWISE_OR, _bits(magnitude), sign).view(float32)


def _float32(x: NkiTensor) -> NkiTensor:
    return cast(x, float32)


def _bits(x: NkiTensor) -> NkiTensor:
    return x.view(uint32)


# --- remainders


def _kind(x: Any, y: Any, dtype: Any, function: str) -> Any:
    tiles = [t for t in (operand(x, "x", function), operand(y, "y", function)) if isinstance(t, NkiTensor)]
    if not tiles:
        raise two_numbers(function, x, y)
    return result_dtype(dtype, promoted(tiles[0].dtype, tiles[-1].dtype))


def _operands(x: Any, y: Any, function: str) -> tuple[NkiTensor, NkiTensor]:
    """Both operands as float32 tiles of one shape."""
    left, right = operand(x, "x", function), operand(y, "y", function)
    shape = common_shape(function, [t for t in (left, right) if isinstance(t, NkiTensor)])
    return _filled(left, shape), _filled(right, shape)


def _filled(value: NkiTensor | Number, shape: tuple[int, ...]) -> NkiTensor:
    if isinstance(value, NkiTensor):
        return copied(fit(value, shape), float32)
    return filled_tile(shape, float32, value)


def _remainder(x: NkiTensor, y: NkiTensor) -> NkiTensor:
    """``|x| mod |y|``: take off the nearest multiple of ``|y|``, and add one ``|y|`` if that was too much.

    Taking the nearest multiple, which may be one too many, keeps the difference below ``|y|`` and hence representable.
    """
    a, b = (combine(alu.BITWISE_AND, _bits(t), _SIGN - 1).view(float32) for t in (x, y))
    inverse = new_tile(b.shape, float32)
    nisa.reciprocal(dst=inverse, data=b)
    quotient = cast(combine(alu.MULTIPLY, a, inverse, int32), float32)
    rest = _minus_product(a, quotient, b)
    rest = combine(alu.ADD, rest, combine(alu.MULTIPLY, b, combine(alu.LESS, rest, 0)))
    nisa.tensor_copy_predicated(dst=rest, src=a, predicate=combine(alu.LESS, a, b, uint8))
    undefined = combine(alu.LOGICAL_OR, combine(alu.EQUAL, b, 0), combine(alu.GREATER, a, FP32_MAX), uint8)
    nisa.tensor_copy_predicated(dst=rest, src=float("nan"), predicate=undefined)
    return rest


def _minus_product(a: NkiTensor, q: NkiTensor, b: NkiTensor) -> NkiTensor:
    """``a - q * b`` without rounding: products of halves are exact, and each difference is representable."""
    for left in _halves(q):
        for right in _halves(b):
            a = combine(alu.SUBTRACT, a, combine(alu.MULTIPLY, left, right))
    return a


def _halves(x: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    upper = combine(alu.BITWISE_AND, _bits(x), _UPPER_HALF).view(float32)
    return upper, combine(alu.SUBTRACT, x, upper)
