"""What storage shows where nothing was written."""

from __future__ import annotations

import numpy as np

from nki.core.dtypes import DType
from nki.core.numerics import poison_fill

_RAW = 0xFF  # NaN in every float type, whichever a tensor at this address has


def fill_unwritten(storage: np.ndarray, dtype: DType | None, what: str) -> None:
    """Fill bytes with what they show.

    Args:
        storage: uint8, changed in place; the last dimension is contiguous and a multiple of ``dtype.itemsize``.
        dtype: None for bytes that tensors of different types share.
        what: "sentinel", the value of the type that stands for it, or "zero".
    """
    if what == "zero":
        storage[...] = 0
    elif dtype is None:
        storage[...] = _RAW
    else:
        poison_fill(storage, dtype)


def unwritten_shadow(shape: tuple[int, int], what: str) -> np.ndarray:
    """float32 values of the same meaning, for what keeps more than its bytes hold."""
    return np.full(shape, 0.0 if what == "zero" else np.nan, np.float32)
