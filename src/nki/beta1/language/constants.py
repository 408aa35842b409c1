"""Constants in HBM, sizes of the hardware, and conversions on the host."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki.language as nl
from nki.beta1.language.arguments import hints_only, kind_of
from nki.beta1.tensors.index import Grid, MGrid
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.results import placed
from nki.core.dtypes import float32
from nki.language.combine import copied
from nki.spec.allocation import checked_dtype


def shared_constant(constant: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
    """A tensor in HBM with the values of an array that is known when the kernel is traced."""
    hints_only("nl.shared_constant", kwargs)
    array = np.asarray(constant)
    kind = kind_of(array.dtype if dtype is None else dtype, float32)
    return Tensor.of(nl.shared_constant(np.ascontiguousarray(array.astype(kind.numpy))))


def shared_identity_matrix(n: int, dtype: Any = np.uint8, **kwargs: Any) -> Tensor:
    """A tensor in HBM with the identity matrix ``(n, n)``."""
    return shared_constant(np.eye(n), dtype, **kwargs)


def static_cast(input_data: Any, dtype: Any) -> Any:
    """A number or an array of the host in another dtype; of a tile, a copy."""
    kind = checked_dtype(dtype)
    if isinstance(input_data, Tensor):
        value = input_data.elements()
        return placed("nl.static_cast", lambda: copied(value, kind), explicit=True)
    return np.asarray(input_data).astype(kind.numpy)[()]


def finfo(dtype: Any) -> Any:
    """Limits of a float, as `numpy.finfo`."""
    return ml_dtypes.finfo(checked_dtype(dtype).numpy)


def gemm_grid() -> Grid:
    """The index tensors of the largest moving tile, ``nl.mgrid[0:128, 0:512]``."""
    return MGrid()[0 : nl.tile_size.pmax, 0 : nl.tile_size.gemm_moving_fmax]


def gemm_stationary_grid() -> Grid:
    """The index tensors of the largest stationary tile, ``nl.mgrid[0:128, 0:128]``."""
    return MGrid()[0 : nl.tile_size.pmax, 0 : nl.tile_size.gemm_stationary_fmax]


def sizeinbytes(dtype: Any) -> int:
    """Bytes of one element."""
    return checked_dtype(dtype).itemsize


class fp32:  # noqa: N801 - a name of the language
    """Limits of float32."""

    min = float(np.finfo(np.float32).min)


class bfp16:  # noqa: N801 - a name of the language
    """Limits of bfloat16, whose pattern 0xff80 the documents name is minus infinity."""

    min = float("-inf")
