"""Integer arithmetic that wraps: 32-bit integers on GpSimd, narrower ones by way of them, and bit counts."""

from __future__ import annotations

from nki.core.dtypes import DType, float32, int32, uint8, uint16, uint32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.engines import EngineOps, Splat, is_word
from nki.isa import alu
from nki.spec.operator import Operator

_UNSIGNED = {1: uint8, 2: uint16, 4: uint32}
_WORD_BITS = 32


def word_of(dtype: DType) -> DType:
    """The 32-bit integer that holds all values of an integer type."""
    return dtype if is_word(dtype) else int32


def widened(e: EngineOps, x: NkiTensor) -> NkiTensor:
    """The values as 32-bit integers."""
    return x if is_word(x.dtype) else e.copy(x, int32)


def wrapped(e: EngineOps, x: NkiTensor, dtype: DType) -> NkiTensor:
    """The low bits of 32-bit integers."""
    if is_word(dtype):
        return x.view(dtype)
    factor = 4 // dtype.itemsize
    last = len(x.shape) - 1
    lanes = x.view(dtype)
    return e.copy(lanes.slice(last, 0, lanes.shape[last], factor), dtype)


def arithmetic(e: EngineOps, a: NkiTensor, b: NkiTensor, op: Operator, dtype: DType) -> NkiTensor:
    """add, subtract, multiply, maximum or minimum."""
    a, b = widened(e, a), widened(e, b)
    return wrapped(e, e.binary(a, b, op, word_of(dtype)), dtype)


def compared(e: EngineOps, a: NkiTensor, b: NkiTensor, op: Operator) -> NkiTensor:
    """Truth values as bytes; 32-bit integers are compared exactly."""
    if not is_word(a.dtype):
        return e.binary(a, b, op, uint8)
    return e.copy(e.binary(a, b, op, int32), uint8)


def absolute(e: EngineOps, x: NkiTensor) -> NkiTensor:
    """The magnitude; that of the smallest number wraps to itself."""
    if not x.dtype.signed:
        return x
    return arithmetic(e, x, negative(e, x), alu.MAXIMUM, x.dtype)


def negative(e: EngineOps, x: NkiTensor) -> NkiTensor:
    """``0 - x``."""
    return arithmetic(e, e.tile(Splat(0), x.dtype, x.shape), x, alu.SUBTRACT, x.dtype)


def sign(e: EngineOps, x: NkiTensor) -> NkiTensor:
    """-1, 0 or 1."""
    if not x.dtype.signed:
        return e.scalar(x, alu.MINIMUM, 1)
    return e.scalar(x, alu.MINIMUM, 1.0, alu.MAXIMUM, -1.0)


def _negative_mask(e: EngineOps, x: NkiTensor) -> NkiTensor:
    """All bits set where x is negative."""
    return e.scalar(x, alu.LESS, 0.0, alu.MULTIPLY, -1.0)


def arithmetic_shift(e: EngineOps, x: NkiTensor, count: NkiTensor) -> NkiTensor:
    """A right shift that keeps the sign: of the complement, where it is set."""
    if not x.dtype.signed:
        return _sign_filled(e, x, count)
    mask = _negative_mask(e, x)
    shifted = e.binary(e.binary(x, mask, alu.BITWISE_XOR), count, alu.RIGHT_SHIFT)
    return e.binary(shifted, mask, alu.BITWISE_XOR)


def _sign_filled(e: EngineOps, x: NkiTensor, count: NkiTensor) -> NkiTensor:
    """An arithmetic shift of unsigned numbers, whose highest bit counts as a sign."""
    signed = {1: "int8", 2: "int16", 4: "int32"}[x.dtype.itemsize]
    return arithmetic_shift(e, x.view(signed), count.view(signed)).view(x.dtype)


def count_leading_zeros(e: EngineOps, x: NkiTensor) -> NkiTensor:
    """From the exponent of the number as float32, without the second highest bit so that it does not round up."""
    bits = x.view(_UNSIGNED[x.dtype.itemsize])
    highest = e.binary(bits, e.bits(e.bits(bits, alu.RIGHT_SHIFT, 1), alu.INVERT, 0), alu.BITWISE_AND)
    exponent = e.bits(e.copy(highest, float32).view(uint32), alu.RIGHT_SHIFT, 23)
    width = 8 * x.dtype.itemsize
    biased = float(127 + width - 1)
    return e.scalar(
        e.scalar(exponent, alu.SUBTRACT, biased, reverse0=True, dtype=float32), alu.MINIMUM, width, dtype=x.dtype
    )


def popcnt(e: EngineOps, x: NkiTensor) -> NkiTensor:
    """Bits that are set: pairs, nibbles and bytes are added up within bytes, then bytes."""
    size = x.dtype.itemsize
    lanes = (x if x.is_contiguous() else e.copy(x, x.dtype)).view(uint8)
    odd = e.bits(lanes, alu.RIGHT_SHIFT, 1, alu.BITWISE_AND, 0x55)
    pairs = e.binary(lanes, odd, alu.SUBTRACT)
    nibbles = e.binary(
        e.bits(pairs, alu.BITWISE_AND, 0x33), e.bits(pairs, alu.RIGHT_SHIFT, 2, alu.BITWISE_AND, 0x33), alu.ADD
    )
    both = e.binary(e.bits(nibbles, alu.RIGHT_SHIFT, 4), nibbles, alu.ADD)
    count = e.bits(both, alu.BITWISE_AND, 0x0F)
    if size == 1:
        return count.view(x.dtype)
    last = len(x.shape) - 1
    total = None
    for lane in range(size):
        part = count.slice(last, lane, count.shape[last], size)
        total = part if total is None else e.binary(total, part, alu.ADD)
    assert total is not None
    return e.copy(total, x.dtype)


def divided(e: EngineOps, a: NkiTensor, b: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """Quotient, rounded towards zero, and remainder; division by 0 gives -1 and a, as XLA does.

    The float32 quotient is right to 22 bits, a second one of what remains to the last but one; a comparison settles it.
    """
    kind = a.dtype
    shape = e.common(a, b)
    a, b = (widened(e, tile) for tile in (a, b))
    size_a, size_b = (_magnitude(e, tile) for tile in (a, b))
    inverse = e.inverse(size_b)
    first = e.copy(e.binary(e.copy(size_a, float32), inverse, alu.MULTIPLY, float32), uint32)
    rest = _minus(e, size_a, first, size_b)
    signed_rest = rest.view(int32)
    second = e.copy(e.binary(e.copy(signed_rest, float32), inverse, alu.MULTIPLY, float32), int32)
    quotient = e.binary(first, second.view(uint32), alu.ADD)
    rest = _minus(e, size_a, quotient, size_b).view(int32)
    mask = _negative_mask(e, rest)  # -1 where the quotient is one too large
    quotient = e.binary(quotient.view(int32), mask, alu.ADD)
    rest = e.binary(rest, e.binary(mask, size_b.view(int32), alu.BITWISE_AND), alu.ADD)
    if kind == uint32:
        quotient, rest = _large_divisors(e, size_a, size_b, quotient, rest)
    if kind.signed:
        turned = _negative_mask(e, e.binary(a, b, alu.BITWISE_XOR))
        quotient = _turned(e, quotient, turned)
        rest = _turned(e, rest, _negative_mask(e, a))
    zero = e.fit(e.scalar(b, alu.EQUAL, 0.0, dtype=uint8), shape)
    quotient, rest = e.copy(e.fit(quotient, shape), int32), e.copy(e.fit(rest, shape), int32)
    e.replace(quotient, zero, Splat(-1))
    e.replace(rest, zero, a.view(int32))
    return wrapped(e, quotient, kind), wrapped(e, rest, kind)


def _magnitude(e: EngineOps, x: NkiTensor) -> NkiTensor:
    return absolute(e, x).view(uint32) if x.dtype.signed else x


def _minus(e: EngineOps, a: NkiTensor, q: NkiTensor, b: NkiTensor) -> NkiTensor:
    return e.binary(a, e.binary(q, b, alu.MULTIPLY), alu.SUBTRACT)


def _turned(e: EngineOps, x: NkiTensor, mask: NkiTensor) -> NkiTensor:
    """Two's complement where the mask is set."""
    return e.binary(e.binary(x, mask, alu.BITWISE_XOR), mask, alu.SUBTRACT)


def _large_divisors(
    e: EngineOps, a: NkiTensor, b: NkiTensor, quotient: NkiTensor, rest: NkiTensor
) -> tuple[NkiTensor, NkiTensor]:
    """Divisors with the highest bit set go into a number once or not at all; their remainders do not fit int32."""
    large = e.copy(e.bits(b, alu.RIGHT_SHIFT, 31), uint8)
    once = e.binary(a, b, alu.GREATER_EQUAL, uint32)
    taken = e.binary(a, e.binary(once, b, alu.MULTIPLY), alu.SUBTRACT)
    shape = e.common(a, b)
    quotient, rest = (e.copy(e.fit(tile, shape), int32) for tile in (quotient, rest))
    e.replace(quotient, large, once.view(int32))
    e.replace(rest, large, taken.view(int32))
    return quotient, rest


def power(e: EngineOps, base: NkiTensor, exponent: NkiTensor) -> NkiTensor:
    """By squaring, bit by bit of the exponent; negative exponents leave 0, but 1 and -1 as XLA does."""
    kind = base.dtype
    shape = e.common(base, exponent)
    square = e.copy(e.fit(widened(e, base), shape), word_of(kind), e.new(shape, word_of(kind)))
    count = widened(e, exponent)
    one = e.column(1, square.dtype, shape[0], len(shape))
    result = e.filled(1, square.dtype, shape)
    for bit in range(_WORD_BITS):
        chosen = e.copy(e.bits(count, alu.RIGHT_SHIFT, bit, alu.BITWISE_AND, 1), uint8)
        factor = e.where(chosen, square, Splat(1), square.dtype)
        result = e.binary(result, factor, alu.MULTIPLY)
        square = e.binary(square, square, alu.MULTIPLY)
    if kind.signed:
        below = e.scalar(count, alu.LESS, 0.0, dtype=uint8)
        wide = widened(e, base)
        unit = e.binary(wide, one, alu.EQUAL)
        minus = e.binary(wide, e.column(-1, wide.dtype, shape[0], len(shape)), alu.EQUAL)
        odd = e.bits(count, alu.BITWISE_AND, 1)
        turned = e.binary(minus, e.binary(one, e.binary(odd, odd, alu.ADD), alu.SUBTRACT), alu.MULTIPLY)
        e.replace(result, below, e.binary(unit, turned, alu.ADD))
    return wrapped(e, result, kind)
