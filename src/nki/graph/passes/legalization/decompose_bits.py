"""Operations on the bits of numbers, spelled out in shifts and sums of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from math import prod

from nki.core import dtypes
from nki.core.dtypes import DType
from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.legalization.decompose_philox import philox
from nki.graph.passes.rewriter import Rewriter

_EXPONENT, _MANTISSA, _BIAS = 8, 23, 127
"""How float32 is made: bits of the exponent and of the mantissa, and what is added to the exponent."""
_SIGN, _INFINITE, _ALL = 1 << 31, 0xFF << 23, (1 << 32) - 1


def reduce_precision(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Rounded to fewer bits: too large numbers are infinite, subnormal ones zeros of their sign."""
    (value,) = op.operands
    exponent, mantissa = int(op.attributes["exponent_bits"]), int(op.attributes["mantissa_bits"])
    own = _OWN_BITS.get(value.type.dtype)
    if own is None:
        return None
    if exponent >= own[0] and mantissa >= own[1]:
        return op.operands
    if (exponent, mantissa) == (_EXPONENT, 7):
        return [r.convert(r.convert(value, dtypes.bfloat16), value.type.dtype)]
    wide = r.convert(value, dtypes.float32)
    made = _rounded(r, wide, exponent if exponent < own[0] else _EXPONENT, mantissa)
    return [r.convert(made, value.type.dtype)]


_OWN_BITS = {dtypes.float32: (8, 23), dtypes.bfloat16: (8, 7), dtypes.float16: (5, 10)}


def _rounded(r: Rewriter, value: Value, exponent: int, mantissa: int) -> Value:
    words = TensorType(value.type.shape, dtypes.uint32)

    def number(bits: int) -> Value:
        return r.full(bits, words)

    bits = source = r.one("bitcast_convert", [value], words)
    lost = _MANTISSA - mantissa
    if lost > 0:
        last = r.same("and", r.same("shift_right_logical", bits, number(lost)), number(1))
        bits = r.same("add", bits, r.same("add", last, number((1 << (lost - 1)) - 1)))
        bits = r.same("and", bits, number(_ALL - (1 << lost) + 1))
    if exponent < _EXPONENT:
        sign = r.same("and", bits, number(_SIGN))
        size = r.same("and", bits, number(_INFINITE))
        most = (1 << (exponent - 1)) - 1
        over = _compared(r, size, number((_BIAS + most) << _MANTISSA), "GT")
        under = _compared(r, size, number((_BIAS - most) << _MANTISSA), "LE")
        infinite = r.same("or", sign, number(_INFINITE))
        bits = r.op("select", [over, infinite, bits], [words])[0]
        bits = r.op("select", [under, sign, bits], [words])[0]
    nan = _compared(r, r.same("and", source, number(_ALL - _SIGN)), number(_INFINITE), "GT")
    bits = r.op("select", [nan, source, bits], [words])[0]
    return r.one("bitcast_convert", [bits], value.type)


def _compared(r: Rewriter, a: Value, b: Value, direction: str) -> Value:
    kind = TensorType(a.type.shape, dtypes.bool_)
    return r.one("compare", [a, b], kind, comparison_direction=direction, compare_type="UNSIGNED")


_WORDS: Mapping[int, DType] = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32}
"""Unsigned integers by their bits."""


def bitcast_convert(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Between elements of different sizes: the parts of words, the lowest bits first, are a last dimension."""
    (value,), kind = op.operands, op.results[0].type
    have, want = value.type.dtype.bits, kind.dtype.bits
    if have == want or not {have, want} <= _WORDS.keys() or dtypes.bool_ in (value.type.dtype, kind.dtype):
        return None
    bits = _as(r, value, _WORDS[have])
    return [_as(r, _split(r, bits, _WORDS[want]) if have > want else _joined(r, bits, _WORDS[want]), kind.dtype)]


def _as(r: Rewriter, value: Value, dtype: DType) -> Value:
    """The bits of a value as another type of its size."""
    if value.type.dtype is dtype:
        return value
    return r.one("bitcast_convert", [value], TensorType(value.type.shape, dtype))


def _split(r: Rewriter, value: Value, dtype: DType) -> Value:
    shape, parts = value.type.shape, []
    for place in range(0, value.type.dtype.bits, dtype.bits):
        moved = r.same("shift_right_logical", value, r.full(place, value.type)) if place else value
        low = r.same("and", moved, r.full((1 << dtype.bits) - 1, value.type))
        parts.append(r.reshape(r.convert(low, dtype), (*shape, 1)))
    kind = TensorType((*shape, len(parts)), dtype)
    return r.one("concatenate", parts, kind, dimension=len(shape))


def _joined(r: Rewriter, value: Value, dtype: DType) -> Value:
    *shape, count = value.type.shape
    words = []
    for place in range(count):
        starts, limits = (*(0 for _ in shape), place), (*shape, place + 1)
        kind, strides = TensorType((*shape, 1), value.type.dtype), (1,) * len(limits)
        part = r.one("slice", [value], kind, start_indices=starts, limit_indices=limits, strides=strides)
        word = r.convert(r.reshape(part, shape), dtype)
        high = r.full(place * value.type.dtype.bits, word.type)
        words.append(r.same("shift_left", word, high) if place else word)
    return reduce(partial(r.same, "or"), words)


# ----------------------------------------------------------------------------------------------------------- randomness


def rng_bit_generator(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """The kernel makes both words of all counters, one after the other; XLA interleaves them along a dimension: the
    first one of even size, else the longest. Narrow results are the low bits of words."""
    if op.attributes.get("rng_algorithm") == "PHILOX":
        return philox(r, op)
    state, result = op.operands[0], op.results[1].type
    word = _word_of(result.dtype)
    if word is None or not result.size or (len(result.shape) == 2 and result.shape[0] == 2 and word is result.dtype):
        return None
    shape = result.shape or (1,)
    dim = next((d for d, size in enumerate(shape) if size % 2 == 0), max(range(len(shape)), key=lambda d: shape[d]))
    before, half, behind = prod(shape[:dim]), -(-shape[dim] // 2), prod(shape[dim + 1 :])
    kinds = [op.results[0].type, TensorType((2, before * half * behind), word)]
    after, bits = r.op(op.name, [state], kinds, op.attributes)
    apart = r.transpose(r.reshape(bits, (2, before, half, behind)), (1, 2, 0, 3))
    all_of = r.reshape(apart, (before, 2 * half, behind))
    kept = (before, shape[dim], behind)
    if kept != all_of.type.shape:
        kind = TensorType(kept, word)
        all_of = r.one("slice", [all_of], kind, start_indices=(0, 0, 0), limit_indices=kept, strides=(1, 1, 1))
    return [after, r.convert(r.reshape(all_of, result.shape), result.dtype)]


def _word_of(dtype: DType) -> DType | None:
    """The words from whose low bits integers are made; None for those that are wider."""
    if not dtype.is_integer or dtype.kind == "bool" or dtype.itemsize > dtypes.uint32.itemsize:
        return None
    return dtype if dtype in (dtypes.int32, dtypes.uint32) else dtypes.uint32
