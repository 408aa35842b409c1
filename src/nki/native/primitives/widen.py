"""Vectors of float32 from stored floats of every width, with the exact values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nki.native.primitives.writer import Writer


class Stored(NamedTuple):
    """How a dtype lies in memory.

    Attributes:
        size: bytes.
        kind: MLIR type of one stored item.
        widen: from a vector of them to a vector of f32.
    """

    size: int
    kind: str
    widen: Callable[[Writer, str, int], str]


def load_wide(w: Writer, stored: Stored, pointer: str, lanes: int, mask: str = "") -> str:
    """vector<lanes x f32>; with a mask, lanes that are off are 0 and are not read."""
    kind = f"vector<{lanes}x{stored.kind}>"
    raw = w.load(kind, pointer, stored.size) if not mask else masked_load(w, kind, pointer, stored.size, mask, lanes)
    return stored.widen(w, raw, lanes)


def masked_load(w: Writer, kind: str, pointer: str, align: int, mask: str, lanes: int) -> str:
    """What lies there in the lanes that the mask selects, else 0."""
    zero = w.constant("0.0" if kind.endswith(("xf32>", "xf16>")) else 0, kind)
    shown = f"{pointer}, {mask}, {zero} {{alignment = {align} : i32}}"
    return w.value(f"llvm.intr.masked.load {shown} : (!llvm.ptr, vector<{lanes}xi1>, {kind}) -> {kind}")


def first_lanes(w: Writer, count: str, lanes: int) -> str:
    """The mask of the first `count` lanes: none if it is negative, all if it is larger."""
    kind = f"vector<{lanes}xi32>"
    clamped = w.op("minsi", w.op("maxsi", count, w.constant(0)), w.constant(lanes))
    narrow = w.value(f"arith.trunci {clamped} : i64 to i32")
    spread = w.value(f"vector.broadcast {narrow} : i32 to {kind}")
    numbers = w.constant(str(list(range(lanes))), kind)
    return w.value(f"arith.cmpi slt, {numbers}, {spread} : {kind}")


def _same(w: Writer, raw: str, lanes: int) -> str:
    return raw


def _bfloat16(w: Writer, raw: str, lanes: int) -> str:
    words = f"vector<{lanes}xi32>"
    wide = w.value(f"arith.extui {raw} : vector<{lanes}xi16> to {words}")
    shifted = w.op("shli", wide, w.constant(16, words), words)
    return w.value(f"arith.bitcast {shifted} : {words} to vector<{lanes}xf32>")


def _float16(w: Writer, raw: str, lanes: int) -> str:
    return w.value(f"arith.extf {raw} : vector<{lanes}xf16> to vector<{lanes}xf32>")


def _float8(fraction: int, special: int) -> Callable[[Writer, str, int], str]:
    """Floats of 8 bits with so many fraction bits.

    Args:
        fraction: bits of the fraction.
        special: the smallest magnitude that is no finite number: infinity if its fraction is 0, else NaN.
    """
    shift = 23 - fraction
    bias = (1 << (6 - fraction)) - 1
    scale = f"0x{(127 + 127 - bias) << 23:08X}"

    def widen(w: Writer, raw: str, lanes: int) -> str:
        """The exponent is too small by the difference of the biases, also for subnormals: a product corrects it."""
        words, floats = f"vector<{lanes}xi32>", f"vector<{lanes}xf32>"
        wide = w.value(f"arith.extui {raw} : vector<{lanes}xi8> to {words}")
        magnitude = w.op("andi", wide, w.constant(0x7F, words), words)
        sign = w.op("shli", w.op("andi", wide, w.constant(0x80, words), words), w.constant(24, words), words)
        placed = w.op("shli", magnitude, w.constant(shift, words), words)
        small = w.value(f"arith.bitcast {placed} : {words} to {floats}")
        scaled = w.op("mulf", small, w.constant(scale, floats), floats)
        finite = w.value(f"arith.bitcast {scaled} : {floats} to {words}")
        top = w.constant(0x7F800000, words)
        unusual = w.value(f"arith.cmpi sge, {magnitude}, {w.constant(special, words)} : {words}")
        fractions = w.op("andi", placed, w.constant((1 << 23) - 1, words), words)
        beyond = w.op("ori", fractions, top, words)
        chosen = w.value(f"arith.select {unusual}, {beyond}, {finite} : vector<{lanes}xi1>, {words}")
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
