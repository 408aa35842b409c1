"""A matmul of bfloat16 with gelu, in tiles of 128 x 128, first with loads in the innermost loop and gelu as a pass."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.profiling.ladders import Ladder, Rung, load, sums, tile

TILE = 128


def _part(tensor: Any, row: int, column: int) -> Any:
    """The tile in a row and a column of tiles."""
    return tensor[nl.ds(row * TILE, TILE), nl.ds(column * TILE, TILE)]


def _tiles(a: Any, b: Any) -> tuple[int, int, int]:
    """How many tiles there are of K, M and N."""
    return a.shape[0] // TILE, a.shape[1] // TILE, b.shape[1] // TILE


def naive(a: Any, b: Any) -> Any:
    """``gelu(a.T @ b)``; every product loads both of its operands."""
    shape = (a.shape[1], b.shape[1])
    product = nl.ndarray(shape, dtype=a.dtype, buffer=nl.private_hbm)
    out = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
    depth, rows, columns = _tiles(a, b)
    for m in range(rows):
        for n in range(columns):
            total = sums((TILE, TILE))
            for k in range(depth):
                nisa.nc_matmul(dst=total, stationary=load(_part(a, k, m)), moving=load(_part(b, k, n)))
            x = tile((TILE, TILE), a.dtype)
            nisa.tensor_copy(dst=x, src=total)
            nisa.dma_copy(dst=_part(product, m, n), src=x)
    for m in range(rows):
        for n in range(columns):
            x = load(_part(product, m, n))
            nisa.activation(dst=x, op=nl.gelu, data=x)
            nisa.dma_copy(dst=_part(out, m, n), src=x)
    return out


def kept(a: Any, b: Any) -> Any:
    """Both operands are loaded once, and kept."""
    shape = (a.shape[1], b.shape[1])
    product = nl.ndarray(shape, dtype=a.dtype, buffer=nl.private_hbm)
    out = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
    depth, rows, columns = _tiles(a, b)
    left = [[load(_part(a, k, m)) for m in range(rows)] for k in range(depth)]
    right = [[load(_part(b, k, n)) for n in range(columns)] for k in range(depth)]
    for m in range(rows):
        for n in range(columns):
            total = sums((TILE, TILE))
            for k in range(depth):
                nisa.nc_matmul(dst=total, stationary=left[k][m], moving=right[k][n])
            x = tile((TILE, TILE), a.dtype)
            nisa.tensor_copy(dst=x, src=total)
            nisa.dma_copy(dst=_part(product, m, n), src=x)
    for m in range(rows):
        for n in range(columns):
            x = load(_part(product, m, n))
            nisa.activation(dst=x, op=nl.gelu, data=x)
            nisa.dma_copy(dst=_part(out, m, n), src=x)
    return out


def one_pass(a: Any, b: Any) -> Any:
    """Gelu of a tile right after its product, while it is in SBUF."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    depth, rows, columns = _tiles(a, b)
    left = [[load(_part(a, k, m)) for m in range(rows)] for k in range(depth)]
    right = [[load(_part(b, k, n)) for n in range(columns)] for k in range(depth)]
    for m in range(rows):
        for n in range(columns):
            total = sums((TILE, TILE))
            for k in range(depth):
                nisa.nc_matmul(dst=total, stationary=left[k][m], moving=right[k][n])
            x = tile((TILE, TILE), a.dtype)
            nisa.tensor_copy(dst=x, src=total)
            nisa.activation(dst=x, op=nl.gelu, data=x)
            nisa.dma_copy(dst=_part(out, m, n), src=x)
    return out


def moved_together(a: Any, b: Any) -> Any:
    """Whole rows are moved with each transfer; the tiles are parts of them."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    depth, rows, columns = _tiles(a, b)
    left = [load(a[nl.ds(k * TILE, TILE)]) for k in range(depth)]
    right = [load(b[nl.ds(k * TILE, TILE)]) for k in range(depth)]
    for m in range(rows):
        whole = tile((TILE, b.shape[1]), a.dtype)
        for n in range(columns):
            total, x = sums((TILE, TILE)), _part(whole, 0, n)
            for k in range(depth):
                nisa.nc_matmul(dst=total, stationary=_part(left[k], 0, m), moving=_part(right[k], 0, n))
            nisa.tensor_copy(dst=x, src=total)
            nisa.activation(dst=x, op=nl.gelu, data=x)
        nisa.dma_copy(dst=out[nl.ds(m * TILE, TILE)], src=whole)
    return out


def _arguments(size: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    return tuple(random.normal(size=(size, size)).astype(nl.bfloat16) for _ in range(2))


def _reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    x = a.astype(np.float64).T @ b.astype(np.float64)
    return 0.5 * x * (1.0 + np.vectorize(erf)(x / np.sqrt(2.0)))


MATMUL_GELU = Ladder(
    (
        Rung("", naive),
        Rung("repeated-loads", kept),
        Rung("round-trips", one_pass),
        Rung("transfer-starts", moved_together),
    ),
    _arguments,
    _reference,
    size=2048,
    small=512,
    tolerance=1e-2,
)
