"""Fused multiply-adds and multiplications by powers of two, by way of float64, which holds float32 products exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

F32 = np.float32
I32 = np.int32
F64 = np.float64
I64 = np.int64

_HALF = 1 << 28
"""What float64 holds of a number that lies halfway between two normal float32 numbers, in its last 29 bits."""

_TINY = 2.0**-125
_BOUND = 300.0  # beyond it everything is infinite or 0
_WHOLE = 1.5 * 2.0**52 + 1023
"""Added to a whole number it leaves the exponent field of that power of two in the last bits of a float64."""


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """float32 ``a * b + c`` with one rounding, of float32 arrays or scalars that broadcast.

    The float64 sum is rounded to float32 a second time. That errs only where the sum, but not what it was rounded from,
    lies halfway between two float32 numbers: those elements, which are rare, are summed again, with rounding to odd.
    """
    total = np.multiply(a, b, dtype=F64)
    total = np.add(c, total, out=total if np.shape(c) in ((), np.shape(total)) and total.ndim else None, dtype=F64)
    result = total.astype(F32)
    if not _may_be_halfway(total):
        return result
    doubtful = (total.view(I64) & (2 * _HALF - 1) == _HALF) | ((np.abs(total) < _TINY) & (total != 0))
    if not doubtful.any():
        return result
    where = np.nonzero(doubtful) if total.ndim else ()
    left, right, first = [np.broadcast_to(v, total.shape)[where].astype(F64) for v in (a, b, c)]
    result = np.asarray(result)
    result[where] = _to_odd(first, left * right)
    return result[()]


def _may_be_halfway(total: Any) -> bool:
    """Whether the last 28 bits of an element are 0, as they are halfway between float32 numbers, subnormal ones too."""
    if total.ndim == 0:
        return True
    last = total.ravel("K").view(I32)[::2]
    return not bool((last & (_HALF - 1)).all())


def _to_odd(first: Any, product: Any) -> Any:
    """The float64 sum rounded to odd: rounding it to float32 afterwards gives the correctly rounded exact sum."""
    total = first + product
    second = total - first
    error = (first - (total - second)) + (product - second)
    bits = total.view(I64)
    inexact = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    outwards = (error > 0) == (total > 0)
    return (bits + np.where(inexact, np.where(outwards, 1, -1), 0)).view(F64)


def scaled(a: Any, n: Any) -> Any:
    """float32 ``a * 2**n`` with one rounding, for whole numbers n: no product but 0 and infinity leaves float64."""
    power = np.add(np.minimum(np.maximum(n, F32(-_BOUND)), F32(_BOUND)), _WHOLE, dtype=F64)
    power = np.left_shift(power.view(I64), 52).view(F64)
    return np.multiply(a, power, dtype=F64).astype(F32)
