"""Vectors of float32 from stored floats of every width, with the exact values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nki.native.primitives.writer import FunctionBuilder


class Stored(NamedTuple):
    """How a dtype lies in memory.

    Attributes:
        size: bytes.
        kind: MLIR type of one stored item.
        widen: from a vector of them to a vector of f32.
    """

    size: int
    kind: str
    widen: Callable[[FunctionBuilder, str, int], str]


class Packed(NamedTuple):
    """How elements of four values lie in memory, the first value in the low bits.

    Attributes:
        size: bytes of an element.
        kind: MLIR type of one element.
        bits: of a value.
        widen: from a vector of i32 with the bits of one value each to a vector of f32.
    """

    size: int
    kind: str
    bits: int
    widen: Callable[[FunctionBuilder, str, int], str]

    def values(self, w: FunctionBuilder, raw: str, lanes: int) -> list[str]:
        """Vectors of f32: all first values, all second ones, and so on."""
        words = f"vector<{lanes}xi32>"
        wide = raw if self.kind == "i32" else w.value(f"arith.extui {raw} : vector<{lanes}x{self.kind}> to {words}")
        mask = w.constant((1 << self.bits) - 1, words)
        shifted = [w.op("shrui", wide, w.constant(i * self.bits, words), words) for i in range(_VALUES)]
        return [self.widen(w, w.op("andi", each, mask, words), lanes) for each in shifted]


_VALUES = 4
"""Values in one packed element."""

_NAN = 0x7FC00000
_HALF_FRACTION, _HALF_BIAS = 10, 15


def load_wide(w: FunctionBuilder, stored: Stored, pointer: str, lanes: int, mask: str = "") -> str:
    """vector<lanes x f32>; with a mask, lanes that are off are 0 and are not read."""
    return stored.widen(w, load_raw(w, stored, pointer, lanes, mask), lanes)


def load_raw(w: FunctionBuilder, stored: Stored | Packed, pointer: str, lanes: int, mask: str = "") -> str:
    """A vector of items as they are stored; with a mask, lanes that are off are 0 and are not read."""
    kind = f"vector<{lanes}x{stored.kind}>"
    return masked_load(w, kind, pointer, stored.size, mask, lanes) if mask else w.load(kind, pointer, stored.size)


def masked_load(w: FunctionBuilder, kind: str, pointer: str, align: int, mask: str, lanes: int) -> str:
    """What lies there in the lanes that the mask selects, else 0."""
    zero = w.constant("0.0" if kind.endswith(("xf32>", "xf16>")) else 0, kind)
    shown = f"{pointer}, {mask}, {zero} {{alignment = {align} : i32}}"
    return w.value(f"llvm.intr.masked.load {shown} : (!llvm.ptr, vector<{lanes}xi1>, {kind}) -> {kind}")


def first_lanes(w: FunctionBuilder, count: str, lanes: int) -> str:
    """The mask of the first `count` lanes: none if it is negative, all if it is larger."""
    kind = f"vector<{lanes}xi32>"
    clamped = w.op("minsi", w.op("maxsi", count, w.constant(0)), w.constant(lanes))
    narrow = w.value(f"arith.trunci {clamped} : i64 to i32")
    spread = w.value(f"vector.broadcast {narrow} : i32 to {kind}")
    numbers = w.constant(str(list(range(lanes))), kind)
    return w.value(f"arith.cmpi slt, {numbers}, {spread} : {kind}")


def _same(w: FunctionBuilder, raw: str, lanes: int) -> str:
    return raw


def _bfloat16(w: FunctionBuilder, raw: str, lanes: int) -> str:
    words = f"vector<{lanes}xi32>"
    wide = w.value(f"arith.extui {raw} : vector<{lanes}xi16> to {words}")
    shifted = w.op("shli", wide, w.constant(16, words), words)
    return w.value(f"arith.bitcast {shifted} : {words} to vector<{lanes}xf32>")


def _float16(w: FunctionBuilder, raw: str, lanes: int) -> str:
    return w.value(f"arith.extf {raw} : vector<{lanes}xf16> to vector<{lanes}xf32>")


def _float8(fraction: int, special: int) -> Callable[[FunctionBuilder, str, int], str]:
    """Floats of 8 bits; arguments as for `_small`."""
    small = _small(8, fraction, special)

    def widen(w: FunctionBuilder, raw: str, lanes: int) -> str:
        return small(w, w.value(f"arith.extui {raw} : vector<{lanes}xi8> to vector<{lanes}xi32>"), lanes)

    return widen


def _exponents(w: FunctionBuilder, raw: str, lanes: int) -> str:
    """Powers of two, 2**(e - 127); 255 is NaN."""
    words = f"vector<{lanes}xi32>"
    wide = w.value(f"arith.extui {raw} : vector<{lanes}xi8> to {words}")
    placed = w.op("shli", wide, w.constant(23, words), words)
    for code, bits in ((0, 0x00400000), (255, _NAN)):
        there = w.value(f"arith.cmpi eq, {wide}, {w.constant(code, words)} : {words}")
        placed = w.value(f"arith.select {there}, {w.constant(bits, words)}, {placed} : vector<{lanes}xi1>, {words}")
    return w.value(f"arith.bitcast {placed} : {words} to vector<{lanes}xf32>")


def _small(bits: int, fraction: int, special: int | None) -> Callable[[FunctionBuilder, str, int], str]:
    """From words with the bits of a float of at most 8 bits, in the low ones.

    NaN becomes the quiet NaN of its sign, as NumPy's conversions of these formats have it.

    Args:
        bits: of a float.
        fraction: bits of the fraction.
        special: the smallest magnitude that is no finite number: infinity if its fraction is 0, else NaN. None if all
            are finite.
    """
    shift = _HALF_FRACTION - fraction
    bias = (1 << (bits - 2 - fraction)) - 1
    scale = f"0x{(127 + _HALF_BIAS - bias) << 23:08X}"

    def widen(w: FunctionBuilder, wide: str, lanes: int) -> str:
        """By way of float16, whose exponent is too small by the difference of the biases: a product corrects it.

        Subnormals are ones of float16, which processors convert at full speed; with ones of float32 they do not compute
        at full speed.
        """
        words, floats, halves = (f"vector<{lanes}x{kind}>" for kind in ("i32", "f32", "f16"))
        top = 1 << (bits - 1)
        magnitude = w.op("andi", wide, w.constant(top - 1, words), words)
        sign = w.op("shli", w.op("andi", wide, w.constant(top, words), words), w.constant(32 - bits, words), words)
        placed = w.op("shli", magnitude, w.constant(shift, words), words)
        narrow = w.value(f"arith.trunci {placed} : {words} to vector<{lanes}xi16>")
        half = w.value(f"arith.bitcast {narrow} : vector<{lanes}xi16> to {halves}")
        scaled = w.op("mulf", _float16(w, half, lanes), w.constant(scale, floats), floats)
        chosen = w.value(f"arith.bitcast {scaled} : {floats} to {words}")
        if special is not None:
            infinite = special % (1 << fraction) == 0
            steps = [(special, 0x7F800000), (special + 1, _NAN)] if infinite else [(special, _NAN)]
            for first, becomes in steps:
                there = w.value(f"arith.cmpi sge, {magnitude}, {w.constant(first, words)} : {words}")
                replaced = f"{there}, {w.constant(becomes, words)}, {chosen}"
                chosen = w.value(f"arith.select {replaced} : vector<{lanes}xi1>, {words}")
        signed = w.op("ori", chosen, sign, words)
        return w.value(f"arith.bitcast {signed} : {words} to {floats}")

    return widen


STORED = {
    "float32": Stored(4, "f32", _same),
    "bfloat16": Stored(2, "i16", _bfloat16),
    "float16": Stored(2, "f16", _float16),
    "float8_e4m3": Stored(1, "i8", _float8(3, 0x78)),
    "float8_e4m3fn": Stored(1, "i8", _float8(3, 0x7F)),
    "float8_e5m2": Stored(1, "i8", _float8(2, 0x7C)),
}
"""By name of the dtype; the operands that a matmul may have."""

PACKED = {
    "float8_e4m3fn_x4": Packed(4, "i32", 8, _small(8, 3, 0x7F)),
    "float8_e5m2_x4": Packed(4, "i32", 8, _small(8, 2, 0x7C)),
    "float4_e2m1fn_x4": Packed(2, "i16", 4, _small(4, 1, None)),
}
"""By name of the dtype; the operands that a microscaled matmul may have."""

SCALE = Stored(1, "i8", _exponents)
"""How the scales of a microscaled matmul are stored: float8_e8m0fnu."""
