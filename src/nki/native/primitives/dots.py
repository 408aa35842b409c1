"""Where bfloat16 dot products have the bits of the defined order of multiply-adds.

Intel documents ``vdpbf16ps`` as two steps that round: the upper product of a pair is added to the sum, and then the
lower one (Architecture Instruction Set Extensions Programming Reference, VDPBF16PS). A product of two bfloat16 is exact
in float32, so each step is a fused multiply-add, except that subnormal numbers count as 0. `order_text` checks the
first on the processor that it runs on; `LEAST` excludes the second: if the least nonzero magnitudes of both operands
have the biased exponents a and b, every sum is a multiple of ``2**(a + b - 268)``, which is 0 or a normal number.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki.native.cpu_features import has
from nki.native.primitives.writer import SHARED_CODE, FunctionBuilder

LEAST = 142
"""The least sum of biased exponents for which dot products have the bits of multiply-adds."""
NEVER, ALWAYS = 1 << 20, -(1 << 20)
"""Limits in its place: for processors that add in another order, and for products that may be inexact."""

_SUBNORMAL = -(1 << 16)
"""Stands for the exponent of a panel with a subnormal number: below `LEAST` with every other exponent."""
_FRACTION_BITS = 7
_MAGNITUDE = 0x7FFF
_LANES = 16
_ROUNDS = 64
_PAIR, _SINGLE = (0x87FF87FF - (1 << 32), 0x3C003C00), (0x87FFFFFF - (1 << 32), 0x3C000000)
"""The bits of a pair, and of a sum, that are drawn, and those that are set: exponents are from 120 to 135."""
_FLOATS, _WORDS, _PAIRS = f"vector<{_LANES}xf32>", f"vector<{_LANES}xi32>", f"vector<{2 * _LANES}xbf16>"


def dot(w: FunctionBuilder, total: str, left: str, right: str) -> str:
    """The sums and the products of pairs; operands are vectors of words with a pair each."""
    pairs = [w.value(f"vector.bitcast {words} : {_WORDS} to {_PAIRS}") for words in (left, right)]
    call = f'llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"({total}, {", ".join(pairs)})'
    return w.value(f"{call} : ({_FLOATS}, {_PAIRS}, {_PAIRS}) -> {_FLOATS}")


def halves(w: FunctionBuilder, words: str) -> tuple[str, str]:
    """float32 values of a vector of pairs: of the upper ones, which come first in k, and of the lower ones."""
    upper = w.op("andi", words, w.constant(-(1 << 16), _WORDS), _WORDS)
    lower = w.op("shli", words, w.constant(16, _WORDS), _WORDS)
    first, second = [w.value(f"vector.bitcast {each} : {_WORDS} to {_FLOATS}") for each in (upper, lower)]
    return first, second


def multiply_add(w: FunctionBuilder, total: str, left: tuple[str, str], right: tuple[str, str]) -> str:
    """What `dot` should be, of operands in `halves`."""
    for one, other in zip(left, right, strict=True):
        total = w.value(f"math.fma {one}, {other}, {total} : {_FLOATS}")
    return total


def order_text(name: str) -> str:
    """``int64 order(int64 seed)``: from which sum of exponents on this processor's dot products are in order.

    `LEAST`, or `NEVER` if one of a thousand random sums has other bits than multiply-adds; the seed is any odd number.
    """
    w = FunctionBuilder()
    if has("avx512_bf16"):
        bits = w.value(f"vector.reduction <or>, {_differences(w)} : {_WORDS} into i32")
        found = w.select(w.is_("eq", bits, w.constant(0, "i32"), "i32"), LEAST, NEVER)
    else:
        found = w.constant(NEVER)
    w.done(found, "i64")
    return w.function(name, ["%seed: i64"], "i64", SHARED_CODE)


def _differences(w: FunctionBuilder) -> str:
    """The bits in which any sum differs; magnitudes are so that every second one shows another order or rounding."""
    narrow = w.value("arith.trunci %seed : i64 to i32")
    spread = w.value(f"vector.broadcast {narrow} : i32 to {_WORDS}")
    odd = w.constant(str([2 * lane + 1 for lane in range(_LANES)]), _WORDS)

    def body(_: str, carried: Sequence[str]) -> list[str]:
        state, differ = carried
        operands = []
        for kept, exponent in (_PAIR, _PAIR, _SINGLE):
            scaled = w.op("muli", state, w.constant(1664525, _WORDS), _WORDS)
            state = w.op("addi", scaled, w.constant(1013904223, _WORDS), _WORDS)
            mixed = w.op("xori", state, w.op("shrui", state, w.constant(15, _WORDS), _WORDS), _WORDS)
            masked = w.op("andi", mixed, w.constant(kept, _WORDS), _WORDS)
            operands.append(w.op("ori", masked, w.constant(exponent, _WORDS), _WORDS))
        left, right, old = operands
        total = w.value(f"vector.bitcast {old} : {_WORDS} to {_FLOATS}")
        results = dot(w, total, left, right), multiply_add(w, total, halves(w, left), halves(w, right))
        found, expected = [w.value(f"vector.bitcast {each} : {_FLOATS} to {_WORDS}") for each in results]
        return [state, w.op("ori", differ, w.op("xori", found, expected, _WORDS), _WORDS)]

    start = [w.op("muli", spread, odd, _WORDS), w.constant(0, _WORDS)]
    return w.carry(w.constant(_ROUNDS), start, _WORDS, body)[1]


def magnitudes(w: FunctionBuilder, items: str, kind: str) -> str:
    """What is least for the least magnitude but 0, of a vector of the bits of bfloat16."""
    return w.op("subi", w.op("andi", items, w.constant(_MAGNITUDE, kind), kind), w.constant(1, kind), kind)


def store_exponent(w: FunctionBuilder, least: str, kind: str, place: str) -> None:
    """Write down the exponent of the least of these `magnitudes`, as `in_order` reads it."""
    reduced = w.value(f"vector.reduction <minui>, {least} : {kind} into i16")
    magnitude = w.add(w.value(f"arith.extui {reduced} : i16 to i64"), 1)
    exponent = w.op("shrui", magnitude, w.constant(_FRACTION_BITS))
    w.store(w.select(w.is_("eq", exponent, 0), _SUBNORMAL, exponent), "i64", place, 8)


def in_order(w: FunctionBuilder, places: tuple[str, str], least: str) -> str:
    """i1: whether dot products of two panels, whose exponents are at these places, are in order."""
    left, right = [w.load("i64", place, 8) for place in places]
    return w.is_("sge", w.add(left, right), least)


def limit(w: FunctionBuilder, loose: str, word: int) -> str:
    """The least sum of exponents for the products of a record: that of the context, or with `loose` (i1) none."""
    return w.select(loose, ALWAYS, w.word("%ctx", word))
