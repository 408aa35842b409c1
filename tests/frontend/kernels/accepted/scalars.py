"""`NkiScalar`: bounds, offsets and arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.frontend.kernels.accepted.case import Case, X, number


def offsets(a: Any, n: Any) -> Any:
    """Row i comes from row ``n - 1 - i`` modulo the number of rows; the last column counts with iota."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    count = nisa.scalar_load(n)

    def body(i: Any) -> None:
        row = nl.ndarray((1, a.shape[1]), a.dtype)
        nisa.dma_copy(dst=row, src=a.select(0, (count - 1 - i) % a.shape[0]))
        nisa.iota(dst=row[:, 3:4], pattern=[[1, 1]], offset=10 * i + 1)
        nisa.dma_copy(dst=out.select(0, i), src=row)

    nl.fori_loop(0, a.shape[0], body)
    return out


def mirrored(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    rows = np.arange(len(a))
    result = a[(int(n[0, 0]) - 1 - rows) % len(a)].copy()
    result[:, 3] = 10 * rows + 1
    return result


def while_loop(n: Any) -> Any:
    """The greatest common divisor with 36 by Euclid, whose condition is a new scalar in every trip."""
    a, out = nl.ndarray((1, 1), nl.int32), nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
    nisa.scalar_store(a, 36)

    def body(b: Any) -> Any:
        rest = nisa.scalar_load(a) % b
        nisa.scalar_store(a, b)
        return rest

    nl.while_loop(nisa.scalar_load(n), body)
    nisa.dma_copy(dst=out, src=a)
    return out


def two_cores(a: Any, n: Any) -> Any:
    """Each core doubles its half of the rows; the trip counts differ, and a barrier follows."""
    out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
    half, core = a.shape[0] // 2, nl.program_id(0)
    nisa.core_barrier(out, (0, 1))
    limit = nisa.scalar_load(n).minimum(half) - core
    for i in nl.dynamic_range(limit.maximum(0)):
        row = nl.ndarray((1, a.shape[1]), a.dtype)
        nisa.dma_copy(dst=row, src=a.select(0, i + core * half))
        nisa.dma_copy(dst=out.select(0, core * half + i), src=nl.multiply(row, 2))
    nisa.core_barrier(out, (0, 1))
    return out


def halves(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    result, half = np.zeros_like(a), len(a) // 2
    for core in (0, 1):
        count = max(0, min(int(n[0, 0]), half) - core)
        result[core * half : core * half + count] = 2 * a[core * half : core * half + count]
    return result


CASES = [
    Case(offsets, [(X, number(n)) for n in (0, 5, 8)], mirrored),
    Case(while_loop, [(number(n),) for n in (0, 12, 30, 7)], lambda n: np.gcd(36, n)),
    Case(two_cores, [(X, number(n)) for n in (0, 1, 3, 9)], halves, lnc=2),
]
