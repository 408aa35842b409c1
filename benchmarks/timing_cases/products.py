"""The float32 matrix product in the steps of the optimization tutorial (kernel-optimization.rst).

Operands are ``a`` (K, M), transposed, and ``b`` (K, N); tiles are 128 x 128 and 128 x 512.
"""

from __future__ import annotations

from typing import Any

from benchmarks.timing_cases.instructions import hbm, psum, sbuf

import nki.isa as nisa
import nki.language as nl

K, M, N = 128, 128, 512


def _piece(tensor: Any, row: int, column: int, width: int) -> Any:
    """A tile of K rows."""
    tile = sbuf((K, width))
    nisa.dma_copy(dst=tile, src=tensor[row * K : (row + 1) * K, column * width : (column + 1) * width])
    return tile


def _emit(out: Any, m: int, n: int, total: Any) -> None:
    """A finished tile to device memory."""
    tile = sbuf((M, N))
    nisa.tensor_copy(dst=tile, src=total, engine=nisa.engine.vector)
    nisa.dma_copy(dst=out[m * M : (m + 1) * M, n * N : (n + 1) * N], src=tile)


def tiled(a: Any, b: Any) -> Any:
    """Both tiles are loaded right before they are multiplied."""
    out = hbm((a.shape[1], b.shape[1]))
    steps = a.shape[0] // K
    for m in range(a.shape[1] // M):
        for n in range(b.shape[1] // N):
            total = psum((M, N))
            for k in range(steps):
                x, y = _piece(a, k, m, M), _piece(b, k, n, N)
                nisa.nc_matmul(dst=total, stationary=x, moving=y, accumulate=k > 0)
            _emit(out, m, n, total)
    return out


def hoisted(a: Any, b: Any) -> Any:
    """All tiles of a column are loaded before it is used."""
    out = hbm((a.shape[1], b.shape[1]))
    steps = a.shape[0] // K
    for m in range(a.shape[1] // M):
        xs = [_piece(a, k, m, M) for k in range(steps)]
        for n in range(b.shape[1] // N):
            ys = [_piece(b, k, n, N) for k in range(steps)]
            total = psum((M, N))
            for k in range(steps):
                nisa.nc_matmul(dst=total, stationary=xs[k], moving=ys[k], accumulate=k > 0)
            _emit(out, m, n, total)
    return out


def blocked_all(a: Any, b: Any, in_m: int = 16, in_n: int = 2, in_k: int = 8) -> Any:
    """Blocks along all three dimensions; partial sums are added in SBUF."""
    out = hbm((a.shape[1], b.shape[1]))
    for n in range(b.shape[1] // N // in_n):
        sums = [[sbuf((M, N)) for _ in range(in_n)] for _ in range(a.shape[1] // M)]
        for row in sums:
            for tile in row:
                nisa.memset(dst=tile, value=0.0)
        for k in range(a.shape[0] // K // in_k):
            ys = [_piece(b, k * in_k + i, n, N * in_n) for i in range(in_k)]
            for m in range(a.shape[1] // M // in_m):
                xs = [_piece(a, k * in_k + i, m, M * in_m) for i in range(in_k)]
                for j in range(in_n):
                    for i in range(in_m):
                        total = psum((M, N))
                        for step in range(in_k):
                            x, y = xs[step][:, i * M : (i + 1) * M], ys[step][:, j * N : (j + 1) * N]
                            nisa.nc_matmul(dst=total, stationary=x, moving=y, accumulate=step > 0)
                        tile = sums[m * in_m + i][j]
                        nisa.tensor_tensor(dst=tile, data1=tile, data2=total, op=nl.add)
        for m, row in enumerate(sums):
            packed = sbuf((M, N * in_n))
            for j, tile in enumerate(row):
                nisa.tensor_copy(dst=packed[:, j * N : (j + 1) * N], src=tile)
            nisa.dma_copy(dst=out[m * M : (m + 1) * M, n * N * in_n : (n + 1) * N * in_n], src=packed)
    return out
