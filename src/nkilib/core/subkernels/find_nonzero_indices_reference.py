"""Where the elements of columns are that are not zero, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import nki.language as nl


def find_nonzero_indices_reference(
    input_tensor: NDArray,
    col_start_id: NDArray | None = None,
    n_cols: int | None = None,
    chunk_size: int | None = None,
    index_dtype: Any = nl.int32,
) -> tuple[NDArray, NDArray]:
    """See `find_nonzero_indices`."""
    first = 0 if col_start_id is None else int(col_start_id[0])
    columns = input_tensor.T[first : None if n_cols is None else first + n_cols]
    indices = np.full(columns.shape, -1, index_dtype.numpy)
    for row, column in zip(indices, columns, strict=True):
        places = np.flatnonzero(column)
        row[: len(places)] = places
    return indices, np.count_nonzero(columns, 1).astype(np.int32)
