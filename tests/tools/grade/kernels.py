"""Honest kernels and references for grades, as source: a candidate is a file of its own."""

from __future__ import annotations

HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl
"""

ADD = (
    HEAD
    + """

@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows, columns = a.shape
    for start in range(0, rows, 128):
        piece = nl.ds(start, min(128, rows - start))
        left = nl.ndarray((min(128, rows - start), columns), dtype=a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((min(128, rows - start), columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[piece, 0:columns])
        nisa.dma_copy(dst=right, src=b[piece, 0:columns])
        nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
        nisa.dma_copy(dst=out[piece, 0:columns], src=left)
    return out
"""
)

_SUM = "        nisa.tensor_tensor("
_AGAIN = "        nisa.tensor_scalar(dst=left, data=left, op0=nl.multiply, operand0=1.0)\n"
SLOW_ADD = ADD.replace(_SUM, 4 * _AGAIN + _SUM)

MATMUL = (
    HEAD
    + """

@nki.jit
def matmul(x, w):
    out = nl.ndarray((x.shape[1], w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    right = nl.ndarray(w.shape, dtype=w.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x)
    nisa.dma_copy(dst=right, src=w)
    product = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=left, moving=right)
    result = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=product)
    nisa.dma_copy(dst=out, src=result)
    return out
"""
)

SOFTMAX = (
    HEAD
    + """

@nki.jit
def softmax(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, columns = x.shape
    for start in range(0, rows, 128):
        count = min(128, rows - start)
        piece = nl.ds(start, count)
        tile = nl.ndarray((count, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[piece, 0:columns])
        top = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=1, negate=True)
        total = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=tile, op=nl.exp, data=tile, bias=top)
        nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[piece, 0:columns], src=tile)
    return out
"""
)

NAIVE_SOFTMAX = SOFTMAX.replace("bias=top", "scale=1.0")

INCREMENT = (
    HEAD
    + """

@nki.jit
def increment(a, b):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    other = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.dma_copy(dst=other, src=b)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
    nisa.dma_copy(dst=a, src=tile)
"""
)

GATHER = (
    HEAD
    + """

@nki.jit
def gather(table, index):
    rows, columns = index.shape[0], table.shape[1]
    out = nl.ndarray((rows, columns), dtype=table.dtype, buffer=nl.shared_hbm)
    places = nl.ndarray(index.shape, dtype=index.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=places, src=index)
    tile = nl.ndarray((rows, columns), dtype=table.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=table.ap([[columns, rows], [1, columns]], vector_offset=places))
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
)

REFERENCES = """
import numpy as np

SECRET = "the reference was here"


def add(a, b):
    return a + b


def matmul(x, w):
    return x.T @ w


def softmax(x):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def increment(a, b):
    a += b


def gather(table, index):
    return table[index[:, 0]]
"""
