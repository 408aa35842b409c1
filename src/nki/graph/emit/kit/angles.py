"""sine, cosine and tangent of any float32: half turns are taken off exactly, however many there are.

M. Payne and R. Hanek, Radian reduction for trigonometric functions: of 1/pi only those bits count that make neither
whole turns nor less than the result can hold, and which these are follows from the exponent of the angle. The product
of its significand and 96 of these bits is computed in integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import nki.language as nl
from nki.core.dtypes import DType, float16, float32, int32, uint8, uint32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.engines import EngineOps, Splat
from nki.isa import alu
from nki.isa import functions as unit
from nki.language.trigonometry import PI

_INVERSE_PI = (
    0x00000051, 0x7CC1B727, 0x220A94FE, 0x13ABE8FA, 0x9A6EE06D, 0xB14ACC9E, 0x21C820FF,
)  # fmt: skip
"""Bits of 1/pi from 2**23 down, so that the first 96 of them belong to angles from 1 on, whose last bit is 2**-23."""

_ONE = 127
"""The biased exponent of 1."""

_WORD = 32
_QUARTER = 1 << 30
"""A quarter turn, the highest bit being a half turn."""

_BELOW_HALF = _WORD - 1
_HALF_TURN = 1 << _BELOW_HALF
_BELOW_PI = float.fromhex("0x1.921fb4p+1")
"""The largest float32 that is not above pi, up to which the sine is defined."""


@dataclass(frozen=True, slots=True)
class _Turns:
    """An angle's magnitude modulo a whole turn.

    Attributes:
        high, low: uint32; the highest bit is a half turn, so that the lowest is 2**-63 of one. Zero for angles below 1.
        x: the angle in float32.
        near: where its magnitude is below 1, as uint8.
    """

    high: NkiTensor
    low: NkiTensor
    x: NkiTensor
    near: NkiTensor


def sine(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The sine of any number; NaN for infinities."""
    return nl.sin(x, dtype=dtype) if x.dtype == float16 else _sine(e, e.once(_turns, x), dtype)


def cosine(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The cosine of any number; NaN for infinities."""
    return _short_cosine(e, x, dtype) if x.dtype == float16 else _cosine(e, e.once(_turns, x), dtype)


def tan(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The tangent of any number; NaN for infinities."""
    turns = e.once(_turns, x)
    return e.binary(_sine(e, turns, float32), e.inverse(_cosine(e, turns, float32)), alu.MULTIPLY, dtype)


def _sine(e: EngineOps, turns: _Turns, dtype: DType) -> NkiTensor:
    angle = _angle(e, turns.high, turns.low)
    e.replace(angle, turns.near, e.scalar(turns.x, alu.ABS, 0.0))
    return _signed_sine(e, turns, angle, e.binary(turns.high, turns.x.view(uint32), alu.BITWISE_XOR), dtype)


def _cosine(e: EngineOps, turns: _Turns, dtype: DType) -> NkiTensor:
    """The sine of a quarter turn more. So next to its zeros the cosine is as accurate as anywhere."""
    more = e.column(_QUARTER, uint32, turns.high.shape[0], len(turns.high.shape))
    high = e.binary(turns.high, more, alu.ADD)
    angle = _angle(e, high, turns.low)
    e.replace(angle, turns.near, e.scalar(turns.x, alu.ABS, 0.0, alu.SUBTRACT, math.pi / 2, reverse1=True))
    return _signed_sine(e, turns, angle, high, dtype)


def _signed_sine(e: EngineOps, turns: _Turns, angle: NkiTensor, signs: NkiTensor, dtype: DType) -> NkiTensor:
    """The sine of angles from 0 to a quarter turn with the highest bits of `signs`; NaN where x has none."""
    angle = e.fused(turns.x, alu.MULTIPLY, 0.0, alu.ADD, angle)
    odd = e.bits(signs, alu.BITWISE_AND, _HALF_TURN)
    return e.activate(e.binary(angle.view(uint32), odd, alu.BITWISE_XOR).view(float32), unit.SIN, dtype)


def _angle(e: EngineOps, high: NkiTensor, low: NkiTensor) -> NkiTensor:
    """How far an angle is from the nearest number of half turns, in radians.

    Magnitudes are converted, not signed numbers: then what `low` adds cancels nothing.
    """
    beyond = e.scalar(e.bits(high, alu.LEFT_SHIFT, 1).view(int32), alu.LESS, 0.0, alu.MULTIPLY, -1.0).view(uint32)
    upper = e.bits(e.binary(high, beyond, alu.BITWISE_XOR), alu.BITWISE_AND, _HALF_TURN - 1)
    lower = e.copy(e.binary(low, beyond, alu.BITWISE_XOR), float32)
    half_turns = e.fused(lower, alu.MULTIPLY, 2.0**-_WORD, alu.ADD, e.copy(upper, float32))
    return e.scalar(half_turns, alu.MULTIPLY, math.pi * 2.0**-_BELOW_HALF)


def _turns(e: EngineOps, x: NkiTensor) -> _Turns:
    """The product of an angle's significand and 96 bits of 1/pi, but for the 32 lowest bits."""
    wide = e.here(x) if x.dtype == float32 else e.copy(x, float32)
    bits = wide.view(uint32)
    near = e.scalar(wide, alu.ABS, 0.0, alu.LESS, 1.0, dtype=uint8)
    exponent = e.bits(bits, alu.LEFT_SHIFT, 1, alu.RIGHT_SHIFT, 24)
    first, second, third = _window(e, e.scalar(exponent, alu.SUBTRACT, float(_ONE), alu.MAXIMUM, 0.0))
    number = e.bits(bits, alu.BITWISE_AND, (1 << 23) - 1, alu.BITWISE_OR, 1 << 23)
    e.replace(number, near, Splat(0))
    carried = _upper_product(e, number, third, 1)
    low = e.binary(e.binary(number, second, alu.MULTIPLY), carried, alu.ADD)
    carry = e.binary(low, carried, alu.LESS, uint32)
    high = e.binary(e.binary(number, first, alu.MULTIPLY), _upper_product(e, number, second, 0), alu.ADD)
    return _Turns(e.binary(high, carry, alu.ADD), low, wide, near)


def _window(e: EngineOps, start: NkiTensor) -> list[NkiTensor]:
    """Three words of 1/pi from the bit `start` on, which is at most 128: inf and NaN, for which any will do."""
    after = e.bits(start, alu.BITWISE_AND, _WORD - 1)
    before = e.bits(start, alu.BITWISE_AND, _WORD - 1, alu.BITWISE_XOR, _WORD - 1)
    steps = (1, 2, 3)
    later = [e.scalar(start, alu.GREATER_EQUAL, float(_WORD * step), dtype=uint8) for step in steps]
    words = []
    for place in range(len(_INVERSE_PI) - len(steps)):
        word = e.filled(_INVERSE_PI[place], uint32, start.shape)
        for step, beyond in zip(steps, later, strict=True):
            e.replace(word, beyond, Splat(_INVERSE_PI[place + step]))
        words.append(word)
    found = []
    for word, following in pairwise(words):
        lower = e.binary(e.bits(following, alu.RIGHT_SHIFT, 1), before, alu.RIGHT_SHIFT)
        found.append(e.binary(e.binary(word, after, alu.LEFT_SHIFT), lower, alu.BITWISE_OR))
    return found


def _upper_product(e: EngineOps, number: NkiTensor, word: NkiTensor, skipped: int) -> NkiTensor:
    """``number * word >> 32`` of 24 bits and 32, byte by byte of the word but for the lowest `skipped`.

    A byte's product and what is carried to it are below 2**32.
    """
    total = None
    for byte in range(skipped, _WORD // 8):
        part = e.binary(number, e.bits(word, alu.RIGHT_SHIFT, 8 * byte, alu.BITWISE_AND, 0xFF), alu.MULTIPLY)
        total = e.bits(part if total is None else e.binary(part, total, alu.ADD), alu.RIGHT_SHIFT, 8)
    assert total is not None
    return total


def _short_cosine(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The cosine of float16: the sine of what is left after an odd number of quarter turns, which are few."""
    count = e.scalar(x, alu.MULTIPLY, 1 / math.pi, alu.SUBTRACT, 0.5, dtype=int32)
    turns = e.scalar(count, alu.ADD, 0.5, dtype=float32)
    angle = e.copy(x, float32)
    for piece in PI:
        angle = e.fused(turns, alu.MULTIPLY, -piece, alu.ADD, angle)
    angle = e.fused(x, alu.MULTIPLY, 0.0, alu.ADD, angle)  # NaN for infinities, which the limits would hide
    angle = e.scalar(angle, alu.MINIMUM, _BELOW_PI, alu.MAXIMUM, -_BELOW_PI)
    even = e.bits(e.bits(count.view(uint32), alu.BITWISE_XOR, 1), alu.LEFT_SHIFT, 31)
    return e.activate(e.binary(angle.view(uint32), even, alu.BITWISE_XOR).view(float32), unit.SIN, dtype)
