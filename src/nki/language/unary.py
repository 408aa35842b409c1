"""Functions of one tile: ALU functions, and the functions of the Scalar engine's activation unit.

Each one returns a new SBUF tile of the shape of `x`, a tile in SBUF or PSUM; `dtype` is that of the result, by default
that of `x`. All compute in float32. Passed as ``op=``, the same names are operators of instructions.
"""

from __future__ import annotations

import math
from typing import Any

import nki.isa as nisa
from nki.core.dtypes import float32, int32, uint8, uint32
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.isa import functions as unit
from nki.language.arguments import public, result_dtype, tile
from nki.language.combine import cast, combine, copied, in_sbuf
from nki.language.memory import new_tile
from nki.spec.operator import Operator, names_operator

prelu: Operator = unit.PRELU
"""ReLU with a slope for negative inputs: an operator of nisa.activate2 only, which takes the slope."""


def _activated(operator: Operator, x: Any, dtype: Any) -> NkiTensor:
    """One pass through the activation unit."""
    source = tile(x, "x", operator.name)
    result = new_tile(source.shape, result_dtype(dtype, source.dtype))
    nisa.activation(dst=result, op=operator, data=source)
    return result


def _on_alu(operator: Operator, x: NkiTensor, dtype: Any) -> NkiTensor:
    result = new_tile(x.shape, result_dtype(dtype, x.dtype))
    nisa.tensor_scalar(dst=result, data=x, op0=operator, operand0=0.0)
    return result


@names_operator(alu.ABS)
@public
def abs(x: Any, dtype: Any = None) -> NkiTensor:
    """``|x|``; exact for every dtype, and int32 wraps at its minimum."""
    source = tile(x, "x", "abs")
    kind = result_dtype(dtype, source.dtype)
    if source.dtype == int32:
        return cast(combine(alu.MAXIMUM, source, combine(alu.SUBTRACT, 0, source)), kind)
    if not source.dtype.signed:
        return copied(source, kind)
    return _on_alu(alu.ABS, source, kind)


@public
def negative(x: Any, dtype: Any = None) -> NkiTensor:
    """``-x``; zeros change their sign. 32-bit integers are exact and wrap; narrower unsigned ones saturate at 0."""
    source = tile(x, "x", "negative")
    if source.dtype.is_integer:
        return combine(alu.SUBTRACT, 0, source, result_dtype(dtype, source.dtype))
    return combine(alu.MULTIPLY, source, -1.0, dtype)


@names_operator(alu.SQUARE)
@public
def square(x: Any, dtype: Any = None) -> NkiTensor:
    """``x * x``; 32-bit integers are exact."""
    source = tile(x, "x", "square")
    if source.dtype.is_integer:
        return combine(alu.MULTIPLY, source, source, dtype)
    return _activated(alu.SQUARE, source, dtype)


@names_operator(alu.RELU)
@public
def relu(x: Any, dtype: Any = None) -> NkiTensor:
    """``max(x, 0)``."""
    return combine(alu.MAXIMUM, tile(x, "x", "relu"), 0, dtype)


@names_operator(alu.RSQRT)
@public
def rsqrt(x: Any, dtype: Any = None) -> NkiTensor:
    """``1 / sqrt(x)`` on GpSimd, which is more accurate than the Scalar engine and reaches no PSUM.

    (nki/api/nki.api.shared.rst, "NKI Engine Selection".) A tile in PSUM is copied first. For speed use
    ``nisa.activation(op=nl.rsqrt)``.
    """
    return _on_alu(alu.RSQRT, in_sbuf(tile(x, "x", "rsqrt")), dtype)


@names_operator(alu.RECIPROCAL)
@public
def reciprocal(x: Any, dtype: Any = None) -> NkiTensor:
    """``1 / x`` on the Vector engine, which is more accurate than the Scalar engine.

    For large tiles ``nisa.activation(op=nl.reciprocal)`` is faster (nki/api/nki.api.shared.rst, "NKI Engine
    Selection").
    """
    source = tile(x, "x", "reciprocal")
    result = new_tile(source.shape, result_dtype(dtype, source.dtype))
    nisa.reciprocal(dst=result, data=source)
    return result


@names_operator(alu.INVERT)
@public
def invert(x: Any, dtype: Any = None) -> NkiTensor:
    """All bits of integers inverted."""
    source = tile(x, "x", "invert")
    ones = int(source.dtype.max) if not source.dtype.signed else -1
    return combine(alu.BITWISE_XOR, source, ones, dtype)


@public
def logical_not(x: Any, dtype: Any = None) -> NkiTensor:
    """1 where `x` is 0, else 0."""
    return combine(alu.EQUAL, tile(x, "x", "logical_not"), 0, dtype)


@names_operator(unit.SIGN)
@public
def sign(x: Any, dtype: Any = None) -> NkiTensor:
    """-1, 0 or 1 by the sign of `x`."""
    return _activated(unit.SIGN, x, dtype)


@names_operator(unit.EXP)
@public
def exp(x: Any, dtype: Any = None) -> NkiTensor:
    """``e ** x``."""
    return _activated(unit.EXP, x, dtype)


@names_operator(unit.LOG)
@public
def log(x: Any, dtype: Any = None) -> NkiTensor:
    """Natural logarithm; the hardware is specified for 2**-64 to 2**64."""
    return _activated(unit.LOG, x, dtype)


@names_operator(unit.SQRT)
@public
def sqrt(x: Any, dtype: Any = None) -> NkiTensor:
    """Square root; the hardware is specified for 2**-116 to 2**118."""
    return _activated(unit.SQRT, x, dtype)


@names_operator(unit.TANH)
@public
def tanh(x: Any, dtype: Any = None) -> NkiTensor:
    """Hyperbolic tangent."""
    return _activated(unit.TANH, x, dtype)


@names_operator(unit.ARCTAN)
@public
def arctan(x: Any, dtype: Any = None) -> NkiTensor:
    """Inverse tangent of any number: the activation unit gets 1 / x where that is smaller."""
    source = tile(x, "x", "arctan")
    size = abs(source, dtype=float32)
    inverse = reciprocal(size)
    angle = combine(alu.MINIMUM, size, inverse)
    nisa.activation(dst=angle, op=unit.ARCTAN, data=angle)
    beyond = combine(alu.SUBTRACT, math.pi / 2, angle)
    nisa.tensor_copy_predicated(dst=angle, src=beyond, predicate=combine(alu.GREATER, size, 1, uint8))
    signs = combine(alu.BITWISE_AND, cast(source, float32).view(uint32), 1 << 31)
    signed = combine(alu.BITWISE_OR, angle.view(uint32), signs).view(float32)
    return cast(signed, result_dtype(dtype, source.dtype))


@names_operator(unit.SIGMOID)
@public
def sigmoid(x: Any, dtype: Any = None) -> NkiTensor:
    """``1 / (1 + exp(-x))``."""
    return _activated(unit.SIGMOID, x, dtype)


@names_operator(unit.SOFTPLUS)
@public
def softplus(x: Any, dtype: Any = None) -> NkiTensor:
    """``log(1 + exp(x))``."""
    return _activated(unit.SOFTPLUS, x, dtype)


@names_operator(unit.MISH)
@public
def mish(x: Any, dtype: Any = None) -> NkiTensor:
    """``x * tanh(softplus(x))``."""
    return _activated(unit.MISH, x, dtype)


@names_operator(unit.ERF)
@public
def erf(x: Any, dtype: Any = None) -> NkiTensor:
    """Error function."""
    return _activated(unit.ERF, x, dtype)


@names_operator(unit.ERF_DX)
@public
def erf_dx(x: Any, dtype: Any = None) -> NkiTensor:
    """Derivative of the error function."""
    return _activated(unit.ERF_DX, x, dtype)


@names_operator(unit.GELU)
@public
def gelu(x: Any, dtype: Any = None) -> NkiTensor:
    """``x * Phi(x)`` with the normal distribution function."""
    return _activated(unit.GELU, x, dtype)


@names_operator(unit.GELU_DX)
@public
def gelu_dx(x: Any, dtype: Any = None) -> NkiTensor:
    """Derivative of `gelu`."""
    return _activated(unit.GELU_DX, x, dtype)


@names_operator(unit.GELU_APPRX_TANH)
@public
def gelu_apprx_tanh(x: Any, dtype: Any = None) -> NkiTensor:
    """`gelu` with the approximation by tanh."""
    return _activated(unit.GELU_APPRX_TANH, x, dtype)


@names_operator(unit.GELU_APPRX_SIGMOID)
@public
def gelu_apprx_sigmoid(x: Any, dtype: Any = None) -> NkiTensor:
    """``x * sigmoid(1.702 * x)``."""
    return _activated(unit.GELU_APPRX_SIGMOID, x, dtype)


@names_operator(unit.GELU_APPRX_SIGMOID_DX)
@public
def gelu_apprx_sigmoid_dx(x: Any, dtype: Any = None) -> NkiTensor:
    """Derivative of `gelu_apprx_sigmoid`."""
    return _activated(unit.GELU_APPRX_SIGMOID_DX, x, dtype)


@names_operator(unit.SILU)
@public
def silu(x: Any, dtype: Any = None) -> NkiTensor:
    """``x * sigmoid(x)``."""
    return _activated(unit.SILU, x, dtype)


@names_operator(unit.SILU_DX)
@public
def silu_dx(x: Any, dtype: Any = None) -> NkiTensor:
    """Derivative of `silu`."""
    return _activated(unit.SILU_DX, x, dtype)
