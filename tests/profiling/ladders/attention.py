"""Softmax attention of 512 tokens and one head of 64, first in three passes through device memory."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.profiling.ladders import Ladder, Rung, load, sums, tile

ROWS = 128


def _turned(tensor: Any, row: int, column: int, width: int) -> Any:
    """128 rows and some columns of a tensor in device memory, with rows and columns exchanged."""
    size = tensor.shape[1]
    return tensor.ap([[1, width], [size, ROWS]], offset=row * ROWS * size + column * width)


def _rows(number: int) -> Any:
    return nl.ds(number * ROWS, ROWS)


def naive(q: Any, k: Any, v: Any) -> Any:
    """Scores, then their softmax, then the sums of values: each pass stores what the next one loads."""
    tokens, size = q.shape
    scores = nl.ndarray((tokens, tokens), dtype=q.dtype, buffer=nl.private_hbm)
    weights = nl.ndarray((tokens, tokens), dtype=q.dtype, buffer=nl.private_hbm)
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    count = tokens // ROWS
    for i in range(count):
        for j in range(count):
            product, scaled = sums((ROWS, ROWS)), tile((ROWS, ROWS))
            nisa.nc_matmul(dst=product, stationary=load(_turned(q, i, 0, size)), moving=load(_turned(k, j, 0, size)))
            nisa.tensor_scalar(dst=scaled, data=product, op0=nl.multiply, operand0=size**-0.5)
            nisa.dma_copy(dst=scores[_rows(i), _rows(j)], src=scaled)
    for i in range(count):
        row = load(scores[_rows(i)])
        most, total = tile((ROWS, 1)), tile((ROWS, 1))
        nisa.tensor_reduce(dst=most, op=nl.maximum, data=row, axis=1)
        nisa.tensor_scalar(dst=row, data=row, op0=nl.subtract, operand0=most)
        weight = tile((ROWS, tokens))
        nisa.activation(dst=weight, op=nl.exp, data=row)
        nisa.tensor_reduce(dst=total, op=nl.add, data=weight, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=weight, data=weight, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=weights[_rows(i)], src=weight)
    for i in range(count):
        result, copied = sums((ROWS, size)), tile((ROWS, size))
        for j in range(count):
            nisa.nc_matmul(dst=result, stationary=load(_turned(weights, i, j, ROWS)), moving=load(v[_rows(j)]))
        nisa.tensor_copy(dst=copied, src=result)
        nisa.dma_copy(dst=out[_rows(i)], src=copied)
    return out


def _turned_on_chip(x: Any) -> Any:
    """A tile with rows and columns exchanged, by way of PSUM."""
    turned, made = sums((x.shape[1], x.shape[0])), tile((x.shape[1], x.shape[0]))
    nisa.nc_transpose(dst=turned, data=x)
    nisa.tensor_copy(dst=made, src=turned)
    return made


def one_pass(q: Any, k: Any, v: Any) -> Any:
    """Scores and weights stay in SBUF."""
    tokens, size = q.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    count = tokens // ROWS
    for i in range(count):
        row, weight = tile((ROWS, tokens)), tile((ROWS, tokens))
        for j in range(count):
            product = sums((ROWS, ROWS))
            nisa.nc_matmul(dst=product, stationary=load(_turned(q, i, 0, size)), moving=load(_turned(k, j, 0, size)))
            nisa.tensor_scalar(dst=row[:, _rows(j)], data=product, op0=nl.multiply, operand0=size**-0.5)
        most, total = tile((ROWS, 1)), tile((ROWS, 1))
        nisa.tensor_reduce(dst=most, op=nl.maximum, data=row, axis=1)
        nisa.tensor_scalar(dst=row, data=row, op0=nl.subtract, operand0=most)
        nisa.activation(dst=weight, op=nl.exp, data=row)
        nisa.tensor_reduce(dst=total, op=nl.add, data=weight, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=weight, data=weight, op0=nl.multiply, operand0=total)
        result, copied = sums((ROWS, size)), tile((ROWS, size))
        for j in range(count):
            nisa.nc_matmul(dst=result, stationary=_turned_on_chip(weight[:, _rows(j)]), moving=load(v[_rows(j)]))
        nisa.tensor_copy(dst=copied, src=result)
        nisa.dma_copy(dst=out[_rows(i)], src=copied)
    return out


def turned_on_chip(q: Any, k: Any, v: Any) -> Any:
    """Queries and keys are loaded as they lie, and transposed on chip."""
    tokens, size = q.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    count = tokens // ROWS
    for i in range(count):
        row, weight = tile((ROWS, tokens)), tile((ROWS, tokens))
        for j in range(count):
            product = sums((ROWS, ROWS))
            query, key = _turned_on_chip(load(q[_rows(i)])), _turned_on_chip(load(k[_rows(j)]))
            nisa.nc_matmul(dst=product, stationary=query, moving=key)
            nisa.tensor_scalar(dst=row[:, _rows(j)], data=product, op0=nl.multiply, operand0=size**-0.5)
        most, total = tile((ROWS, 1)), tile((ROWS, 1))
        nisa.tensor_reduce(dst=most, op=nl.maximum, data=row, axis=1)
        nisa.tensor_scalar(dst=row, data=row, op0=nl.subtract, operand0=most)
        nisa.activation(dst=weight, op=nl.exp, data=row)
        nisa.tensor_reduce(dst=total, op=nl.add, data=weight, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=weight, data=weight, op0=nl.multiply, operand0=total)
        result, copied = sums((ROWS, size)), tile((ROWS, size))
        for j in range(count):
            nisa.nc_matmul(dst=result, stationary=_turned_on_chip(weight[:, _rows(j)]), moving=load(v[_rows(j)]))
        nisa.tensor_copy(dst=copied, src=result)
        nisa.dma_copy(dst=out[_rows(i)], src=copied)
    return out


def fused(q: Any, k: Any, v: Any) -> Any:
    """The exponential subtracts the maximum, and adds up what it writes."""
    tokens, size = q.shape
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    count = tokens // ROWS
    for i in range(count):
        row, weight = tile((ROWS, tokens)), tile((ROWS, tokens))
        for j in range(count):
            product = sums((ROWS, ROWS))
            query, key = _turned_on_chip(load(q[_rows(i)])), _turned_on_chip(load(k[_rows(j)]))
            nisa.nc_matmul(dst=product, stationary=query, moving=key)
            nisa.tensor_scalar(dst=row[:, _rows(j)], data=product, op0=nl.multiply, operand0=size**-0.5)
        least, total = tile((ROWS, 1)), tile((ROWS, 1))
        nisa.tensor_reduce(dst=least, op=nl.maximum, data=row, axis=1, negate=True)
        nisa.activation(
            dst=weight, op=nl.exp, data=row, bias=least,
            reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )  # fmt: skip
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=weight, data=weight, op0=nl.multiply, operand0=total)
        result, copied = sums((ROWS, size)), tile((ROWS, size))
        for j in range(count):
            nisa.nc_matmul(dst=result, stationary=_turned_on_chip(weight[:, _rows(j)]), moving=load(v[_rows(j)]))
        nisa.tensor_copy(dst=copied, src=result)
        nisa.dma_copy(dst=out[_rows(i)], src=copied)
    return out


def _arguments(size: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    return tuple(random.normal(size=(size, 64)).astype(np.float32) for _ in range(3))


def _reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q.astype(np.float64) @ k.astype(np.float64).T / np.sqrt(q.shape[1])
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v.astype(np.float64)


ATTENTION = Ladder(
    (
        Rung("", naive),
        Rung("round-trips", one_pass),
        Rung("small-descriptors", turned_on_chip),
        Rung("fusion", fused),
    ),
    _arguments,
    _reference,
    size=512,
    small=256,
    tolerance=1e-5,
)
