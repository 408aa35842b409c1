"""Matrix products whose bits do not depend on the size or the layout of the operands."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from nki.sim.fused import multiply_add

F32 = np.float32
_PAD_K = 128
_PAD_M = 128
_PAD_N = 512
_STEP = 16


def matmul_blas(stationary: Any, moving: Any) -> np.ndarray:
    """``stationary.T @ moving`` as BLAS computes it on a canonical padded shape.

    A smaller product is taken where this BLAS was seen to sum it in the same order (`_same_order`).
    """
    k, m = stationary.shape
    n = moving.shape[1]
    depth, rows = _ceil(k, _PAD_K), _ceil(m, _STEP)
    if m > _PAD_M or n > _PAD_N or not _same_order(depth, rows, _ceil(n, _STEP)):
        return _canonical(stationary, moving)
    columns = _ceil(n, _STEP)
    left, right = _padded(stationary, depth, rows), _padded(moving, depth, columns)
    if rows == columns and np.may_share_memory(left, right):
        right = right.copy()  # NumPy would compute a.T @ a in another way
    product: np.ndarray = left.T @ right
    return product if product.shape == (m, n) else product[:m, :n]


def matmul_ordered(stationary: Any, moving: Any) -> np.ndarray:
    """Ascending k, one fused multiply-add each: a float32 product is exact in float64, and the sum rounds once."""
    k, m = stationary.shape
    acc = np.zeros((m, moving.shape[1]), F32)
    if not (_is_short(stationary) and _is_short(moving)):
        for i in range(k):
            acc = multiply_add(stationary[i][:, None], moving[i][None, :], acc)
        return acc
    left, right = np.asarray(stationary, np.float64), np.asarray(moving, np.float64)
    for i in range(k):
        acc = np.add(acc, left[i][:, None] * right[i][None, :]).astype(F32)
    return acc


def _is_short(values: Any) -> bool:
    """Whether no value has more than 11 significant bits.

    Then a product has at most 22, and rounding the sum to float64 first cannot change what it rounds to in float32: a
    product with bits below those of float64 is less than 2**-6 of half a unit of the float32 sum it is added to.
    """
    return not bool((np.ascontiguousarray(values, F32).view(np.uint32) & np.uint32(0x1FFF)).any())


def _canonical(stationary: Any, moving: Any) -> np.ndarray:
    k, m = stationary.shape
    n = moving.shape[1]
    depth = _ceil(k, _PAD_K)
    left = np.zeros((_PAD_M, depth), F32)
    left[:m, :k] = stationary.T
    right = np.zeros((depth, _PAD_N), F32)
    result = np.empty((m, n), F32)
    for start in range(0, n, _PAD_N):
        width = min(_PAD_N, n - start)
        if width < _PAD_N:
            right[:k, width:] = 0
        right[:k, :width] = moving[:, start : start + width]
        result[:, start : start + width] = (left @ right)[:m, :width]
    return result


@cache  # measured once for each shape of a product in a kernel
def _same_order(depth: int, rows: int, columns: int) -> bool:
    """Whether BLAS computes this shape, the left operand transposed, bit for bit as the canonical one.

    How a library sums depends on the shape alone, and another order or a rounded product shows in about every second
    element of these: magnitudes over 2**±20, and products so small that they underflow, of both signs.
    """
    random = np.random.default_rng(depth * 1009 + rows * 31 + columns)
    left = random.standard_normal((depth, rows)) * 2.0 ** random.integers(-20, 20, (depth, rows))
    right = random.standard_normal((depth, columns)) * 2.0 ** random.integers(-20, 20, (depth, columns))
    left[:, ::7] = left[:, ::7] * 2.0**-70
    right[:, ::5] = right[:, ::5] * 2.0**-70
    left, right = left.astype(F32), right.astype(F32)
    return (left.T @ right).tobytes() == _canonical(left, right).tobytes()


def _padded(values: np.ndarray, depth: int, columns: int) -> np.ndarray:
    """``(depth, columns)`` with zeros where `values` ends; the values themselves if nothing is missing."""
    if values.shape == (depth, columns) and values.flags.c_contiguous and values.dtype == F32:
        return values
    padded = np.zeros((depth, columns), F32)
    padded[: values.shape[0], : values.shape[1]] = values
    return padded


def _ceil(value: int, step: int) -> int:
    return -(-value // step) * step
