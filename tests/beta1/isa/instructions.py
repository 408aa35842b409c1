"""Kernels of one instruction: arrays in, the tiles that it makes out, in both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki.beta1.language as nl
from nki.beta1.decorators import jit
from nki.core.errors import NkiError

RANDOM = np.random.default_rng(7)


def floats(*shape: int, low: float = 0.1, high: float = 2.0) -> np.ndarray:
    """Random float32."""
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, low: int = 0, high: int = 100, dtype: Any = np.int32) -> np.ndarray:
    """Random integers."""
    return RANDOM.integers(low, high, shape).astype(dtype)


def computed(body: Callable[..., Any], *arrays: np.ndarray, target: str = "trn2") -> Any:
    """What `body` makes of tiles with the arrays: one tile or several; compiled and simulated agree to the bit."""

    def kernel(*inputs):
        made = body(*[nl.load(each) for each in inputs])
        tiles = made if isinstance(made, tuple) else (made,)
        outs = []
        for tile in tiles:
            out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
            nl.store(out, tile)
            outs.append(out)
        return tuple(outs) if isinstance(made, tuple) else outs[0]

    return both(kernel, *arrays, target=target)


def both(kernel: Callable[..., Any], *arrays: np.ndarray, target: str = "trn2") -> Any:
    """The result of a kernel, which is the same to the bit in both modes."""
    made = jit(kernel, platform_target=target)
    one, two = made(*arrays), made.simulated()(*arrays)
    for a, b in zip(one if isinstance(one, tuple) else (one,), two if isinstance(two, tuple) else (two,), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == b.tobytes(), "compiled and simulated differ"
    return one


def refused(body: Callable[..., Any], *arrays: np.ndarray, tensors: bool = False) -> NkiError:
    """The error of `body` on tiles with the arrays, or on tensors in HBM; it shows the line and a caret."""

    def kernel(*inputs):
        body(*(inputs if tensors else [nl.load(each) for each in inputs]))
        return inputs[0]

    with pytest.raises(NkiError) as caught:
        jit(kernel)(*arrays)
    text = str(caught.value)
    assert "^" in text and body.__code__.co_filename.rsplit("/", 1)[1] in text, "the line, and a caret"
    return caught.value
