"""Naive kernels and what becomes of them when their advice is followed, one advice after the other.

Each version differs from the one before by what the advice named at its step says, and by nothing else.
docs/profile.md, *Following the advice*, shows what was promised and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nki.isa as nisa
import nki.language as nl


class Rung(NamedTuple):
    """A version of a kernel, and the advice on the version before that it follows; "" for the first one."""

    advice: str
    kernel: Callable[..., Any]


class Ladder(NamedTuple):
    """The versions of a kernel.

    Attributes:
        rungs: the naive kernel first.
        arguments: of a size, with random numbers.
        reference: the result in float64.
        size: at which the ladder is climbed; `small` is one at which the results are compared.
        tolerance: of the results, relative to the largest.
    """

    rungs: tuple[Rung, ...]
    arguments: Callable[[int], tuple[np.ndarray, ...]]
    reference: Callable[..., np.ndarray]
    size: int
    small: int
    tolerance: float


def tile(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A tile in SBUF."""
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def sums(shape: tuple[int, ...]) -> Any:
    """A tile of float32 in PSUM."""
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def load(source: Any) -> Any:
    """A tile with what is in device memory."""
    made = tile(source.shape, source.dtype)
    nisa.dma_copy(dst=made, src=source)
    return made
