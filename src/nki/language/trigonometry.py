"""sin, cos and tan with range reduction: the activation unit knows the sine from -pi to pi only."""

from __future__ import annotations

import math
from typing import Any

import nki.isa as nisa
from nki.core.dtypes import DType, float32, int32, uint32
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.isa import functions as unit
from nki.language.arguments import public, result_dtype, tile
from nki.language.combine import cast, combine, copied
from nki.language.memory import new_tile
from nki.spec.operator import names_operator

PI = (201 / 2**6, 253 / 2**18, 170 / 2**26, 1.984187159361081e-09)
"""pi in pieces; the first three have 8 bits each, so that up to 65536 half turns times a piece is exact in float32."""

_BELOW_PI = float.fromhex("0x1.921fb4p+1")
"""The largest float32 that is not above pi."""


@names_operator(unit.SIN)
@public
def sin(x: Any, dtype: Any = None) -> NkiTensor:
    """Sine. Half turns are taken off the argument first, unlike in ``nisa.activation(op=nl.sin)``.

    Within 1e-6 of the sine up to ``|x| = 200000``; beyond that less and less accurate, but in -1 to 1. NaN for
    infinities.
    """
    source = tile(x, "x", "sin")
    angle, sign = _reduced(source)
    return _sine(angle, sign, result_dtype(dtype, source.dtype))


@public
def cos(x: Any, dtype: Any = None) -> NkiTensor:
    """Cosine, as accurate as `sin`."""
    source = tile(x, "x", "cos")
    angle, sign = _reduced(source)
    return _sine(_quarter_turned(angle), sign, result_dtype(dtype, source.dtype))


@public
def tan(x: Any, dtype: Any = None) -> NkiTensor:
    """Tangent as sine times the reciprocal of the cosine."""
    source = tile(x, "x", "tan")
    angle, _ = _reduced(source)
    sine, cosine = new_tile(source.shape, float32), new_tile(source.shape, float32)
    nisa.activation(dst=sine, op=unit.SIN, data=angle)
    nisa.activation(dst=cosine, op=unit.SIN, data=_quarter_turned(angle))
    nisa.reciprocal(dst=cosine, data=cosine)
    return combine(alu.MULTIPLY, sine, cosine, result_dtype(dtype, source.dtype))


def _sine(angle: NkiTensor, sign: NkiTensor, dtype: DType) -> NkiTensor:
    """The sine, of the negative angle where the upper bit of `sign` is set, which negates an odd function."""
    turned = combine(alu.BITWISE_XOR, angle.view(uint32), sign).view(float32)
    result = new_tile(angle.shape, dtype)
    nisa.activation(dst=result, op=unit.SIN, data=turned)
    return result


def _reduced(x: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """`x` minus the nearest number of half turns, and as uint32 the sign bit of odd numbers of them.

    The rounded quotient may choose the wrong neighbour near a quarter turn; the sine is as good a little beyond it.
    """
    count = combine(alu.MULTIPLY, x, 1 / math.pi, int32)
    turns = cast(count, float32)
    angle = copied(x, float32)
    for piece in PI:
        nisa.scalar_tensor_tensor(dst=angle, data=turns, op0=alu.MULTIPLY, operand0=-piece, op1=alu.ADD, operand1=angle)
    # inf * 0 is NaN: an infinite argument has no sine, and the limits below would hide it.
    nisa.scalar_tensor_tensor(dst=angle, data=x, op0=alu.MULTIPLY, operand0=0.0, op1=alu.ADD, operand1=angle)
    nisa.tensor_scalar(dst=angle, data=angle, op0=alu.MINIMUM, operand0=_BELOW_PI, op1=alu.MAXIMUM, operand1=-_BELOW_PI)
    sign = new_tile(x.shape, uint32)
    nisa.tensor_scalar(
        dst=sign, data=count.view(uint32), op0=alu.BITWISE_AND, operand0=1, op1=alu.LEFT_SHIFT, operand1=31
    )
    return angle, sign


def _quarter_turned(angle: NkiTensor) -> NkiTensor:
    """``pi/2 - |angle|``, whose sine is the cosine of the angle."""
    result = new_tile(angle.shape, float32)
    nisa.tensor_scalar(
        dst=result, data=angle, op0=alu.ABS, operand0=0.0, op1=alu.SUBTRACT, operand1=math.pi / 2, reverse1=True
    )
    return result
