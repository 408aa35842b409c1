"""Tiles for the kernels of tests: made from arrays, filled, gathered, and returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.language as nl
from nki.isa.copy import memset, tensor_copy
from nki.isa.dma import dma_copy
from tests.isa.registry import Breaks
from tests.support import environment


def load(array: Any, buffer: Any = nl.sbuf, dtype: Any = None, shape: Any = None) -> Any:
    """An HBM array on chip, in another shape, buffer or dtype if one is given; Vector casts."""
    tile = nl.ndarray(shape or array.shape, array.dtype, buffer=nl.sbuf)
    dma_copy(dst=tile, src=array)
    if buffer is nl.sbuf and dtype is None:
        return tile
    other = nl.ndarray(tile.shape, dtype or tile.dtype, buffer=buffer)
    tensor_copy(dst=other, src=tile)
    return other


def dma_load(array: Any, dtype: Any = None, **place: Any) -> Any:
    """An HBM array in SBUF; the DMA casts."""
    tile = nl.ndarray(array.shape, dtype or array.dtype, buffer=nl.sbuf, **place)
    dma_copy(dst=tile, src=array)
    return tile


def store(tile: Any) -> Any:
    """A tile on chip as a result of the kernel."""
    if tile.buffer is nl.psum:
        other = nl.ndarray(tile.shape, tile.dtype, buffer=nl.sbuf)
        tensor_copy(dst=other, src=tile)
        tile = other
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    dma_copy(dst=out, src=tile)
    return out


def shared(array: Any, dtype: Any = None) -> Any:
    """A copy in device memory; the DMA casts."""
    out = nl.ndarray(array.shape, dtype or array.dtype, buffer=nl.shared_hbm)
    dma_copy(dst=out, src=array)
    return out


def empty(shape: Any, dtype: Any = np.float32, buffer: Any = nl.sbuf) -> Any:
    """A tile with unknown contents."""
    return nl.ndarray(shape, dtype, buffer=buffer)


def filled(shape: Any, value: float = 0, dtype: Any = np.float32, buffer: Any = nl.sbuf) -> Any:
    """A tile of one value."""
    tile = nl.ndarray(shape, dtype, buffer=buffer)
    memset(dst=tile, value=int(value) if tile.dtype.is_integer else value)
    return tile


def arrays(*shapes: Any, dtype: Any = np.float32, scale: float = 2.0, seed: int = 1) -> Callable[[], tuple[Any, ...]]:
    """Makes normal random arrays; integers are rounded and clipped to their range."""

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(seed)
        values = [r.standard_normal(shape) * scale for shape in shapes]
        if np.issubdtype(dtype, np.integer):
            info = np.iinfo(dtype)
            values = [np.clip(np.rint(v), info.min, info.max) for v in values]
        return tuple(v.astype(dtype) for v in values)

    return make


def nothing() -> tuple[Any, ...]:
    """For kernels whose arguments do not matter."""
    return (np.zeros((4, 8), np.float32),)


def breaks(code: str, call: Callable[[Any, Any, Any], Any], target: str = "trn2") -> Breaks:
    """A kernel that calls `call(dst, data, column)` on two tiles (4, 8) and one (4, 1), and breaks one rule."""

    def kernel(a: Any) -> Any:
        dst, data, column = filled((4, 8)), load(a), filled((4, 1))
        call(dst, data, column)
        return store(dst)

    return Breaks(code, kernel, nothing, target)


def floats(*bits: int) -> np.ndarray:
    """Float32 with these bits."""
    return np.array(bits, np.uint32).view(np.float32)


def bits_of(array: Any) -> np.ndarray:
    """The storage as unsigned integers."""
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.dtype.itemsize}")


def ulps(got: Any, wanted: Any) -> Any:
    """Distance in units of the last place of the exact float64 value, at least that of the smallest normal number."""
    wanted = np.asarray(wanted, np.float64)
    exponent = np.maximum(np.frexp(wanted)[1], -125)
    return np.abs(np.asarray(got).astype(np.float64) - wanted) / np.ldexp(1.0, exponent - 24)


def bf16(values: Any) -> Any:
    """Rounded to bfloat16 by ml_dtypes."""
    return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16)


def simulate(kernel: Any, *args: Any, precise: bool, target: str = "trn2", lnc: int | None = None) -> Any:
    """The result of a simulation that keeps float32 values of low precision, or does not."""
    with environment(NKI_PRECISE_FP=str(int(precise)), NEURON_PLATFORM_TARGET_OVERRIDE=target):
        made = nki.simulate(kernel)
        return (made if lnc is None else made[lnc])(*args)


# ---- tensor indirection: rows of 16 partitions, of which each holds one offset of the group

Call = Callable[[Any, Any], Any]


def gather(call: Call, count: int = 16) -> Any:
    """A kernel that calls `call(dst, data.indirect(index, count))` on (16, 16) and (16, count) elements."""

    def kernel(a: Any, index: Any) -> Any:
        dst, data, offsets = filled((16, 16)), load(a), load(index)
        call(dst, data.indirect(offsets, count))
        return store(dst)

    return kernel


def gather_arrays() -> tuple[Any, ...]:
    """Data, and the offset of element i in row i of the index."""
    r = np.random.default_rng(3)
    return r.uniform(0.5, 3.0, (16, 8)).astype(np.float32), r.integers(0, 8, (16, 1)).astype(np.uint32)


def gathered(a: Any, index: Any) -> Any:
    """What `a.indirect(index)` reads, one element at a time."""
    return np.stack([a[:, int(index[i, 0])] for i in range(16)], axis=1)


def misplaced(call: Call, dtype: Any = np.float32) -> Any:
    """A kernel whose index lies on other partitions than what it indexes."""

    def kernel(a: Any) -> Any:
        data = nl.ndarray((16, 8), dtype, buffer=nl.sbuf, address=(32, 0))
        index = nl.ndarray((16, 1), np.uint32, buffer=nl.sbuf, address=(0, 4096))
        memset(dst=data, value=1)
        memset(dst=index, value=0)
        dst = empty((16, 16))
        call(dst, data.indirect(index))
        return store(dst)

    return kernel


def scattered_to_psum(call: Call) -> Any:
    """A kernel that scatters to PSUM."""

    def kernel(a: Any) -> Any:
        data, index, dst = filled((16, 16), 1.0), filled((16, 1), 0, np.uint32), filled((16, 16), buffer=nl.psum)
        call(dst.indirect(index), data)
        return store(dst)

    return kernel
