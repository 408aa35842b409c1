"""Kernels that the tests of JAX share."""

from __future__ import annotations

from typing import Any, NamedTuple

import nki
import nki.isa as nisa
import nki.language as nl


def load(array: Any) -> Any:
    tile = nl.ndarray(array.shape, array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def store(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def add(a: Any, b: Any) -> Any:
    x = load(a)
    nisa.tensor_tensor(dst=x, data1=x, data2=load(b), op=nl.add)
    return store(x)


@nki.jit
def scaled(a: Any, scale: float = 3.0) -> Any:
    x = load(a)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=scale)
    return store(x)


class Both(NamedTuple):
    total: Any
    parts: tuple[Any, ...]


@nki.jit
def several(pair: Any) -> Any:
    x, y = load(pair["x"]), load(pair["y"])
    z = load(pair["x"])
    nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.add)
    return Both(store(z), (store(x), store(y)))


@nki.jit
def copied(a: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=a)
    return out


@nki.jit
def chosen(a: Any, rows: Any) -> Any:
    x, index = nl.zeros((4, 8), nl.float32), load(rows)
    nisa.dma_copy(dst=x, src=a.vector_select(0, index))
    return store(x)


@nki.jit
def too_wide(a: Any) -> Any:
    return store(nl.ndarray((256, 8), nl.float32, buffer=nl.sbuf))


@nki.jit
def in_place(a: Any) -> Any:
    x = load(a)
    nisa.tensor_tensor(dst=x, data1=x, data2=x, op=nl.add)
    nisa.dma_copy(dst=a, src=x)
    return a


@nki.jit
def lost(a: Any) -> None:
    nisa.dma_copy(dst=a, src=load(a))
