"""Casts by arithmetic: formats as numbers of bits, values as float64, rounding as division by the last unit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.core import dtypes
from nki.core.dtypes import DType


@dataclass(frozen=True, slots=True)
class Format:
    """A float format.

    Attributes:
        bits: of the fraction.
        lowest: exponent of the smallest normal number.
        largest: finite number.
        overflow: what larger ones become.
    """

    bits: int
    lowest: int
    largest: float
    overflow: float = math.inf


FLOATS: dict[DType, Format] = {
    dtypes.float32: Format(23, -126, (2 - 2.0**-23) * 2.0**127),
    dtypes.tfloat32: Format(10, -126, (2 - 2.0**-10) * 2.0**127),
    dtypes.bfloat16: Format(7, -126, (2 - 2.0**-7) * 2.0**127),
    dtypes.float16: Format(10, -14, 65504.0),
    dtypes.float8_e5m2: Format(2, -14, 57344.0),
    dtypes.float8_e4m3: Format(3, -6, 240.0),
    dtypes.float8_e4m3fn: Format(3, -6, 448.0, math.nan),
}


def rounded(values: Any, dtype: DType) -> Any:
    """The float64 values that `dtype` stores for float32 values."""
    exact = np.asarray(values, np.float64)
    if dtype in FLOATS:
        return _float(exact, FLOATS[dtype])
    if dtype.kind == "bool":
        return np.where(exact == 0, 0.0, 1.0)
    if dtype.kind == "scale":
        return _scale(exact)
    half = 2.0 ** (dtype.bits - 1)
    low, high = (-half, half - 1) if dtype.signed else (0.0, 2 * half - 1)
    inside = np.minimum(np.maximum(np.where(np.isnan(exact), 0.0, exact), low), high)
    down = np.floor(inside)
    rest = inside - down
    return down + ((rest > 0.5) | ((rest == 0.5) & (np.mod(down, 2) == 1)))


def _float(exact: Any, form: Format) -> Any:
    finite = np.where(np.isfinite(exact), exact, 0.0)
    exponent = np.maximum(np.frexp(finite)[1] - 1, form.lowest)
    unit = np.ldexp(1.0, exponent - form.bits)
    result = np.rint(finite / unit) * unit
    result = np.where(np.abs(result) > form.largest, np.copysign(form.overflow, exact), result)
    result = np.where(np.isinf(exact), np.copysign(form.overflow, exact), result)
    return np.copysign(np.where(np.isnan(exact), math.nan, result), exact)


def _scale(exact: Any) -> Any:
    """Powers of two from 2**-127 to 2**127; halfway goes up."""
    positive = (exact > 0) & np.isfinite(exact)
    fraction, exponent = np.frexp(np.where(positive, exact, 1.0))
    power = np.maximum(exponent - 1 + (fraction >= 0.75), -127)
    return np.where(positive & (power <= 127), np.ldexp(1.0, power), math.nan)


def decoded(storage: Any, dtype: DType) -> Any:
    """The float64 values of stored elements, one bit field at a time for floats."""
    if dtype.kind == "scale":
        field = storage.view(np.uint8).astype(np.int64)
        return np.where(field == 255, math.nan, np.ldexp(1.0, field - 127))
    if dtype not in FLOATS:
        return np.where(storage, 1.0, 0.0) if dtype.kind == "bool" else storage.astype(np.float64)
    form = FLOATS[dtype]
    bits = 23 if dtype is dtypes.tfloat32 else form.bits
    raw = storage.view(f"u{storage.dtype.itemsize}").astype(np.int64)
    width = storage.dtype.itemsize * 8
    fraction = raw & ((1 << bits) - 1)
    field = (raw >> bits) & ((1 << (width - 1 - bits)) - 1)
    value = np.ldexp(np.where(field == 0, fraction, fraction | 1 << bits).astype(np.float64), np.maximum(field, 1) - 1)
    value = np.ldexp(value, form.lowest - bits)
    top = (1 << (width - 1 - bits)) - 1
    if math.isnan(form.overflow):
        value = np.where((field == top) & (fraction == (1 << bits) - 1), math.nan, value)
    else:
        value = np.where(field == top, np.where(fraction == 0, math.inf, math.nan), value)
    return np.where(raw >> (width - 1), -value, value)


def samples(dtype: DType, count: int) -> Iterator[Any]:
    """Stored elements: all of them up to 16 bits, else `count` of each exponent or magnitude."""
    if dtype.kind == "bool":
        yield np.array([False, True])
    elif dtype.bits <= 16:
        yield np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}").view(dtype.numpy)
    else:
        random = np.random.default_rng(7)
        heads = np.arange(512, dtype=np.uint64)[:, None] << 23 if dtype.is_float else _magnitudes()
        tails = random.integers(0, 1 << 23, (heads.shape[0], count), np.uint64)
        ties = np.uint64(1) << random.integers(0, 24, tails.shape).astype(np.uint64)
        for part in (tails, tails & ~(ties - np.uint64(1)) | ties >> np.uint64(1), tails & ~(ties - np.uint64(1))):
            yield (heads ^ part).astype(np.uint32).reshape(-1).view(dtype.numpy)


def _magnitudes() -> Any:
    """Heads of 32-bit integers: none, one bit, all bits above one."""
    bits = np.arange(32, dtype=np.uint64)
    return np.concatenate([[np.uint64(0)], np.uint64(1) << bits, np.uint64(2**32) - (np.uint64(1) << bits)])[:, None]


def mismatches(values: Any, storage: Any, dtype: DType) -> int:
    """How many elements are not what float32 `values` round to, in value, sign of zero, or being NaN."""
    want, got = rounded(values, dtype), decoded(storage, dtype)
    same = (got == want) & ((np.signbit(got) == np.signbit(want)) | (dtype not in FLOATS))
    return int((~(same | (np.isnan(got) & np.isnan(want)))).sum())
