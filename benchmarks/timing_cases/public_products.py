"""Matrix products of public repositories, one parameterised kernel for each structure.

Operands are ``a`` (K, M), transposed, and ``b`` (K, N); tiles are 128 x 128 and 128 x 512, and results have the
dtype of ``a``. What varies between the measured variants is a parameter.
"""

from __future__ import annotations

from typing import Any

from benchmarks.timing_cases.instructions import hbm, loaded, psum, sbuf, stored

import nki.isa as nisa
import nki.language as nl

K, M, N = 128, 128, 512


def _at(number: int, size: int) -> slice:
    return slice(number * size, (number + 1) * size)


# --- both tiles are loaded right before they are multiplied


def _copied(source: Any) -> Any:
    return loaded(source)


def _summed(source: Any) -> Any:
    """A tile that is loaded as the sum of one source."""
    tile = sbuf(source.shape, source.dtype)
    nisa.dma_compute(dst=tile, srcs=[source], reduce_op=nl.add)
    return tile


def _copied_out(place: Any, tile: Any) -> None:
    nisa.dma_copy(dst=place, src=tile)


def _summed_out(place: Any, tile: Any) -> None:
    nisa.dma_compute(dst=place, srcs=[tile], reduce_op=nl.add)


MOVES = {"copy": (_copied, _copied_out), "language": (nl.load, nl.store), "sum": (_summed, _summed_out)}
"""How tiles are loaded and stored."""


def tiled(a: Any, b: Any, columns_first: bool = False, moves: str = "copy") -> Any:
    """The tutorial's first version; with `columns_first` the loop over the columns of the result is outside."""
    load, store = MOVES[moves]
    out = hbm((a.shape[1], b.shape[1]), a.dtype)
    rows, columns = a.shape[1] // M, b.shape[1] // N
    places = [(m, n) for m in range(rows) for n in range(columns)]
    for m, n in sorted(places, key=lambda place: place[::-1]) if columns_first else places:
        total = psum((M, N))
        for k in range(a.shape[0] // K):
            x, y = load(a[_at(k, K), _at(m, M)]), load(b[_at(k, K), _at(n, N)])
            nisa.nc_matmul(dst=total, stationary=x, moving=y)
        tile = sbuf((M, N), a.dtype)
        nisa.tensor_copy(dst=tile, src=total)
        store(out[_at(m, M), _at(n, N)], tile)
    return out


def staged(a: Any, b: Any) -> Any:
    """All right-hand tiles of a column of the result are loaded once; left-hand ones into one and the same tile."""
    out = hbm((a.shape[1], b.shape[1]), a.dtype)
    steps = a.shape[0] // K
    for n in range(b.shape[1] // N):
        ys = sbuf((K, steps, N), b.dtype)
        for k in range(steps):
            nisa.dma_copy(dst=ys[:, k, :], src=b[_at(k, K), _at(n, N)])
        for m in range(a.shape[1] // M):
            total, x = psum((M, N)), sbuf((K, M), a.dtype)
            for k in range(steps):
                nisa.dma_copy(dst=x, src=a[_at(k, K), _at(m, M)])
                nisa.nc_matmul(dst=total, stationary=x, moving=ys[:, k, :])
            tile = sbuf((M, N), a.dtype)
            nisa.tensor_copy(dst=tile, src=total)
            nisa.dma_copy(dst=out[_at(m, M), _at(n, N)], src=tile)
    return out


# --- blocks along all three dimensions


def _fitting(tiles: int, cap: int) -> int:
    """The largest number of tiles up to the cap that divides all."""
    return max(count for count in range(1, min(cap, tiles) + 1) if tiles % count == 0)


def _block(tensor: Any, row: int, steps: int, column: int, width: int) -> Any:
    """Some tiles of K rows side by side, each loaded with one transfer."""
    tile = sbuf((K, steps, width), tensor.dtype)
    for step in range(steps):
        nisa.dma_copy(dst=tile[:, step, :], src=tensor[_at(row + step, K), column : column + width])
    return tile


def blocked(a: Any, b: Any, caps: tuple[int, int, int], total_dtype: Any = nl.float32) -> Any:
    """The tutorial's last version with caps of tiles of M, N and K in a block; two cores share the columns.

    Args:
        total_dtype: of the sums over blocks of K, which stay in SBUF until the store converts them.
    """
    cores, core = (nl.num_programs(axes=0), nl.program_id(axis=0)) if nl.program_ndim() else (1, 0)
    out = hbm((a.shape[1], b.shape[1]), a.dtype)
    mine = b.shape[1] // cores
    tiles = a.shape[1] // M, mine // N, a.shape[0] // K
    in_m, in_n, in_k = (_fitting(count, cap) for count, cap in zip(tiles, caps, strict=True))
    for n in range(tiles[1] // in_n):
        first = core * mine + n * in_n * N
        sums = [sbuf((M, in_n, N), total_dtype) for _ in range(tiles[0])]
        for total in sums:
            nisa.memset(dst=total, value=0.0)
        for k in range(0, tiles[2], in_k):
            ys = _block(b, k, in_k, first, in_n * N)
            for m in range(0, tiles[0], in_m):
                xs = _block(a, k, in_k, m * M, in_m * M)
                _multiply(xs, ys, sums[m : m + in_m])
        for m, total in enumerate(sums):
            nisa.dma_copy(dst=out[_at(m, M), first : first + in_n * N], src=total.reshape((M, in_n * N)))
    return out


def _multiply(xs: Any, ys: Any, sums: list[Any]) -> None:
    """All products of a block, added to its sums."""
    for n in range(ys.shape[2] // N):
        for m, total in enumerate(sums):
            part = psum((M, N))
            for k in range(xs.shape[1]):
                nisa.nc_matmul(dst=part, stationary=xs[:, k, _at(m, M)], moving=ys[:, k, _at(n, N)])
            nisa.tensor_tensor(dst=total[:, n, :], data1=total[:, n, :], data2=part, op=nl.add)


def buffered(a: Any, b: Any, in_k: int = 8, in_m: int = 4) -> Any:
    """Columns outside, tiles of their own in rotating buffers, and sums in the dtype of the result.

    Each product goes through a cleared PSUM tile and a copy in SBUF before it is added.
    """
    rows, columns, depth = a.shape[1], b.shape[1], a.shape[0]
    out = hbm((rows, columns), a.dtype)
    for n in range(columns // N):
        sums = [sbuf((M, N), a.dtype) for _ in range(rows // M)]
        for total in sums:
            nisa.memset(dst=total, value=0.0)
        for k in range(depth // K // in_k):
            ys = [loaded(b[_at(k * in_k + i, K), _at(n, N)]) for i in range(in_k)]
            for m in range(rows // M // in_m):
                xs = [loaded(a[_at(k * in_k + i, K), _at(m, M * in_m)]) for i in range(in_k)]
                for i, total in enumerate(sums[_at(m, in_m)]):
                    part, copy = psum((M, N)), sbuf((M, N), a.dtype)
                    nisa.memset(dst=part, value=0.0)
                    for x, y in zip(xs, ys, strict=True):
                        nisa.nc_matmul(dst=part, stationary=x[:, _at(i, M)], moving=y)
                    nisa.tensor_copy(dst=copy, src=part)
                    nisa.tensor_tensor(dst=total, data1=total, data2=copy, op=nl.add)
        for m, total in enumerate(sums):
            nisa.dma_copy(dst=out[_at(m, M), _at(n, N)], src=total)
    return out


def mx_products(a: Any, b: Any, a_scale: Any, b_scale: Any, times: int) -> Any:
    """A stream of MX products, each with weights of its own."""
    x, y, xs, ys = loaded(a), loaded(b), loaded(a_scale), loaded(b_scale)
    total = psum((M, N))
    for turn in range(times):
        part = _at(turn % (x.shape[1] // M), M)
        nisa.nc_matmul_mx(dst=total, stationary=x[:, part], moving=y, stationary_scale=xs[:, part], moving_scale=ys)
    tile = sbuf((M, N))
    nisa.tensor_copy(dst=tile, src=total)
    return stored(tile)
