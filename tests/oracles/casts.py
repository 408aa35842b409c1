"""Casts of stored elements, made of the two conversions that the product has."""

from __future__ import annotations

import numpy as np

from nki.core.dtypes import DType
from nki.core.numerics import Array, round_to, to_f32


def cast(storage: Array, source: DType, destination: DType) -> Array:
    """Stored elements of one dtype as another: a bit copy if both are the same, else by way of float32.

    (nki/api/nki/isa/__init__.py, ``tensor_copy`` and ``dma_copy``.) The result never shares memory with `storage`.

    Raises:
        DtypeError: "dtype.packed" if just one of the two, or both but different ones, are x4 types.
    """
    if source is destination:
        return storage.copy()
    result = round_to(to_f32(storage, source), destination)
    return result.copy() if np.may_share_memory(result, storage) else result
