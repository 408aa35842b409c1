"""ATen's elementwise operators: arithmetic, rounding, elementary functions and activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from nki.core.dtypes import bool_, float32, uint32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import CONVERTERS, Call, Converter, Operand, converts, in_dtype, wide
from nki.graph.ir import TensorType, Value

_DIRECT: Mapping[str, str] = {
    "abs": "abs", "neg": "negate", "exp": "exponential", "log": "log", "log1p": "log_plus_one", "tanh": "tanh",
    "expm1": "exponential_minus_one", "sqrt": "sqrt", "rsqrt": "rsqrt", "sin": "sine", "cos": "cosine", "tan": "tan",
    "sigmoid": "logistic", "ceil": "ceil", "floor": "floor", "round": "round_nearest_even",
    "erf": "chlo.erf", "erfc": "chlo.erfc", "erfinv": "chlo.erf_inv", "bitwise_not": "not",
}  # fmt: skip
"""One operation of StableHLO, in the dtype of the result."""

_EXACT = frozenset(("abs", "neg", "ceil", "floor", "round", "bitwise_not"))
"""Operators that need no more precision than their operand has."""


def _direct(aten: str, name: str) -> Converter:
    def convert(b: Builder, call: Call, x: Value) -> Value:
        if aten in ("ceil", "floor", "round") and not call.dtype.is_float:
            return x
        if aten == "abs" and call.dtype.kind == "uint":
            return x
        if aten == "abs" and x.type.dtype.kind == "complex":
            return b.one("abs", (x,), call.type)
        operand = b.convert(x, call.dtype)
        return b.convert(b.unary(name, operand if aten in _EXACT else wide(b, operand)), call.dtype)

    return convert


for _aten, _name in _DIRECT.items():
    CONVERTERS[f"aten.{_aten}.default"] = _direct(_aten, _name)


def _formula(function: Callable[[Builder, Value], Value]) -> Converter:
    """A converter for a formula that is computed in float32."""

    def convert(b: Builder, call: Call, x: Value) -> Value:
        return b.convert(function(b, wide(b, b.convert(x, call.dtype))), call.dtype)

    return convert


_LARGE = 2.0**28
"""From here on 1 is nothing beside a square."""


def _log_beyond(b: Builder, size: Value, near: Value) -> Value:
    """``log(2 * size)`` where a size is large, which does not overflow."""
    return b.select(b.compare("GT", size, _LARGE), b.add(b.unary("log", size), math.log(2.0)), near)


def _signed(b: Builder, size: Value, x: Value) -> Value:
    """A magnitude with the sign of x, that of zero included."""
    return b.multiply(b.unary("sign", x), size)


def _asinh(b: Builder, x: Value) -> Value:
    size = b.unary("abs", x)
    bounded = b.binary("minimum", size, _LARGE)
    square = b.multiply(bounded, bounded)
    rest = b.divide(square, b.add(b.unary("sqrt", b.add(square, 1.0)), 1.0))
    return _signed(b, _log_beyond(b, size, b.unary("log_plus_one", b.add(bounded, rest))), x)


def _acosh(b: Builder, x: Value) -> Value:
    over = b.subtract(b.binary("minimum", x, 2 * _LARGE), 1.0)
    root = b.multiply(b.unary("sqrt", over), b.unary("sqrt", b.add(over, 2.0)))
    return _log_beyond(b, x, b.unary("log_plus_one", b.add(over, root)))


def _atanh(b: Builder, x: Value) -> Value:
    difference = b.subtract(b.unary("log_plus_one", x), b.unary("log_plus_one", b.unary("negate", x)))
    return b.multiply(difference, 0.5)


def _root_of_exponential(b: Builder, size: Value) -> Value:
    """exp(size / 2), whose square may be as large as twice the largest number."""
    return b.unary("exponential", b.multiply(size, 0.5))


def _sinh(b: Builder, x: Value) -> Value:
    size = b.unary("abs", x)
    root = _root_of_exponential(b, size)
    far = b.subtract(b.multiply(b.multiply(root, 0.5), root), b.divide(0.5, b.multiply(root, root)))
    grown = b.unary("exponential_minus_one", b.binary("minimum", size, 1.0))
    near = b.multiply(b.add(grown, b.divide(grown, b.add(grown, 1.0))), 0.5)
    return _signed(b, b.select(b.compare("GT", size, 1.0), far, near), x)


def _cosh(b: Builder, x: Value) -> Value:
    root = _root_of_exponential(b, b.unary("abs", x))
    return b.add(b.multiply(b.multiply(root, 0.5), root), b.divide(0.5, b.multiply(root, root)))


def _leg(b: Builder, x: Value) -> Value:
    """sqrt(1 - x * x): a side of the right triangle with hypotenuse 1."""
    return b.unary("sqrt", b.multiply(b.subtract(1.0, x), b.add(x, 1.0)))


def _one(b: Builder, x: Value) -> Value:
    return b.constant(1.0, x.type.dtype, x.type.shape)


_FORMULAS: Mapping[str, Callable[[Builder, Value], Value]] = {
    "exp2": lambda b, x: b.binary("power", 2.0, x),
    "log2": lambda b, x: b.multiply(b.unary("log", x), 1.0 / math.log(2.0)),
    "log10": lambda b, x: b.multiply(b.unary("log", x), 1.0 / math.log(10.0)),
    "reciprocal": lambda b, x: b.divide(1.0, x),
    "asin": lambda b, x: b.binary("atan2", x, _leg(b, x)),
    "acos": lambda b, x: b.binary("atan2", _leg(b, x), x),
    "atan": lambda b, x: b.binary("atan2", x, _one(b, x)),
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "sinh": _sinh,
    "cosh": _cosh,
}
for _aten, _function in _FORMULAS.items():
    CONVERTERS[f"aten.{_aten}.default"] = _formula(_function)


@converts("trunc")
def _trunc(b: Builder, call: Call, x: Value) -> Value:
    if not call.dtype.is_float:
        return x
    return b.select(b.compare("LT", x, 0.0), b.unary("ceil", x), b.unary("floor", x))


@converts("sign", "sgn")  # complex: PyTorch divides by the size, which takes longer
def _sign(b: Builder, call: Call, x: Value) -> Value:
    made = b.unary("sign", x)
    if not x.type.dtype.is_float:
        return made
    return b.select(b.compare("GT", b.unary("abs", x), 0), made, 0)  # 0 for what is no number, and for -0


@converts("isnan")
def _isnan(b: Builder, call: Call, x: Value) -> Value:
    return b.compare("NE", x, x)


@converts("isinf")
def _isinf(b: Builder, call: Call, x: Value) -> Value:
    if not x.type.dtype.is_float:
        return b.constant(False, bool_, x.type.shape)
    return b.compare("EQ", b.unary("abs", x), np.inf)


@converts("logical_not")
def _logical_not(b: Builder, call: Call, x: Value) -> Value:
    return b.unary("not", b.convert(x, bool_))


# ---------------------------------------------------------------------------------------------------------- arithmetic


@converts("add.Tensor", "add.Scalar")
def _add(b: Builder, call: Call, x: Operand, y: Operand, alpha: float = 1) -> Value:
    left, right = in_dtype(b, x, call.dtype), in_dtype(b, y, call.dtype)
    if call.dtype is bool_:
        return b.binary("or", left, right)
    return b.add(left, right) if alpha == 1 else _with_factor(b, call, "add", left, right, alpha)


def _with_factor(b: Builder, call: Call, name: str, x: Value, y: Value, alpha: float) -> Value:
    """``x + alpha * y`` or ``x - alpha * y``, rounded once; alpha has the dtype of the result."""
    product = b.multiply(wide(b, y), wide(b, b.constant(alpha, call.dtype)))
    return b.convert(b.binary(name, wide(b, x), product), call.dtype)


@converts("sub.Tensor", "sub.Scalar")
def _sub(b: Builder, call: Call, x: Operand, y: Operand, alpha: float = 1) -> Value:
    left, right = in_dtype(b, x, call.dtype), in_dtype(b, y, call.dtype)
    return b.subtract(left, right) if alpha == 1 else _with_factor(b, call, "subtract", left, right, alpha)


def _unrounded(b: Builder, call: Call, *operands: Operand) -> list[Value]:
    """Operands in the dtype of the result, or in float32 if one is a number or a scalar, by which ATen multiplies and
    divides small floats without rounding it to their dtype."""
    exact = [operand for operand in operands if not isinstance(operand, Value) or not operand.type.shape]
    narrow = call.dtype.is_float and call.dtype.bits < float32.bits and call.type.shape
    return [in_dtype(b, operand, float32 if narrow and exact else call.dtype) for operand in operands]


@converts("mul.Tensor", "mul.Scalar")
def _mul(b: Builder, call: Call, x: Value, y: Operand) -> Value:
    if call.dtype is bool_:
        return b.binary("and", b.convert(x, bool_), in_dtype(b, y, bool_))
    return b.convert(b.multiply(*_unrounded(b, call, x, y)), call.dtype)


@converts("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
def _div(b: Builder, call: Call, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return b.convert(b.divide(*_unrounded(b, call, x, y)), call.dtype)
    if not call.dtype.is_float:
        left, right = in_dtype(b, x, call.dtype), in_dtype(b, y, call.dtype)
        quotient = b.divide(left, right)
        return quotient if rounding_mode == "trunc" else _floored(b, left, right, quotient)
    left = in_dtype(b, x, call.dtype)
    left, right = _unrounded(b, call, left, y)  # by tensors it is divided step by step
    if rounding_mode == "trunc":
        return b.convert(_trunc(b, call, b.divide(left, right)), call.dtype)
    return b.convert(_floor_quotient(b, left, right), call.dtype)


def _floor_quotient(b: Builder, x: Value, y: Value) -> Value:
    """x // y of floats, from the remainder as in Python: ``x == y * (x // y) + x % y`` as far as rounding allows."""
    rest = b.binary("remainder", x, y)
    quotient = b.divide(b.subtract(x, rest), y)
    lower = b.binary("and", b.compare("NE", rest, 0), _signs_differ(b, rest, y))
    quotient = b.select(lower, b.subtract(quotient, 1), quotient)
    whole = b.unary("floor", quotient)
    whole = b.select(b.compare("GT", b.subtract(quotient, whole), 0.5), b.add(whole, 1), whole)
    plain = b.divide(x, y)
    whole = b.select(b.compare("EQ", quotient, 0), b.multiply(plain, 0.0), whole)  # zero has the sign of x / y
    return b.select(b.compare("EQ", y, 0), plain, whole)


def _floored(b: Builder, x: Value, y: Value, quotient: Value) -> Value:
    """x // y of integers, whose quotient was rounded towards zero."""
    rest = b.subtract(x, b.multiply(quotient, y))
    lower = b.binary("and", b.compare("NE", rest, 0), _signs_differ(b, rest, y))
    return b.select(lower, b.subtract(quotient, 1), quotient)


def _signs_differ(b: Builder, x: Value, y: Value) -> Value:
    return b.compare("NE", b.convert(b.compare("LT", x, 0), float32), b.convert(b.compare("LT", y, 0), float32))


@converts("fmod.Tensor", "fmod.Scalar")
def _fmod(b: Builder, call: Call, x: Operand, y: Operand) -> Value:
    return b.binary("remainder", in_dtype(b, x, call.dtype), in_dtype(b, y, call.dtype))


@converts("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(b: Builder, call: Call, x: Operand, y: Operand) -> Value:
    left, right = in_dtype(b, x, call.dtype), in_dtype(b, y, call.dtype)
    rest = b.binary("remainder", left, right)
    other_side = b.binary("and", b.compare("NE", rest, 0), _signs_differ(b, rest, right))
    return b.select(other_side, b.add(rest, right), rest)


@converts("maximum")
def _maximum(b: Builder, call: Call, x: Value, y: Value) -> Value:
    name = "or" if call.dtype is bool_ else "maximum"
    return b.binary(name, b.convert(x, call.dtype), b.convert(y, call.dtype))


@converts("minimum")
def _minimum(b: Builder, call: Call, x: Value, y: Value) -> Value:
    name = "and" if call.dtype is bool_ else "minimum"
    return b.binary(name, b.convert(x, call.dtype), b.convert(y, call.dtype))


@converts("atan2")
def _atan2(b: Builder, call: Call, x: Value, y: Value) -> Value:
    return b.binary("atan2", b.convert(x, call.dtype), b.convert(y, call.dtype))


@converts("hypot")
def _hypot(b: Builder, call: Call, x: Value, y: Value) -> Value:
    left, right = (b.unary("abs", wide(b, b.convert(side, call.dtype))) for side in (x, y))
    large, small = b.binary("maximum", left, right), b.binary("minimum", left, right)
    unit = b.binary("maximum", large, _LEAST_NORMAL)  # whose reciprocal is finite
    sides = b.divide(small, unit), b.binary("minimum", b.multiply(large, 1 / _LEAST_NORMAL), 1.0)
    length = b.multiply(unit, b.unary("sqrt", b.add(*(b.multiply(side, side) for side in sides))))
    endless = b.binary("or", b.compare("EQ", left, np.inf), b.compare("EQ", right, np.inf))  # beside NaN as well
    return b.convert(b.select(endless, np.inf, length), call.dtype)


_LEAST_NORMAL = 2.0**-126
"""The smallest float32 with all its digits."""


@converts("logit")
def _logit(b: Builder, call: Call, x: Value, eps: float | None) -> Value:
    """By way of 2 x - 1 around 1/2, where the quotient x / (1 - x) is near 1 and has lost what distinguishes it."""
    data = wide(b, b.convert(x, call.dtype))
    if eps is not None:
        data = b.select(b.compare("LT", data, eps), eps, b.select(b.compare("GT", data, 1.0 - eps), 1.0 - eps, data))
    rest = b.subtract(1.0, data)
    near = b.unary("log_plus_one", b.divide(b.subtract(b.add(data, data), 1.0), rest))
    middle = b.binary("and", b.compare("GT", data, 0.25), b.compare("LT", data, 0.75))
    return b.convert(b.select(middle, near, b.unary("log", b.divide(data, rest))), call.dtype)


@converts("copysign.Tensor", "copysign.Scalar")
def _copysign(b: Builder, call: Call, x: Value, y: Operand) -> Value:
    size, sign = (_bits(b, in_dtype(b, side, call.dtype)) for side in (x, y))
    joined = b.binary("or", b.binary("and", size, _SIZE), b.binary("and", sign, _SIZE + 1))
    made = b.one("bitcast_convert", (joined,), TensorType(joined.type.shape, float32))
    return b.convert(made, call.dtype)


_SIZE = (1 << 31) - 1


def _bits(b: Builder, x: Value) -> Value:
    wide_x = b.convert(x, float32)
    return b.one("bitcast_convert", (wide_x,), TensorType(x.type.shape, uint32))


_POWERS: Mapping[float, Callable[[Builder, Value], Value]] = {
    1: lambda b, x: x,
    2: lambda b, x: b.multiply(x, x),
    3: lambda b, x: b.multiply(b.multiply(x, x), x),
    -1: lambda b, x: b.divide(1.0, x),
    -2: lambda b, x: b.divide(1.0, b.multiply(x, x)),
    0.5: lambda b, x: b.unary("sqrt", x),
    -0.5: lambda b, x: b.unary("rsqrt", x),
}


_CUBE = 3


@converts("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _power(b: Builder, call: Call, x: Operand, y: Operand) -> Value:
    small = in_dtype(b, x, call.dtype)
    base = small if y == _CUBE else wide(b, small)  # ATen rounds the square of small floats
    if not isinstance(y, Value) and y in _POWERS and (base.type.dtype.is_float or y > 0):
        return b.convert(_POWERS[y](b, base), call.dtype)
    return b.convert(b.binary("power", base, wide(b, in_dtype(b, y, call.dtype))), call.dtype)


# --------------------------------------------------------------------------------------------------------- activations


@converts("relu")
def _relu(b: Builder, call: Call, x: Value) -> Value:
    return b.binary("maximum", x, 0)


@converts("leaky_relu")
def _leaky_relu(b: Builder, call: Call, x: Value, slope: float) -> Value:
    return b.select(b.compare("GT", x, 0.0), x, b.convert(b.multiply(wide(b, x), slope), call.dtype))


@converts("elu")
def _elu(b: Builder, call: Call, x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    data = wide(b, x)
    grown = b.unary("exponential_minus_one", b.multiply(data, input_scale))
    chosen = b.select(b.compare("GT", data, 0.0), b.multiply(data, scale), b.multiply(grown, alpha * scale))
    return b.convert(chosen, call.dtype)


@converts("gelu")
def _gelu(b: Builder, call: Call, x: Value, approximate: str) -> Value:
    data = wide(b, x)
    if approximate == "tanh":
        cube = b.multiply(b.multiply(data, data), data)
        inner = b.multiply(b.add(data, b.multiply(cube, 0.044715)), math.sqrt(2.0 / math.pi))
        part = b.unary("tanh", inner)
    else:
        part = b.unary("chlo.erf", b.multiply(data, math.sqrt(0.5)))
    return b.convert(b.multiply(b.multiply(data, 0.5), b.add(part, 1.0)), call.dtype)
