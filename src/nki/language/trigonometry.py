"""sin, cos and tan with range reduction: the activation unit knows the sine from -pi to pi only."""

from __future__ import annotations

import math
from typing import Any

import nki.isa as nisa
from nki.core.dtypes import float32, int32
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.isa import functions as unit
from nki.language.arguments import public, result_dtype, tile
from nki.language.combine import cast, combine, copied
from nki.language.memory import new_tile
from nki.spec.operator import names_operator

TWO_PI = (201 / 2**5, 253 / 2**17, 170 / 2**25, 3.9684209e-09)
"""2 pi in pieces; the first three have 8 bits each, so that up to 65536 turns times a piece is exact in float32."""

_BELOW_PI = float.fromhex("0x1.921fb4p+1")
"""The largest float32 that is not above pi."""


@names_operator(unit.SIN)
@public
def sin(x: Any, dtype: Any = None) -> NkiTensor:
    """Sine. The argument is brought to -pi to pi first, unlike in ``nisa.activation(op=nl.sin)``.

    Within 1e-6 of the sine up to ``|x| = 400000``; beyond that less and less accurate, but in -1 to 1. NaN for
    infinities.
    """
    source = tile(x, "x", "sin")
    return _sine(_reduced(source), result_dtype(dtype, source.dtype))


@public
def cos(x: Any, dtype: Any = None) -> NkiTensor:
    """Cosine, as accurate as `sin`."""
    source = tile(x, "x", "cos")
    return _sine(_quarter_turned(_reduced(source)), result_dtype(dtype, source.dtype))


@public
def tan(x: Any, dtype: Any = None) -> NkiTensor:
    """Tangent as sine times the reciprocal of the cosine."""
    source = tile(x, "x", "tan")
    angle = _reduced(source)
    cosine = _sine(_quarter_turned(angle), float32)
    nisa.reciprocal(dst=cosine, data=cosine)
    return combine(alu.MULTIPLY, _sine(angle, float32), cosine, result_dtype(dtype, source.dtype))


def _sine(angle: NkiTensor, dtype: Any) -> NkiTensor:
    result = new_tile(angle.shape, dtype)
    nisa.activation(dst=result, op=unit.SIN, data=angle)
    return result


def _reduced(x: NkiTensor) -> NkiTensor:
    """`x` minus whole turns, in float32 from -pi to pi."""
    turns = cast(combine(alu.MULTIPLY, x, 0.5 / math.pi, int32), float32)
    angle = copied(x, float32)
    for piece in TWO_PI:
        nisa.scalar_tensor_tensor(dst=angle, data=turns, op0=alu.MULTIPLY, operand0=-piece, op1=alu.ADD, operand1=angle)
    # inf * 0 is NaN: an infinite argument has no sine, and the limits below would hide it.
    nisa.scalar_tensor_tensor(dst=angle, data=x, op0=alu.MULTIPLY, operand0=0.0, op1=alu.ADD, operand1=angle)
    nisa.tensor_scalar(dst=angle, data=angle, op0=alu.MINIMUM, operand0=_BELOW_PI, op1=alu.MAXIMUM, operand1=-_BELOW_PI)
    return angle


def _quarter_turned(angle: NkiTensor) -> NkiTensor:
    """``pi/2 - |angle|``, whose sine is the cosine of the angle."""
    result = new_tile(angle.shape, float32)
    nisa.tensor_scalar(
        dst=result,
        data=angle,
        op0=alu.ABS,
        operand0=0.0,
        op1=alu.SUBTRACT,
        operand1=math.pi / 2,
        reverse1=True,
    )
    return result
