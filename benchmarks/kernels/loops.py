"""Kernels with loops on the device. Inputs are stacks of tiles; the first dimension is that of the trips."""

from __future__ import annotations

from typing import Any

from benchmarks.kernels.products import ROWS, loaded, psum
from benchmarks.kernels.rows import like, sbuf

import nki.isa as nisa
import nki.language as nl


def scaled(a: Any) -> Any:
    """``a * 0.5 + 1``, then its exponential."""
    out = like(a)

    def body(i: Any) -> None:
        x, y = sbuf(*a.shape[1:], dtype=a.dtype), sbuf(*a.shape[1:], dtype=a.dtype)
        nisa.dma_copy(dst=x, src=a.select(0, i))
        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0)
        nisa.activation(dst=y, op=nl.exp, data=y)
        nisa.dma_copy(dst=out.select(0, i), src=y)

    nl.fori_loop(0, a.shape[0], body)
    return out


def added(a: Any, b: Any) -> Any:
    """``(a + b) * a``."""
    out = like(a)

    def body(i: Any) -> None:
        x, y, z = (sbuf(*a.shape[1:], dtype=a.dtype) for _ in range(3))
        nisa.dma_copy(dst=x, src=a.select(0, i))
        nisa.dma_copy(dst=y, src=b.select(0, i))
        nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.add)
        nisa.tensor_tensor(dst=z, data1=z, data2=x, op=nl.multiply, engine=nisa.engine.gpsimd)
        nisa.dma_copy(dst=out.select(0, i), src=z)

    nl.fori_loop(0, a.shape[0], body)
    return out


def normalized(a: Any) -> Any:
    """Softmax over the columns of every tile."""
    out = like(a)

    def body(i: Any) -> None:
        x, e = sbuf(*a.shape[1:]), sbuf(*a.shape[1:])
        low, total, inverse = (sbuf(ROWS, 1) for _ in range(3))
        nisa.dma_copy(dst=x, src=a.select(0, i))
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=x, axis=1, negate=True)
        nisa.activation_reduce(dst=e, op=nl.exp, data=x, bias=low, reduce_op=nl.add, reduce_res=total)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=e, data=e, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out.select(0, i), src=e)

    nl.fori_loop(0, a.shape[0], body)
    return out


def multiplied(a: Any, b: Any) -> Any:
    """``weights.T @ tile`` for every tile: a is (128, 128), b (trips, 128, 512)."""
    out = nl.ndarray(b.shape, b.dtype, buffer=nl.shared_hbm)
    weights = loaded(a)

    def body(i: Any) -> None:
        x, y, product = sbuf(*b.shape[1:], dtype=b.dtype), sbuf(*b.shape[1:], dtype=b.dtype), psum(*b.shape[1:])
        nisa.dma_copy(dst=x, src=b.select(0, i))
        nisa.nc_matmul(dst=product, stationary=weights, moving=x)
        nisa.tensor_copy(dst=y, src=product)
        nisa.dma_copy(dst=out.select(0, i), src=y)

    nl.fori_loop(0, b.shape[0], body)
    return out


def layer(a: Any, b: Any, c: Any) -> Any:
    """``c.T @ gelu(a.T @ tile)`` for every tile; a and c are (128, 128), b (trips, 128, 512)."""
    out = nl.ndarray(b.shape, b.dtype, buffer=nl.shared_hbm)
    first, second = loaded(a), loaded(c)

    def body(i: Any) -> None:
        x, y, z = (sbuf(*b.shape[1:], dtype=b.dtype) for _ in range(3))
        inner, product = psum(*b.shape[1:]), psum(*b.shape[1:])
        nisa.dma_copy(dst=x, src=b.select(0, i))
        nisa.nc_matmul(dst=inner, stationary=first, moving=x)
        nisa.activation(dst=y, op=nl.gelu, data=inner)
        nisa.nc_matmul(dst=product, stationary=second, moving=y)
        nisa.tensor_copy(dst=z, src=product)
        nisa.dma_copy(dst=out.select(0, i), src=z)

    nl.fori_loop(0, b.shape[0], body)
    return out


def mixed(a: Any, b: Any) -> Any:
    """A loop, and after it a large unrolled part: ``a.exp()``, and ``b * 2 + 1`` in pieces of 512 columns."""
    first, second = like(a), like(b)
    for i in nl.dynamic_range(a.shape[0]):
        x = sbuf(*a.shape[1:], dtype=a.dtype)
        nisa.dma_copy(dst=x, src=a.select(0, i))
        nisa.activation(dst=x, op=nl.exp, data=x)
        nisa.dma_copy(dst=first.select(0, i), src=x)
    for start in range(0, b.shape[1], 512):
        here = slice(start, start + 512)
        y = loaded(b[:, here])
        nisa.tensor_scalar(dst=y, data=y, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
        nisa.dma_copy(dst=second[:, here], src=y)
    return first, second
