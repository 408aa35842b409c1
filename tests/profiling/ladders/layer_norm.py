"""Layer norm over rows, first in chunks of 64 columns, which are loaded three times."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.profiling.ladders import Ladder, Rung, load, tile

ROWS, CHUNK, EPSILON = 128, 64, 1e-5


def _chunks(width: int) -> list[Any]:
    return [nl.ds(start, CHUNK) for start in range(0, width, CHUNK)]


def naive(x: Any, gamma: Any, beta: Any) -> Any:
    """Sums, then squares, then results: each pass loads its chunks, and each step is an instruction."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    width = x.shape[1]
    for first in range(0, x.shape[0], ROWS):
        rows = nl.ds(first, ROWS)
        total, mean = tile((ROWS, 1)), tile((ROWS, 1))
        nisa.memset(dst=total, value=0.0)
        for chunk in _chunks(width):
            part = tile((ROWS, 1))
            nisa.tensor_reduce(dst=part, op=nl.add, data=load(x[rows, chunk]), axis=1)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / width)
        squares, factor = tile((ROWS, 1)), tile((ROWS, 1))
        nisa.memset(dst=squares, value=0.0)
        for chunk in _chunks(width):
            centered, square, part = tile((ROWS, CHUNK)), tile((ROWS, CHUNK)), tile((ROWS, 1))
            nisa.tensor_scalar(dst=centered, data=load(x[rows, chunk]), op0=nl.subtract, operand0=mean)
            nisa.tensor_tensor(dst=square, data1=centered, data2=centered, op=nl.multiply)
            nisa.tensor_reduce(dst=part, op=nl.add, data=square, axis=1)
            nisa.tensor_tensor(dst=squares, data1=squares, data2=part, op=nl.add)
        nisa.tensor_scalar(dst=squares, data=squares, op0=nl.multiply, operand0=1.0 / width)
        nisa.tensor_scalar(dst=squares, data=squares, op0=nl.add, operand0=EPSILON)
        nisa.activation(dst=factor, op=nl.sqrt, data=squares)
        nisa.reciprocal(dst=factor, data=factor)
        for chunk in _chunks(width):
            y, scaled = tile((ROWS, CHUNK)), tile((ROWS, CHUNK))
            g, b = load(gamma[:, chunk].broadcast(0, ROWS)), load(beta[:, chunk].broadcast(0, ROWS))
            nisa.tensor_scalar(dst=y, data=load(x[rows, chunk]), op0=nl.subtract, operand0=mean)
            nisa.tensor_scalar(dst=scaled, data=y, op0=nl.multiply, operand0=factor)
            nisa.tensor_tensor(dst=y, data1=scaled, data2=g, op=nl.multiply)
            nisa.tensor_tensor(dst=y, data1=y, data2=b, op=nl.add)
            nisa.dma_copy(dst=out[rows, chunk], src=y)
    return out


def fused(x: Any, gamma: Any, beta: Any) -> Any:
    """Squares are added up by the activation that makes them, and instructions have two operators."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    width = x.shape[1]
    epsilon = tile((ROWS, 1))
    nisa.memset(dst=epsilon, value=EPSILON)
    for first in range(0, x.shape[0], ROWS):
        rows = nl.ds(first, ROWS)
        total, mean = tile((ROWS, 1)), tile((ROWS, 1))
        nisa.memset(dst=total, value=0.0)
        for chunk in _chunks(width):
            part = tile((ROWS, 1))
            nisa.tensor_reduce(dst=part, op=nl.add, data=load(x[rows, chunk]), axis=1)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / width)
        squares, factor = tile((ROWS, 1)), tile((ROWS, 1))
        nisa.memset(dst=squares, value=0.0)
        for chunk in _chunks(width):
            centered, square, part = tile((ROWS, CHUNK)), tile((ROWS, CHUNK)), tile((ROWS, 1))
            nisa.tensor_scalar(dst=centered, data=load(x[rows, chunk]), op0=nl.subtract, operand0=mean)
            nisa.activation(
                dst=square, op=nl.square, data=centered,
                reduce_op=nl.add, reduce_res=part, reduce_cmd=nisa.reduce_cmd.reset_reduce,
            )  # fmt: skip
            nisa.tensor_tensor(dst=squares, data1=squares, data2=part, op=nl.add)
        nisa.activation(dst=factor, op=nl.sqrt, data=squares, scale=1.0 / width, bias=epsilon)
        nisa.reciprocal(dst=factor, data=factor)
        for chunk in _chunks(width):
            y = tile((ROWS, CHUNK))
            g, b = load(gamma[:, chunk].broadcast(0, ROWS)), load(beta[:, chunk].broadcast(0, ROWS))
            nisa.tensor_scalar(
                dst=y, data=load(x[rows, chunk]), op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=factor
            )
            nisa.tensor_tensor(dst=y, data1=y, data2=g, op=nl.multiply)
            nisa.tensor_tensor(dst=y, data1=y, data2=b, op=nl.add)
            nisa.dma_copy(dst=out[rows, chunk], src=y)
    return out


def moved_together(x: Any, gamma: Any, beta: Any) -> Any:
    """Whole rows are moved with each transfer; the chunks are parts of a tile."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    width = x.shape[1]
    chunks = _chunks(width)
    g, b = load(gamma.broadcast(0, ROWS)), load(beta.broadcast(0, ROWS))
    tiles = [load(x[nl.ds(first, ROWS)]) for first in range(0, x.shape[0], ROWS)]
    epsilon = tile((ROWS, 1))
    nisa.memset(dst=epsilon, value=EPSILON)
    for number, t in enumerate(tiles):
        total, mean, y = tile((ROWS, 1)), tile((ROWS, 1)), tile((ROWS, width))
        nisa.memset(dst=total, value=0.0)
        for chunk in chunks:
            part = tile((ROWS, 1))
            nisa.tensor_reduce(dst=part, op=nl.add, data=t[:, chunk], axis=1)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / width)
        squares, factor = tile((ROWS, 1)), tile((ROWS, 1))
        nisa.memset(dst=squares, value=0.0)
        for chunk in chunks:
            centered, square, part = tile((ROWS, CHUNK)), tile((ROWS, CHUNK)), tile((ROWS, 1))
            nisa.tensor_scalar(dst=centered, data=t[:, chunk], op0=nl.subtract, operand0=mean)
            nisa.activation(
                dst=square, op=nl.square, data=centered,
                reduce_op=nl.add, reduce_res=part, reduce_cmd=nisa.reduce_cmd.reset_reduce,
            )  # fmt: skip
            nisa.tensor_tensor(dst=squares, data1=squares, data2=part, op=nl.add)
        nisa.activation(dst=factor, op=nl.sqrt, data=squares, scale=1.0 / width, bias=epsilon)
        nisa.reciprocal(dst=factor, data=factor)
        for chunk in chunks:
            mine = y[:, chunk]
            nisa.tensor_scalar(
                dst=mine, data=t[:, chunk], op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=factor
            )
            nisa.tensor_tensor(dst=mine, data1=mine, data2=g[:, chunk], op=nl.multiply)
            nisa.tensor_tensor(dst=mine, data1=mine, data2=b[:, chunk], op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(number * ROWS, ROWS)], src=y)
    return out


def long(x: Any, gamma: Any, beta: Any) -> Any:
    """One instruction works on all columns of its rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    width = x.shape[1]
    g, b = load(gamma.broadcast(0, ROWS)), load(beta.broadcast(0, ROWS))
    tiles = [load(x[nl.ds(first, ROWS)]) for first in range(0, x.shape[0], ROWS)]
    epsilon = tile((ROWS, 1))
    nisa.memset(dst=epsilon, value=EPSILON)
    for number, t in enumerate(tiles):
        total, mean, squares, factor = (tile((ROWS, 1)) for _ in range(4))
        centered, square, y = (tile((ROWS, width)) for _ in range(3))
        nisa.tensor_reduce(dst=total, op=nl.add, data=t, axis=1)
        nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / width)
        nisa.tensor_scalar(dst=centered, data=t, op0=nl.subtract, operand0=mean)
        nisa.activation(
            dst=square, op=nl.square, data=centered,
            reduce_op=nl.add, reduce_res=squares, reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )  # fmt: skip
        nisa.activation(dst=factor, op=nl.sqrt, data=squares, scale=1.0 / width, bias=epsilon)
        nisa.reciprocal(dst=factor, data=factor)
        nisa.tensor_scalar(dst=y, data=t, op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=factor)
        nisa.tensor_tensor(dst=y, data1=y, data2=g, op=nl.multiply)
        nisa.tensor_tensor(dst=y, data1=y, data2=b, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(number * ROWS, ROWS)], src=y)
    return out


def _arguments(size: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    shapes = ((256, size), (1, size), (1, size))
    x, gamma, beta = (random.normal(size=shape).astype(np.float32) for shape in shapes)
    return x, gamma, beta


def _reference(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + EPSILON)
    return normal * gamma + beta


LAYER_NORM = Ladder(
    (
        Rung("", naive),
        Rung("fusion", fused),
        Rung("transfer-starts", moved_together),
        Rung("short-instructions", long),
    ),
    _arguments,
    _reference,
    size=1024,
    small=256,
    tolerance=1e-5,
)
