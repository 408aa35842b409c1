"""One accepted kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

X = np.arange(32, dtype=np.float32).reshape(8, 4)


def number(value: int) -> np.ndarray:
    """A tensor with one integer."""
    return np.array([[value]], np.int32)


@dataclass(frozen=True)
class Case:
    """A kernel, several lists of arguments, and a function of the same arguments in NumPy."""

    kernel: Callable[..., Any]
    arguments: list[tuple[Any, ...]]
    expected: Callable[..., Any]
    lnc: int | None = None
