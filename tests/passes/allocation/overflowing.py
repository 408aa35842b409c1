"""Kernels that need more memory than there is."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl


def too_many_tiles(a: Any) -> Any:
    """Eight tiles of 32 KiB per partition, all of them needed until the end."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    scale = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf, name="scale")
    nisa.memset(dst=scale, value=0.5)
    tiles = []
    for start in range(0, a.shape[1], 8192):
        tiles.append(nl.ndarray((128, 8192), a.dtype, buffer=nl.sbuf))
        nisa.dma_copy(dst=tiles[-1], src=a[:, start : start + 8192])
    for start, tile in zip(range(0, a.shape[1], 8192), tiles, strict=True):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)
        nisa.dma_copy(dst=out[:, start : start + 8192], src=tile)
    return out


def too_many_banks(a: Any) -> Any:
    """Five accumulators of two banks each."""
    out = nl.ndarray((640, 1024), nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    sums = [nl.ndarray((128, 1024), nl.float32, buffer=nl.psum, name=f"sum{n}") for n in range(5)]
    for total in sums:
        for half in (0, 512):
            nisa.nc_matmul(total[:, half : half + 512], tile[:, 0:128], tile[:, half : half + 512])
    for n, total in enumerate(sums):
        result = nl.ndarray((128, 1024), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(dst=out[n * 128 : (n + 1) * 128, :], src=result)
    return out


def around_explicit_addresses(a: Any) -> Any:
    """An explicit tensor in the middle, so that neither side has 120 000 bytes left."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    middle = nl.ndarray((128, 256), nl.float32, buffer=nl.sbuf, address=(0, 100_000))
    large = nl.ndarray((128, 30_000), nl.float32, buffer=nl.sbuf, name="large")
    nisa.memset(dst=middle, value=1.0)
    nisa.memset(dst=large, value=2.0)
    nisa.tensor_tensor(dst=large[:, 0:256], data1=middle, data2=large[:, 256:512], op=nl.add)
    nisa.dma_copy(dst=out[:, 0:256], src=large[:, 0:256])
    return out


def in_a_loop(a: Any) -> Any:
    """What is kept for a loop and what the loop needs itself do not fit together."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    kept = [nl.ndarray((128, 8192), nl.float32, buffer=nl.sbuf, name=f"kept{n}") for n in range(6)]
    for tile in kept:
        nisa.memset(dst=tile, value=1.0)
    for _ in nl.dynamic_range(4):
        work = nl.ndarray((128, 8192), nl.float32, buffer=nl.sbuf, name="work")
        nisa.dma_copy(dst=work, src=a[:, 0:8192])
        for tile in kept:
            nisa.tensor_tensor(dst=tile, data1=tile, data2=work, op=nl.add)
    for tile in kept:
        nisa.dma_copy(dst=out[:, 0:8192], src=tile)
    return out


def long_way_round(a: Any) -> Any:
    """Nine tiles that are made first and used last, with a loop and PSUM tiles in between."""
    out = nl.ndarray((128, 9 * 8192 + 512), nl.float32, buffer=nl.shared_hbm)
    tiles = [nl.ndarray((128, 8192), a.dtype, buffer=nl.sbuf, name=f"tile{n}") for n in range(9)]
    for n, tile in enumerate(tiles):
        nisa.dma_copy(dst=tile, src=a[:, n * 8192 : (n + 1) * 8192])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(n))
    total = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf, name="total")
    nisa.memset(dst=total, value=0.0)
    for _ in nl.dynamic_range(3):
        nisa.tensor_tensor(dst=total, data1=total, data2=tiles[0][:, 0:512], op=nl.add)
    for n, tile in enumerate(tiles):
        first = n * 8192
        nisa.tensor_tensor(dst=tile[:, 0:512], data1=tile[:, 512:1024], data2=total, op=nl.add)
        nisa.dma_copy(dst=out[:, first : first + 8192], src=tile)
    for n, tile in enumerate(tiles):
        nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, n * 512 : n * 512 + 512], op=nl.add)
    nisa.dma_copy(dst=out[:, 9 * 8192 :], src=total)
    return out


def many_sums(a: Any) -> Any:
    """Twelve PSUM tiles that wait until all are there, with narrow ones among them."""
    out = nl.ndarray((128, 12 * 512), nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    sums = []
    for n in range(12):
        sums.append(nl.ndarray((128, 512), nl.bfloat16 if n % 3 == 2 else nl.float32, buffer=nl.psum, name=f"sum{n}"))
        if n % 3 == 2:
            nisa.tensor_scalar(dst=sums[-1], data=tile, op0=nl.add, operand0=float(n))
        else:
            nisa.nc_matmul(sums[-1], tile[:, n : n + 128], tile)
    for n, each in enumerate(sums):
        result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=result, data1=each, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out[:, n * 512 : (n + 1) * 512], src=result)
    return out


def parts_of_banks(a: Any) -> Any:
    """Ten products that take a part of a bank each, and that Vector changes when all of them are there."""
    out = nl.ndarray((100, 10 * 490), nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    made = [nl.ndarray((128, 512), nl.float32, buffer=nl.psum, name=f"made{n}") for n in range(10)]
    for n, product in enumerate(made):
        nisa.nc_matmul(product[:100, 8:498], tile[:, n : n + 100], tile[:, :490], accumulate=False)
    for n, product in enumerate(made):
        nisa.tensor_scalar(dst=product[:100, 8:10], data=product[:100, 8:10], op0=nl.add, operand0=float(n))
        result = nl.ndarray((100, 490), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(result, product[:100, 8:498])
        nisa.dma_copy(dst=out[:, n * 490 : (n + 1) * 490], src=result)
    return out
