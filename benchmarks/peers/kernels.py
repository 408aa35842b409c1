"""The kernels that are measured, written for `nki.isa` as one would for the hardware: wide tiles, few instructions."""

from __future__ import annotations

from typing import Any, NamedTuple

import nki.isa as nisa
import nki.language as nl

ROWS = 128
WIDTH = 2048
"""Columns of an elementwise tile: long rows make long DMA descriptors, and one instruction covers 128 x 2048."""

BANK = 512
"""float32 columns of a PSUM bank, the most that one matmul writes."""

KEYS = 1024
"""Keys whose scores are in PSUM at once: two banks, so that the next two can be filled meanwhile."""

EPSILON = 1e-6
SCALE, SHIFT = 1.5, 0.25
"""gelu is applied to ``x * SCALE + SHIFT``, as a layer's scale and bias would have it."""


def sbuf(*shape: int, dtype: Any = nl.float32) -> Any:
    """A tensor in SBUF."""
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def psum(*shape: int, dtype: Any = nl.float32) -> Any:
    """A tensor in PSUM."""
    return nl.ndarray(shape, dtype, buffer=nl.psum)


def loaded(source: Any) -> Any:
    """A piece of HBM in SBUF."""
    tile = sbuf(*source.shape, dtype=source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def blocks(size: int, step: int) -> list[slice]:
    """Slices of a dimension that is a multiple of `step`."""
    return [slice(start, start + step) for start in range(0, size, step)]


def here(size: int, step: int) -> list[slice]:
    """This core's blocks of a dimension: the cores of a launch take turns."""
    return blocks(size, step)[nl.program_id(0) :: nl.num_programs(0)]


def vadd(a: Any, b: Any) -> Any:
    """``a + b``."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for rows in here(a.shape[0], ROWS):
        for columns in blocks(a.shape[1], WIDTH):
            x, y = loaded(a[rows, columns]), loaded(b[rows, columns])
            nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
            nisa.dma_copy(dst=out[rows, columns], src=x)
    return out


def gelu(a: Any) -> Any:
    """``gelu(a * SCALE + SHIFT)`` in the tanh form; scale and shift are part of the one instruction."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for rows in here(a.shape[0], ROWS):
        for columns in blocks(a.shape[1], WIDTH):
            x = loaded(a[rows, columns])
            y = sbuf(*x.shape, dtype=a.dtype)
            nisa.activation(dst=y, op=nl.gelu_apprx_tanh, data=x, scale=SCALE, bias=SHIFT)
            nisa.dma_copy(dst=out[rows, columns], src=y)
    return out


def softmax(a: Any) -> Any:
    """Softmax over the columns; a row is in SBUF as a whole, so that it is read once."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for rows in here(a.shape[0], ROWS):
        x = loaded(a[rows])
        low, total, inverse = sbuf(ROWS, 1), sbuf(ROWS, 1), sbuf(ROWS, 1)
        exponentials, y = sbuf(*x.shape), sbuf(*x.shape, dtype=a.dtype)
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=x, axis=1, negate=True)
        nisa.activation_reduce(dst=exponentials, op=nl.exp, data=x, bias=low, reduce_op=nl.add, reduce_res=total)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=y, data=exponentials, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[rows], src=y)
    return out


def rmsnorm(a: Any, weight: Any) -> Any:
    """``a / sqrt(mean(a ** 2) + EPSILON) * weight``; one DMA puts the weight, (1, columns), on every partition."""
    width = a.shape[1]
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    gain = loaded(weight.ap([[0, ROWS], [1, width]]))
    epsilon = sbuf(ROWS, 1)
    nisa.memset(dst=epsilon, value=EPSILON)
    for rows in here(a.shape[0], ROWS):
        x = loaded(a[rows])
        squares, y = sbuf(*x.shape), sbuf(*x.shape, dtype=a.dtype)
        total, scale = sbuf(ROWS, 1), sbuf(ROWS, 1)
        nisa.activation_reduce(dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
        nisa.activation(dst=scale, op=nl.rsqrt, data=total, bias=epsilon, scale=1.0 / width)
        nisa.scalar_tensor_tensor(dst=y, data=x, op0=nl.multiply, operand0=scale, op1=nl.multiply, operand1=gain)
        nisa.dma_copy(dst=out[rows], src=y)
    return out


def matmul(a: Any, b: Any) -> Any:
    """``a.T @ b`` for (K, M) and (K, N), multiples of 512; both stay in SBUF, sums over K stay in PSUM."""
    depth, height, width = a.shape[0], a.shape[1], b.shape[1]
    out = nl.ndarray((height, width), a.dtype, buffer=nl.shared_hbm)
    left = [loaded(a[k]) for k in blocks(depth, ROWS)]
    right = [loaded(b[k]) for k in blocks(depth, ROWS)]
    for rows in here(height, ROWS):
        result = sbuf(ROWS, width, dtype=a.dtype)
        for columns in blocks(width, BANK):
            product = psum(ROWS, BANK)
            for number, (x, y) in enumerate(zip(left, right, strict=True)):
                nisa.nc_matmul(dst=product, stationary=x[:, rows], moving=y[:, columns], accumulate=number > 0)
            nisa.tensor_copy(dst=result[:, columns], src=product)
        nisa.dma_copy(dst=out[rows], src=result)
    return out


def attention(q: Any, k: Any, v: Any) -> Any:
    """``softmax(q.T @ k / sqrt(128)) @ v`` for one head, without ever storing all scores.

    Args:
        q, k: (128, sequence), the head dimension first, as the Tensor engine contracts it; sequence a multiple of KEYS.
        v: (sequence, 128).
    """
    head, sequence = q.shape
    out = nl.ndarray((sequence, head), q.dtype, buffer=nl.shared_hbm)
    queries, keys = loaded(q), loaded(k)
    values = [loaded(v[rows]) for rows in blocks(sequence, ROWS)]
    for rows in here(sequence, ROWS):
        running = None
        for piece in blocks(sequence, KEYS):
            chunks = values[piece.start // ROWS : piece.stop // ROWS]
            running = _attend(queries[:, rows], keys[:, piece], chunks, running)
            if piece.start == 0 and piece.stop < sequence:  # Vector reads one operand from PSUM, not two
                kept = sbuf(ROWS, head)
                nisa.tensor_copy(dst=kept, src=running.weighted)
                running = running._replace(weighted=kept)
        inverse, result = sbuf(ROWS, 1), sbuf(ROWS, head, dtype=q.dtype)
        nisa.reciprocal(dst=inverse, data=running.total)
        nisa.tensor_scalar(dst=result, data=running.weighted, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[rows], src=result)
    return out


class Running(NamedTuple):
    """Of 128 queries after some keys: largest score, sum of exponentials, and values weighted with them."""

    maximum: Any
    total: Any
    weighted: Any


def _attend(queries: Any, keys: Any, values: list[Any], before: Running | None) -> Running:
    """128 queries against KEYS keys, added to what came before."""
    scale = queries.shape[0] ** -0.5
    scores = psum(ROWS, KEYS)
    for columns in blocks(KEYS, BANK):
        nisa.nc_matmul(dst=scores[:, columns], stationary=queries, moving=keys[:, columns])
    maximum = sbuf(ROWS, 1)
    nisa.tensor_reduce(dst=maximum, op=nl.maximum, data=scores, axis=1)
    if before is not None:
        nisa.tensor_tensor(dst=maximum, data1=maximum, data2=before.maximum, op=nl.maximum)
    bias, total, weights = sbuf(ROWS, 1), sbuf(ROWS, 1), sbuf(ROWS, KEYS, dtype=keys.dtype)
    nisa.tensor_scalar(dst=bias, data=maximum, op0=nl.multiply, operand0=-scale)
    nisa.activation_reduce(
        dst=weights, op=nl.exp, data=scores, bias=bias, scale=scale, reduce_op=nl.add, reduce_res=total
    )
    weighted = _weighted(weights, values)
    if before is None:
        return Running(maximum, total, weighted)
    shrink = sbuf(ROWS, 1)
    nisa.activation(dst=shrink, op=nl.exp, data=before.maximum, bias=bias, scale=scale)
    return Running(maximum, _grown(before.total, shrink, total), _grown(before.weighted, shrink, weighted))


def _weighted(weights: Any, values: list[Any]) -> Any:
    """``weights @ values`` in PSUM; the second product contracts over keys, so these go to the partitions first."""
    turned = psum(ROWS, KEYS, dtype=weights.dtype)
    for keys in blocks(KEYS, ROWS):
        nisa.nc_transpose(dst=turned[:, keys], data=weights[:, keys], engine=nisa.engine.tensor)
    back = sbuf(ROWS, KEYS, dtype=weights.dtype)
    nisa.tensor_copy(dst=back, src=turned)
    product = psum(ROWS, values[0].shape[1])
    for number, (keys, chunk) in enumerate(zip(blocks(KEYS, ROWS), values, strict=True)):
        nisa.nc_matmul(dst=product, stationary=back[:, keys], moving=chunk, accumulate=number > 0)
    return product


def _grown(old: Any, shrink: Any, new: Any) -> Any:
    """``old * shrink + new``."""
    grown = sbuf(*old.shape)
    nisa.scalar_tensor_tensor(dst=grown, data=old, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=new)
    return grown


KERNELS = {"vadd": vadd, "gelu": gelu, "softmax": softmax, "rmsnorm": rmsnorm, "matmul": matmul, "attention": attention}
