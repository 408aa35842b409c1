"""Run language functions on tiles, in every mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from tests.support import both, rejection

TARGETS = ("trn1", "trn2", "trn3")
BFLOAT16 = ml_dtypes.bfloat16


def on_tiles(function: Callable[..., Any], *arrays: np.ndarray, target: str = "trn2", psum: bool = False) -> Any:
    """Load the arrays, call the function with the tiles and store what it returns; both modes agree bit for bit."""
    return both(_kernel(function, psum), *arrays, target=target)


def refused(function: Callable[..., Any], *arrays: np.ndarray, target: str = "trn2", psum: bool = False) -> Any:
    """The error of the same kernel, which both modes refuse."""
    return rejection(_kernel(function, psum), *arrays, target=target)


def normal(shape: tuple[int, ...], dtype: Any = np.float32, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Normal numbers of a dtype; integers are rounded."""
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return (np.rint(values) if np.dtype(dtype).kind in "iu" else values).astype(dtype)


def words(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Integers over the whole range of a dtype."""
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def wide(values: Any) -> np.ndarray:
    return np.asarray(values).astype(np.float64)


def same(got: Any, wanted: Any) -> None:
    """Equal shapes and values, the signs of zeros included; NaN equals NaN."""
    left, right = wide(got), wide(wanted)
    np.testing.assert_array_equal(left, right)
    number = ~np.isnan(left)
    np.testing.assert_array_equal(np.signbit(left[number]), np.signbit(right[number]))


@lru_cache(maxsize=16)
def _kernel(function: Callable[..., Any], psum: bool) -> Any:
    """The same kernel for the same function, which is then checked once, and compiled once for equal shapes."""

    @nki.jit
    def kernel(*tensors: Any) -> Any:
        tiles = [nl.load(tensor) for tensor in tensors]
        result = function(*(_in_psum(tile) if psum else tile for tile in tiles))
        results = result if isinstance(result, tuple) else (result,)
        stored = tuple(_stored(item) for item in results)
        return stored if isinstance(result, tuple) else stored[0]

    return kernel


def _in_psum(tile: Any) -> Any:
    copy = nl.ndarray(tile.shape, tile.dtype, buffer=nl.psum)
    nisa.tensor_copy(dst=copy, src=tile)
    return copy


def _stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
