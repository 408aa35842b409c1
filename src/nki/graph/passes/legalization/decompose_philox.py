"""Random bits by Philox-4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", in words."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core import dtypes
from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.rewriter import Rewriter

_FACTORS = (0xD2511F53, 0xCD9E8D57)
_KEYS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS, _BLOCK = 10, 4
_HALF, _LOW, _WORD = 16, 0xFFFF, 1 << 32
_SHORT_STATE, _LONG_STATE = 4, 6
"""Words of a state: a key of two, then a counter of two, whose upper half is the key again, or of four."""


def philox(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Blocks of four words for consecutive counters, in order; narrow results are the low bits of words."""
    state, result = op.operands[0], op.results[1].type
    size = state.type.size
    if state.type.dtype is not dtypes.uint32 or size not in (_SHORT_STATE, _LONG_STATE) or not result.size:
        return None
    if not result.dtype.is_integer or result.dtype.itemsize > dtypes.uint32.itemsize:
        return None
    blocks = -(-result.size // _BLOCK)
    flat = r.reshape(state, (size,))
    words = [_part(r, flat, number, 1) for number in range(size)]
    counter = [*words[2:], *words[:2]][:_BLOCK]
    kind = TensorType((blocks,), dtypes.uint32)
    numbers = r.one("iota", [], kind, iota_dimension=0)
    block = _added(r, [r.broadcast(word, (blocks,), (0,)) for word in counter], numbers)
    made = _rounds(r, block, [r.broadcast(word, (blocks,), (0,)) for word in words[:2]])
    columns = [r.reshape(word, (blocks, 1)) for word in made]
    together = r.reshape(_joined(r, columns, 1), (blocks * _BLOCK,))
    bits = r.reshape(_part(r, together, 0, result.size), result.shape)
    after = _added(r, words[2:], r.full(blocks, words[2].type))
    whole = r.reshape(_joined(r, [*words[:2], *after], 0), state.type.shape)
    return [whole, r.convert(bits, result.dtype)]


def _rounds(r: Rewriter, block: Sequence[Value], key: Sequence[Value]) -> list[Value]:
    a, b, c, d = block
    for number in range(_ROUNDS):
        first = r.same("add", key[0], r.full(_KEYS[0] * number % _WORD, a.type))
        second = r.same("add", key[1], r.full(_KEYS[1] * number % _WORD, a.type))
        (high, low), (other_high, other_low) = _product(r, a, _FACTORS[0]), _product(r, c, _FACTORS[1])
        a, b = r.same("xor", r.same("xor", other_high, b), first), other_low
        c, d = r.same("xor", r.same("xor", high, d), second), low
    return [a, b, c, d]


def _product(r: Rewriter, x: Value, factor: int) -> tuple[Value, Value]:
    """The upper and the lower word of a product, from those of halves of words."""

    def number(value: int) -> Value:
        return r.full(value, x.type)

    def upper(value: Value) -> Value:
        return r.same("shift_right_logical", value, number(_HALF))

    def lower(value: Value) -> Value:
        return r.same("and", value, number(_LOW))

    factors = (number(factor & _LOW), number(factor >> _HALF))
    parts = [[r.same("multiply", half, f) for f in factors] for half in (lower(x), upper(x))]
    (low, one), (two, high) = parts
    middle = r.same("add", upper(low), r.same("add", lower(one), lower(two)))
    above = r.same("add", r.same("add", upper(one), upper(two)), upper(middle))
    return r.same("add", high, above), r.same("multiply", x, number(factor))


def _added(r: Rewriter, words: Sequence[Value], number: Value) -> list[Value]:
    """A number of several words, the lowest first, and one of a word."""
    made, carry = [], number
    for word in words:
        total = r.same("add", word, carry)
        made.append(total)
        kind = TensorType(total.type.shape, dtypes.bool_)
        less = r.one("compare", [total, carry], kind, comparison_direction="LT", compare_type="UNSIGNED")
        carry = r.convert(less, dtypes.uint32)
    return made


def _part(r: Rewriter, x: Value, first: int, count: int) -> Value:
    if count == x.type.size:
        return x
    kind = TensorType((count,), x.type.dtype)
    return r.one("slice", [x], kind, start_indices=(first,), limit_indices=(first + count,), strides=(1,))


def _joined(r: Rewriter, parts: Sequence[Value], dim: int) -> Value:
    shape = list(parts[0].type.shape)
    shape[dim] = sum(part.type.shape[dim] for part in parts)
    return r.one("concatenate", parts, TensorType(tuple(shape), parts[0].type.dtype), dimension=dim)
