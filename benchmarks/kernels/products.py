"""Kernels around matrix products."""

from __future__ import annotations

from typing import Any

from benchmarks.kernels.rows import ROWS, like, sbuf

import nki.isa as nisa
import nki.language as nl

COLUMNS = 512
"""float32 columns of a PSUM bank."""


def psum(*shape: int, dtype: Any = nl.float32) -> Any:
    """A tensor in PSUM."""
    return nl.ndarray(shape, dtype, buffer=nl.psum)


def loaded(source: Any) -> Any:
    """A piece of HBM in SBUF."""
    tile = sbuf(*source.shape, dtype=source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def blocks(size: int, step: int) -> list[slice]:
    """Slices of a dimension."""
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def matmul(a: Any, b: Any) -> Any:
    """``a.T @ b``, (K, M) and (K, N); b is kept in SBUF, a is loaded for each block of 128 rows of the output."""
    depth, height, width = a.shape[0], a.shape[1], b.shape[1]
    out = nl.ndarray((height, width), a.dtype, buffer=nl.shared_hbm)
    kept = {}
    for rows in blocks(height, ROWS):
        left = [loaded(a[k, rows]) for k in blocks(depth, ROWS)]
        for columns in blocks(width, COLUMNS):
            product = psum(ROWS, columns.stop - columns.start)
            for number, k in enumerate(blocks(depth, ROWS)):
                key = (number, columns.start)
                if key not in kept:
                    kept[key] = loaded(b[k, columns])
                nisa.nc_matmul(dst=product, stationary=left[number], moving=kept[key], accumulate=number > 0)
            result = sbuf(*product.shape, dtype=a.dtype)
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[rows, columns], src=result)
    return out


def mlp(x: Any, up: Any, bias: Any, down: Any) -> Any:
    """``gelu(x @ up + bias) @ down``, transposed: x is (model, tokens), bias (128, hidden / 128), result like x."""
    model, tokens = x.shape
    hidden = up.shape[1]
    out = like(x)
    shift = loaded(bias)
    ups = [[loaded(up[k, h]) for k in blocks(model, ROWS)] for h in blocks(hidden, ROWS)]
    downs = [[loaded(down[h, m]) for h in blocks(hidden, ROWS)] for m in blocks(model, ROWS)]
    for columns in blocks(tokens, COLUMNS):
        width = columns.stop - columns.start
        inputs = [loaded(x[k, columns]) for k in blocks(model, ROWS)]
        inner = []
        for number, weights in enumerate(ups):
            product = psum(ROWS, width)
            for k, weight in enumerate(weights):
                nisa.nc_matmul(dst=product, stationary=weight, moving=inputs[k], accumulate=k > 0)
            active = sbuf(ROWS, width, dtype=x.dtype)
            nisa.activation(dst=active, op=nl.gelu, data=product, bias=shift[:, number : number + 1])
            inner.append(active)
        for m, weights in zip(blocks(model, ROWS), downs, strict=True):
            product = psum(ROWS, width)
            for h, weight in enumerate(weights):
                nisa.nc_matmul(dst=product, stationary=weight, moving=inner[h], accumulate=h > 0)
            result = sbuf(ROWS, width, dtype=x.dtype)
            nisa.tensor_copy(dst=result, src=product)
            nisa.dma_copy(dst=out[m, columns], src=result)
    return out


def transposed(a: Any, b: Any) -> Any:
    """``a @ b``, (M, K) and (K, N): blocks of a are transposed on the Tensor engine first."""
    height, depth, width = a.shape[0], a.shape[1], b.shape[1]
    out = nl.ndarray((height, width), a.dtype, buffer=nl.shared_hbm)
    right = [loaded(b[k]) for k in blocks(depth, ROWS)]
    for rows in blocks(height, ROWS):
        left = loaded(a[rows])
        turned = []
        for k in blocks(depth, ROWS):
            between, block = psum(ROWS, ROWS, dtype=a.dtype), sbuf(ROWS, ROWS, dtype=a.dtype)
            nisa.nc_transpose(dst=between, data=left[:, k], engine=nisa.engine.tensor)
            nisa.tensor_copy(dst=block, src=between)
            turned.append(block)
        for columns in blocks(width, COLUMNS):
            product = psum(ROWS, columns.stop - columns.start)
            for number, block in enumerate(turned):
                nisa.nc_matmul(dst=product, stationary=block, moving=right[number][:, columns], accumulate=number > 0)
            result = sbuf(*product.shape, dtype=a.dtype)
            nisa.activation(dst=result, op=nl.copy, data=product)
            nisa.dma_copy(dst=out[rows, columns], src=result)
    return out


def halves(a: Any, b: Any) -> Any:
    """``p = a.T @ b``, then p plus p with its upper and lower half exchanged, on two cores.

    Each core makes half of the rows of the product and meets the other one before it reads what that one made.
    """
    core, depth, height = nl.program_id(0), a.shape[0], a.shape[1] // 2
    product = nl.ndarray((a.shape[1], b.shape[1]), a.dtype, buffer=nl.shared_hbm, name="product")
    out = nl.ndarray((a.shape[1], b.shape[1]), a.dtype, buffer=nl.shared_hbm)
    right = [loaded(b[k]) for k in blocks(depth, ROWS)]
    for start in range(core * height, (core + 1) * height, ROWS):
        rows = slice(start, start + ROWS)
        left = [loaded(a[k, rows]) for k in blocks(depth, ROWS)]
        for columns in blocks(b.shape[1], COLUMNS):
            part = psum(ROWS, columns.stop - columns.start)
            for number, block in enumerate(left):
                nisa.nc_matmul(dst=part, stationary=block, moving=right[number][:, columns], accumulate=number > 0)
            result = sbuf(*part.shape, dtype=a.dtype)
            nisa.tensor_copy(dst=result, src=part)
            nisa.dma_copy(dst=product[rows, columns], src=result)
    nisa.core_barrier(product, cores=(0, 1))
    for start in range(core * height, (core + 1) * height, ROWS):
        mine = loaded(product[start : start + ROWS])
        other = (start + height) % a.shape[1]
        theirs = loaded(product[other : other + ROWS])
        total = sbuf(*mine.shape, dtype=a.dtype)
        nisa.tensor_tensor(dst=total, data1=mine, data2=theirs, op=nl.add)
        nisa.dma_copy(dst=out[start : start + ROWS], src=total)
    return out
