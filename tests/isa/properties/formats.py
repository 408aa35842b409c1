"""What the bits of every dtype mean, and how float32 rounds to it: field by field in float64 and whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.core.dtypes import BY_NAME, DType

F64 = Any
"""A float64 array; most of them hold float32 values."""


@dataclass(frozen=True)
class Format:
    """A binary float: widths of its fields, and whether its largest exponent is that of infinity and NaN."""

    exponent: int
    mantissa: int
    ieee: bool = True

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def largest(self) -> float:
        top = (1 << self.exponent) - (2 if self.ieee else 1) - self.bias
        ones = 2.0 - 2.0**-self.mantissa if self.ieee else 2.0 - 2.0 ** (1 - self.mantissa)
        return ones * 2.0**top


FORMATS = {
    "float32": Format(8, 23),
    "tfloat32": Format(8, 10),
    "bfloat16": Format(8, 7),
    "float16": Format(5, 10),
    "float8_e4m3": Format(4, 3),
    "float8_e4m3fn": Format(4, 3, ieee=False),
    "float8_e5m2": Format(5, 2),
}
_SCALE = "float8_e8m0fnu"
NUMERIC = tuple(d for d in BY_NAME.values() if d.device and not d.is_packed)
PACKED = tuple(d for d in BY_NAME.values() if d.is_packed)


def bits_of(storage: Any) -> Any:
    """The storage as unsigned integers."""
    storage = np.ascontiguousarray(storage)
    return storage.view(f"u{storage.dtype.itemsize}")


@np.errstate(all="ignore")
def f32(values: Any) -> F64:
    """Float64 rounded to float32; of a sum, product or quotient of two float32 that is the one rounding that counts."""
    return np.asarray(values, np.float64).astype(np.float32).astype(np.float64)


def decoded(storage: Any, dtype: DType) -> F64:
    """The exact values of stored elements, in float64."""
    bits = bits_of(storage).astype(np.int64)
    if dtype.kind == "bool":
        return (bits != 0).astype(np.float64)
    if dtype.is_integer:
        return np.asarray(storage).astype(np.int64).astype(np.float64)
    if dtype.name == _SCALE:
        return np.where(bits == 255, np.nan, np.ldexp(1.0, np.minimum(bits, 254) - 127))
    return _fields(bits, FORMATS["float32" if dtype.name == "tfloat32" else dtype.name])


def _fields(bits: Any, form: Format) -> F64:
    top = (1 << form.exponent) - 1
    exponent, mantissa = bits >> form.mantissa & top, bits & ((1 << form.mantissa) - 1)
    normal = np.where(exponent > 0, 1 << form.mantissa, 0) + mantissa
    value = np.ldexp(normal.astype(np.float64), np.maximum(exponent, 1) - form.bias - form.mantissa)
    if form.ieee:
        value = np.where(exponent == top, np.where(mantissa == 0, np.inf, np.nan), value)
    else:
        value = np.where((exponent == top) & (mantissa == (1 << form.mantissa) - 1), np.nan, value)
    return np.where(bits >> (form.exponent + form.mantissa) & 1, -value, value)


def loaded(storage: Any, dtype: DType) -> F64:
    """What the engines compute with: float32 values, to which 32-bit integers round."""
    return f32(decoded(storage, dtype))


@np.errstate(all="ignore")
def stored(values: Any, dtype: DType) -> F64:
    """What float32 values become in a dtype, decoded again."""
    values = np.asarray(values, np.float64)
    if dtype.kind == "bool":
        return (values != 0).astype(np.float64)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return np.where(np.isnan(values), 0.0, np.clip(np.rint(values), float(info.min), float(info.max)))
    if dtype.name == _SCALE:
        return _to_scale(values)
    return _to_float(values, FORMATS[dtype.name])


def _to_float(values: F64, form: Format) -> F64:
    fraction, exponent = np.frexp(values)
    unit = np.ldexp(1.0, np.maximum(exponent - 1, 1 - form.bias) - form.mantissa)
    rounded = np.rint(values / unit) * unit
    beyond = np.abs(rounded) > form.largest
    return np.where(
        beyond, np.copysign(np.inf if form.ieee else np.nan, values), np.where(fraction == 0, values, rounded)
    )


def _to_scale(values: F64) -> F64:
    """The nearest power of two, halfway up; below the smallest one it is the smallest."""
    fraction, exponent = np.frexp(values)
    power = np.maximum(exponent - 1 + (fraction >= 0.75), -127)
    legal = (values > 0) & np.isfinite(values) & (power <= 127)
    return np.where(legal, np.ldexp(1.0, power), np.nan)
