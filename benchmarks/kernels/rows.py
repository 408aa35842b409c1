"""Kernels that work on rows: every partition holds a row, and tiles of rows are independent of each other."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl

ROWS = 128
PIECE = 512


def sbuf(*shape: int, dtype: Any = nl.float32) -> Any:
    """A tensor in SBUF."""
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def like(a: Any, dtype: Any = None) -> Any:
    """An output with the shape of an input."""
    return nl.ndarray(a.shape, dtype or a.dtype, buffer=nl.shared_hbm)


def tiles(a: Any) -> list[slice]:
    """The rows of `a`, 128 at a time."""
    return [slice(start, start + ROWS) for start in range(0, a.shape[0], ROWS)]


def chain(a: Any, b: Any) -> Any:
    """``max((a * b + a) * 0.5 + b, 0)``, in pieces of 512 columns."""
    out = like(a)
    for rows in tiles(a):
        for start in range(0, a.shape[1], PIECE):
            here = (rows, slice(start, start + PIECE))
            x, y, z = (sbuf(ROWS, PIECE, dtype=a.dtype) for _ in range(3))
            nisa.dma_copy(dst=x, src=a[here])
            nisa.dma_copy(dst=y, src=b[here])
            nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.multiply)
            nisa.tensor_tensor(dst=z, data1=z, data2=x, op=nl.add)
            nisa.scalar_tensor_tensor(dst=z, data=z, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=y)
            nisa.activation(dst=z, op=nl.relu, data=z)
            nisa.dma_copy(dst=out[here], src=z)
    return out


def softmax(a: Any) -> Any:
    """Softmax over the columns."""
    out = like(a)
    for rows in tiles(a):
        x, e, y = (sbuf(ROWS, a.shape[1]) for _ in range(3))
        low, total, inverse = (sbuf(ROWS, 1) for _ in range(3))
        nisa.dma_copy(dst=x, src=a[rows])
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=x, axis=1, negate=True)
        nisa.activation_reduce(dst=e, op=nl.exp, data=x, bias=low, reduce_op=nl.add, reduce_res=total)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=y, data=e, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[rows], src=y)
    return out


def rmsnorm(a: Any, weight: Any) -> Any:
    """``a / sqrt(mean(a ** 2) + 1e-6) * weight``; `weight` comes once for every partition."""
    out, width = like(a), a.shape[1]
    gain, small = sbuf(ROWS, width, dtype=weight.dtype), sbuf(ROWS, 1)
    nisa.dma_copy(dst=gain, src=weight)
    nisa.memset(dst=small, value=1e-6)
    for rows in tiles(a):
        x, y = (sbuf(ROWS, width, dtype=a.dtype) for _ in range(2))
        square, total, scale = sbuf(ROWS, width), sbuf(ROWS, 1), sbuf(ROWS, 1)
        nisa.dma_copy(dst=x, src=a[rows])
        nisa.activation_reduce(dst=square, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
        nisa.activation(dst=scale, op=nl.rsqrt, data=total, bias=small, scale=1.0 / width)
        nisa.scalar_tensor_tensor(dst=y, data=x, op0=nl.multiply, operand0=scale, op1=nl.multiply, operand1=gain)
        nisa.dma_copy(dst=out[rows], src=y)
    return out


def layernorm(a: Any, weight: Any, bias: Any) -> Any:
    """Layer normalization over the columns, with the statistics of the Vector engine."""
    out, width = like(a), a.shape[1]
    gain, shift, small = sbuf(ROWS, width), sbuf(ROWS, width), sbuf(ROWS, 1)
    nisa.dma_copy(dst=gain, src=weight)
    nisa.dma_copy(dst=shift, src=bias)
    nisa.memset(dst=small, value=1e-5)
    for rows in tiles(a):
        x, y = sbuf(ROWS, width), sbuf(ROWS, width)
        parts, moments, scale = sbuf(ROWS, width // PIECE, 6), sbuf(ROWS, 2), sbuf(ROWS, 1)
        nisa.dma_copy(dst=x, src=a[rows])
        for piece in range(width // PIECE):
            nisa.bn_stats(dst=parts[:, piece], data=x[:, piece * PIECE : (piece + 1) * PIECE])
        nisa.bn_aggr(dst=moments, data=parts)
        nisa.activation(dst=scale, op=nl.rsqrt, data=moments[:, 1:2], bias=small)
        nisa.tensor_scalar(dst=y, data=x, op0=nl.subtract, operand0=moments[:, 0:1], op1=nl.multiply, operand1=scale)
        nisa.tensor_tensor(dst=y, data1=y, data2=gain, op=nl.multiply)
        nisa.tensor_tensor(dst=y, data1=y, data2=shift, op=nl.add, engine=nisa.engine.gpsimd)
        nisa.dma_copy(dst=out[rows], src=y)
    return out


def rope(a: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions: rows are positions, columns heads of two halves; cos and sin are half a head wide."""
    out, half = like(a), cos.shape[1]
    for rows in tiles(a):
        c, s = sbuf(ROWS, half), sbuf(ROWS, half)
        x, y = sbuf(ROWS, a.shape[1]), sbuf(ROWS, a.shape[1])
        nisa.dma_copy(dst=c, src=cos[rows])
        nisa.dma_copy(dst=s, src=sin[rows])
        nisa.dma_copy(dst=x, src=a[rows])
        for head in range(0, a.shape[1], 2 * half):
            first, second = slice(head, head + half), slice(head + half, head + 2 * half)
            product = sbuf(ROWS, half)
            other = sbuf(ROWS, half)
            nisa.tensor_tensor(dst=product, data1=x[:, second], data2=s, op=nl.multiply)
            nisa.tensor_tensor(dst=y[:, first], data1=x[:, first], data2=c, op=nl.multiply)
            nisa.tensor_tensor(dst=y[:, first], data1=y[:, first], data2=product, op=nl.subtract)
            nisa.tensor_tensor(dst=other, data1=x[:, first], data2=s, op=nl.multiply, engine=nisa.engine.gpsimd)
            nisa.tensor_tensor(dst=y[:, second], data1=x[:, second], data2=c, op=nl.multiply)
            nisa.tensor_tensor(dst=y[:, second], data1=y[:, second], data2=other, op=nl.add)
        nisa.dma_copy(dst=out[rows], src=y)
    return out


def cumsum(a: Any) -> Any:
    """Cumulative sum over the columns, in pieces whose last column starts the next one."""
    out = like(a)
    ones = sbuf(ROWS, PIECE)
    nisa.memset(dst=ones, value=1.0)
    for rows in tiles(a):
        initial: Any = 0.0
        for start in range(0, a.shape[1], PIECE):
            here = (rows, slice(start, start + PIECE))
            x, y = sbuf(ROWS, PIECE), sbuf(ROWS, PIECE)
            nisa.dma_copy(dst=x, src=a[here])
            nisa.tensor_tensor_scan(dst=y, data0=ones, data1=x, initial=initial, op0=nl.multiply, op1=nl.add)
            nisa.dma_copy(dst=out[here], src=y)
            initial = y[:, PIECE - 1 : PIECE]
    return out


def largest(a: Any, rounds: int) -> Any:
    """The ``8 * rounds`` largest values of every row, in descending order, and their positions."""
    count = 8 * rounds
    values = nl.ndarray((a.shape[0], count), a.dtype, buffer=nl.shared_hbm)
    places = nl.ndarray((a.shape[0], count), nl.uint32, buffer=nl.shared_hbm)
    for rows in tiles(a):
        x = sbuf(ROWS, a.shape[1], dtype=a.dtype)
        best, found = sbuf(ROWS, count, dtype=a.dtype), sbuf(ROWS, count, dtype=nl.uint32)
        nisa.dma_copy(dst=x, src=a[rows])
        for start in range(0, count, 8):
            here = slice(start, start + 8)
            nisa.max8(dst=best[:, here], src=x)
            nisa.nc_find_index8(dst=found[:, here], data=x, vals=best[:, here])
            if start + 8 < count:
                nisa.nc_match_replace8(dst=x, data=x, vals=best[:, here], imm=-1e30)
        nisa.dma_copy(dst=values[rows], src=best)
        nisa.dma_copy(dst=places[rows], src=found)
    return values, places


def gather(table: Any, rows: Any, scale: float) -> Any:
    """Rows of a table by index, scaled, one tile of 128 indices after the other; `rows` is ``(n, 1)`` int32."""
    out = nl.ndarray((rows.shape[0], table.shape[1]), table.dtype, buffer=nl.shared_hbm)
    for here in tiles(rows):
        index, x = sbuf(ROWS, 1, dtype=nl.int32), sbuf(ROWS, table.shape[1], dtype=table.dtype)
        nisa.dma_copy(dst=index, src=rows[here])
        nisa.dma_copy(dst=x, src=table.ap([[table.shape[1], ROWS], [1, table.shape[1]]], vector_offset=index))
        nisa.activation(dst=x, op=nl.copy, data=x, scale=scale)
        nisa.dma_copy(dst=out[here], src=x)
    return out


def capped(a: Any, cap: float) -> Any:
    """Softmax over the columns of ``cap * tanh(a / cap)``, two activation tables for every tile."""
    out = like(a)
    for rows in tiles(a):
        x, e, y = (sbuf(ROWS, a.shape[1]) for _ in range(3))
        total, inverse = (sbuf(ROWS, 1) for _ in range(2))
        nisa.dma_copy(dst=x, src=a[rows])
        nisa.activation(dst=x, op=nl.tanh, data=x, scale=1.0 / cap)
        nisa.activation_reduce(dst=e, op=nl.exp, data=x, scale=cap, reduce_op=nl.add, reduce_res=total)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=y, data=e, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[rows], src=y)
    return out
