"""Examples of tensor_tensor and tensor_scalar."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.isa.registry import Breaks, Legal


def load(array: Any, dtype: Any = None) -> Any:
    tile = nl.ndarray(array.shape, dtype or array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def store(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def pair(dtype: Any = np.float32) -> Any:
    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(1)
        return tuple((r.standard_normal((64, 48)) * 50).astype(dtype) for _ in "ab")

    return make


def add(a: Any, b: Any) -> Any:
    x, y = load(a), load(b)
    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
    return store(x)


def add_shapes(a: Any, b: Any) -> Any:
    x, y = load(a), load(b)
    nisa.tensor_tensor(dst=x[:, 0:8], data1=x[:, 0:8], data2=y[:, 0:9], op=nl.add)
    return store(x)


EXAMPLES = [
    Legal("tensor_tensor", add, pair(), lambda a, b: a + b),
    Legal("tensor_tensor", add, pair(np.int32), lambda a, b: a + b),
    Breaks("tensor_tensor.shapes", add_shapes, pair()),
]
