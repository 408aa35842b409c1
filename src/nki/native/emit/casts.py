"""Casts between storage bits and float32, with the bits of `nki.core.numerics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nki.core import dtypes
from nki.native.emit.code import Code, type_of
from nki.native.trace.expression import storage_type

_SIGN, _MAGNITUDE, _INFINITE, _NAN = 0x8000_0000, 0x7FFF_FFFF, 0x7F80_0000, 0x7FC0_0000


class _Small(NamedTuple):
    """An 8-bit float: bits of the mantissa and the bias; codes for overflow, NaN and infinity (or -1)."""

    mantissa: int
    bias: int
    overflow: int
    nan: int
    infinity: int


_SMALL = {
    "float8_e4m3": _Small(3, 7, 0x78, 0x7C, 0x78),
    "float8_e4m3fn": _Small(3, 7, 0x7F, 0x7F, -1),
    "float8_e5m2": _Small(2, 15, 0x7C, 0x7E, 0x7C),
}


class _Lanes:
    """Arithmetic on i32 and f32 of one width."""

    def __init__(self, code: Code, width: int) -> None:
        self.code = code
        self.width = width

    def number(self, value: int) -> str:
        return self.code.constant(value, "i32", self.width)

    def real(self, value: float) -> str:
        return self.code.constant(int(np.float32(value).view(np.uint32)), "f32", self.width)

    def op(self, name: str, a: str, b: str | int) -> str:
        other = self.number(b) if isinstance(b, int) else b
        return self.code.binary(f"arith.{name}", a, other, "i32", self.width)

    def float_op(self, name: str, a: str, b: str) -> str:
        return self.code.binary(f"arith.{name}", a, b, "f32", self.width)

    def select(self, mask: str, a: str, b: str, kind: str = "i32") -> str:
        return self.code.select(mask, a, b, kind, self.width)

    def compare(self, predicate: str, a: str, b: str | int) -> str:
        return self.code.compare(predicate, a, self.number(b) if isinstance(b, int) else b, "i32", self.width)

    def is_nan(self, a: str) -> str:
        return self.code.compare("uno", a, a, "f32", self.width)

    def bits(self, a: str) -> str:
        return self.code.cast("arith.bitcast", a, "f32", "i32", self.width)

    def real_of(self, a: str) -> str:
        return self.code.cast("arith.bitcast", a, "i32", "f32", self.width)

    def rarely(self, mask: str, exact: Callable[[], str], usual: str, kind: str) -> str:
        """What `exact` emits if a lane is true, which is rare, else `usual`, which is right for all other lanes."""
        code, typed = self.code, type_of(kind, self.width)
        any_lane = mask
        if self.width:
            any_lane = code.let(f"vector.reduction <or>, {mask} : {type_of('i1', self.width)} into i1")
        result = code.name()
        with code.block(f"{result} = scf.if {any_lane} -> ({typed}) {{"):
            code.do(f"scf.yield {exact()} : {typed}")
            code.otherwise()
            code.do(f"scf.yield {usual} : {typed}")
        return result

    def cast(self, op: str, a: str, source: str, result: str) -> str:
        return self.code.cast(f"arith.{op}", a, source, result, self.width)


def decode(code: Code, name: str, a: str, width: int) -> str:
    """The float32 values of storage bits of a dtype."""
    dtype, x = dtypes.BY_NAME[name], _Lanes(code, width)
    kind = storage_type(dtype)
    if dtype.kind == "bool":
        mask = code.compare("ne", a, code.constant(0, kind, width), kind, width)
        return x.select(mask, x.real(1.0), x.real(0.0), "f32")
    if dtype.is_integer:
        wide = a if kind == "i32" else x.cast("extsi" if dtype.signed else "extui", a, kind, "i32")
        return x.cast("uitofp" if name == "uint32" else "sitofp", wide, "i32", "f32")
    bits = x.cast("extui", a, kind, "i32")
    if name == "bfloat16":
        return x.real_of(x.op("shli", bits, 16))
    if name == "float16":
        return _decode_half(x, a, bits)
    if name == "float8_e8m0fnu":
        value = x.select(x.compare("eq", bits, 0), x.number(1 << 22), x.op("shli", bits, 23))
        return x.real_of(x.select(x.compare("eq", bits, 255), x.number(_NAN), value))
    return _decode_small(x, _SMALL[name], bits)


def _decode_half(x: _Lanes, a: str, bits: str) -> str:
    """Convert float16 by the machine; NaN keeps its bits as in the tables, where the machine would make it quiet."""
    value = x.cast("extf", x.cast("bitcast", a, "i16", "f16"), "f16", "f32")
    nan = x.is_nan(value)

    def kept() -> str:
        sign = x.op("shli", x.op("andi", bits, 0x8000), 16)
        payload = x.op("shli", x.op("andi", bits, 0x3FF), 13)
        as_it_is = x.real_of(x.op("ori", x.op("ori", sign, _INFINITE), payload))
        return x.select(nan, as_it_is, value, "f32")

    signalling = x.code.binary("arith.andi", nan, x.compare("eq", x.op("andi", bits, 0x200), 0), "i1", x.width)
    return x.rarely(signalling, kept, value, "f32")


def _decode_small(x: _Lanes, form: _Small, bits: str) -> str:
    """The code in the place of a float16's, scaled by a power of two, which is exact for subnormal numbers too.

    Processors convert subnormal numbers of float16 at full speed; with those of float32 they do not compute at it.
    """
    magnitude = x.op("andi", bits, 0x7F)
    placed = x.cast("trunci", x.op("shli", magnitude, 10 - form.mantissa), "i32", "i16")
    half = x.cast("bitcast", placed, "i16", "f16")
    value = x.bits(x.float_op("mulf", x.cast("extf", half, "f16", "f32"), x.real(2.0 ** (15 - form.bias))))
    if form.infinity < 0:
        value = x.select(x.compare("eq", magnitude, form.nan), x.number(_NAN), value)
    else:
        value = x.select(x.compare("eq", magnitude, form.infinity), x.number(_INFINITE), value)
        value = x.select(x.compare("sgt", magnitude, form.infinity), x.number(_NAN), value)
    return x.real_of(x.op("ori", value, x.op("shli", x.op("andi", bits, 0x80), 24)))


def encode(code: Code, name: str, a: str, width: int) -> str:
    """Float32 values rounded to storage bits of a dtype."""
    dtype, x = dtypes.BY_NAME[name], _Lanes(code, width)
    kind = storage_type(dtype)
    if dtype.kind == "bool":
        return x.cast("extui", code.compare("une", a, x.real(0.0), "f32", width), "i1", kind)
    if dtype.is_integer:
        result = _to_integer(x, name, a)
    else:
        result = _ROUND.get(name, _to_small(name))(x, a, x.bits(a))
    return result if kind == "i32" else x.cast("trunci", result, "i32", kind)


def _to_integer(x: _Lanes, name: str, a: str) -> str:
    info = np.iinfo(name)
    rounded = x.code.let(f"math.roundeven {a} : {type_of('f32', x.width)}")
    rounded = x.select(x.is_nan(a), x.real(0.0), rounded, "f32")
    high = np.float32(info.max)
    high = high if int(high) <= info.max else np.nextafter(high, np.float32(0))
    low_value, high_value = x.real(float(info.min)), x.real(float(high))
    above = x.code.compare("ogt", rounded, high_value, "f32", x.width)
    clipped = x.select(x.code.compare("olt", rounded, low_value, "f32", x.width), low_value, rounded, "f32")
    clipped = x.select(above, high_value, clipped, "f32")
    result = x.cast("fptoui" if name == "uint32" else "fptosi", clipped, "f32", "i32")
    return result if int(high) == info.max else x.select(above, x.number(int(info.max)), result)


def round_upper(code: Code, a: str, width: int) -> str:
    """Float32 values whose upper 16 bits are rounded to bfloat16; the lower ones are anything."""
    x = _Lanes(code, width)
    bits, nan = x.bits(a), x.is_nan(a)
    odd = x.op("andi", x.op("shrui", bits, 16), 1)
    rounded = x.op("addi", x.op("addi", bits, 0x7FFF), odd)

    def canonical() -> str:
        return x.select(nan, x.op("andi", x.op("ori", bits, _MAGNITUDE), 0xFFC0_0000), rounded)

    return x.rarely(nan, canonical, rounded, "i32")


def _to_bfloat16(x: _Lanes, a: str, bits: str) -> str:
    return x.op("shrui", round_upper(x.code, a, x.width), 16)


def _to_half(x: _Lanes, a: str, bits: str) -> str:
    """Convert to float16 by the machine; NaN keeps the upper bits of its payload, of which one at least is set."""
    half = x.cast("bitcast", x.cast("truncf", a, "f32", "f16"), "f16", "i16")
    rounded, nan = x.cast("extui", half, "i16", "i32"), x.is_nan(a)

    def kept() -> str:
        payload = x.op("andi", x.op("shrui", bits, 13), 0x3FF)
        payload = x.select(x.compare("eq", payload, 0), x.number(1), payload)
        sign = x.op("andi", x.op("shrui", bits, 16), 0x8000)
        return x.select(nan, x.op("ori", sign, x.op("ori", payload, 0x7C00)), rounded)

    signalling = x.code.binary("arith.andi", nan, x.compare("eq", x.op("andi", bits, 1 << 22), 0), "i1", x.width)
    return x.rarely(signalling, kept, rounded, "i32")


def _to_tf32(x: _Lanes, a: str, bits: str) -> str:
    odd = x.op("andi", x.op("shrui", bits, 13), 1)
    rounded = x.op("andi", x.op("addi", x.op("addi", bits, 0xFFF), odd), 0xFFFF_E000)
    special = x.compare("eq", x.op("andi", bits, _INFINITE), _INFINITE)
    return x.select(special, bits, rounded)


def _to_scale(x: _Lanes, a: str, bits: str) -> str:
    """The nearest power of two, halfway up; NaN for everything that is not positive and finite."""
    normal = x.op("shrui", x.op("addi", bits, 1 << 22), 23)
    small = x.select(x.compare("ugt", bits, 0x5F_FFFF), x.number(1), x.number(0))
    code = x.select(x.compare("ult", bits, 1 << 23), small, normal)
    positive = x.compare("ult", x.op("subi", bits, 1), _INFINITE - 1)
    return x.select(positive, code, x.number(255))


def _to_small(name: str) -> Callable[[_Lanes, str, str], str]:
    def convert(x: _Lanes, a: str, bits: str) -> str:
        form = _SMALL[name]
        dropped = 23 - form.mantissa
        magnitude = x.op("andi", bits, _MAGNITUDE)
        odd = x.op("andi", x.op("shrui", magnitude, dropped), 1)
        lifted = x.op("addi", x.op("addi", magnitude, odd), (1 << (dropped - 1)) - 1 - ((127 - form.bias) << 23))
        normal = x.op("shrui", lifted, dropped)
        # adding this number lets the sum round where the subnormal numbers of the format end
        magic = (127 - form.bias + dropped + 1) << 23
        low = x.bits(x.float_op("addf", x.real_of(magnitude), x.real_of(x.number(magic))))
        low = x.op("subi", low, magic)
        result = x.select(x.compare("ult", magnitude, (128 - form.bias) << 23), low, normal)
        result = x.op("minui", result, form.overflow)
        result = x.select(x.compare("ugt", magnitude, _INFINITE), x.number(form.nan), result)
        return x.op("ori", result, x.op("andi", x.op("shrui", bits, 24), 0x80))

    return convert


_ROUND: dict[str, Callable[[_Lanes, str, str], str]] = {
    "bfloat16": _to_bfloat16,
    "float16": _to_half,
    "tfloat32": _to_tf32,
    "float8_e8m0fnu": _to_scale,
}
