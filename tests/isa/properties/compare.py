"""How results are compared: bit by bit, or as values that round to the dtype of the destination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.core.dtypes import DType
from tests.isa.properties.formats import F64, bits_of, decoded, f32, stored


@dataclass(frozen=True)
class Bits:
    """Moves: exactly these bits, unsigned ``(P, F)``."""

    bits: Any

    def shown(self, where: tuple[int, ...], dtype: DType) -> str:
        return hex(int(np.broadcast_to(self.bits, self.bits.shape)[where]))


@dataclass(frozen=True)
class Near:
    """Arithmetic: a float32 value between the smallest and the largest candidate, rounded to the destination's dtype.

    With one candidate the result must be equal. NaN is right where a candidate is NaN, and wrong elsewhere; its payload
    is open. The sign of a zero must be right where all candidates agree on it.

    Attributes:
        candidates: float64 ``(K, P, F)``, float32 values.
        signed: False if the sign of zeros is open.
    """

    candidates: F64
    signed: bool = True

    def shown(self, where: tuple[int, ...], dtype: DType) -> str:
        values = stored(self.candidates, dtype)[(slice(None), *where)]
        return " to ".join(repr(float(v)) for v in dict.fromkeys((values.min(), values.max())))


Expected = Bits | Near


def exactly(values: Any, signed: bool = True) -> Near:
    """One candidate: the correctly rounded float32."""
    return Near(f32(values)[None], signed)


@np.errstate(all="ignore")
def within(values: Any, tolerance: Any) -> Near:
    """Exact float64 values and an absolute tolerance; the float32 values in the closed interval are right."""
    values = np.asarray(values, np.float64)
    low, high = values - tolerance, values + tolerance
    low32, high32 = f32(low), f32(high)
    low32 = np.where(low32 < low, _next(low32, np.inf), low32)
    high32 = np.where(high32 > high, _next(high32, -np.inf), high32)
    nearest = f32(values)
    low32, high32 = np.fmin(low32, nearest), np.fmax(high32, nearest)
    # 0 on its own, because a bool does not lie between those of its neighbours
    return Near(np.stack([low32, nearest, high32, np.clip(0.0, low32, high32)]), signed=False)


def _next(values: F64, towards: float) -> F64:
    return np.nextafter(values.astype(np.float32), np.float32(towards)).astype(np.float64)


def ulp(values: Any) -> F64:
    """Unit in the last place of float32 at exact float64 values; that of subnormals at least."""
    values = np.asarray(values, np.float64)
    usual = np.isfinite(values) & (values != 0)
    exponent = np.where(usual, np.frexp(np.where(usual, values, 1.0))[1], -125)
    return np.ldexp(1.0, np.clip(exponent, -125, 128) - 24)


@np.errstate(all="ignore")
def mismatches(want: Expected, got: Any, dtype: DType) -> Any:
    """Where storage ``(P, F)`` is not what was expected."""
    if isinstance(want, Bits):
        return bits_of(got) != want.bits
    values = decoded(got, dtype)
    rounded = stored(np.broadcast_to(want.candidates, (len(want.candidates), *values.shape)), dtype)
    low, high = np.fmin.reduce(rounded), np.fmax.reduce(rounded)
    fits = np.where(np.isnan(values), np.isnan(rounded).any(0), (low <= values) & (values <= high))
    if dtype.kind == "bool":
        fits &= bits_of(got) <= 1
    if want.signed and dtype.is_float:
        negative = np.signbit(rounded)
        agreed = (negative.all(0) | ~negative.any(0)) & ~np.isnan(rounded).any(0)
        fits &= ~(agreed & (values == 0)) | (np.signbit(values) == negative[0])
    return ~fits
