"""What storage shows where nothing was written."""

from __future__ import annotations

import numpy as np

from nki.core.dtypes import DType
from nki.core.numerics import poison_fill
from nki.options import from_environment

_RAW = 0xFF  # NaN in every float type, whichever a tensor at this address has


def fill_unwritten(storage: np.ndarray, dtype: DType | None) -> None:
    """Fill bytes with the sentinels of `dtype`, or with zeros if NKI_UNINITIALIZED asks for them.

    Args:
        storage: uint8, changed in place; the last dimension is contiguous and a multiple of ``dtype.itemsize``.
        dtype: None for bytes that tensors of different types share.
    """
    if from_environment().uninitialized == "zero":
        storage[...] = 0
    elif dtype is None:
        storage[...] = _RAW
    else:
        poison_fill(storage, dtype)


def unwritten_shadow(shape: tuple[int, int]) -> np.ndarray:
    """float32 values of the same meaning, for what keeps more than its bytes hold."""
    return np.full(shape, 0.0 if from_environment().uninitialized == "zero" else np.nan, np.float32)
