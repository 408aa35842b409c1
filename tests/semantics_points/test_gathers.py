"""Orders of indices: snakes over rows, and column-major lists."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store
from tests.support import both


def test_offsets_snake_over_rows() -> None:
    """Element i of a row comes from the offset in row i % 16, column i // 16 of the index."""

    def kernel(a: Any, index: Any) -> Any:
        tile = nl.ndarray((16, 32), a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=load(a).indirect(load(index), 32), engine=nisa.engine.vector)
        return store(tile)

    r = np.random.default_rng(1)
    a, index = r.standard_normal((16, 40)).astype(np.float32), r.integers(0, 40, (16, 2)).astype(np.uint16)
    offsets = [int(index[i % 16, i // 16]) for i in range(32)]
    np.testing.assert_array_equal(both(kernel, a, index, target="trn3"), a[:, offsets])


def test_rows_of_an_indirect_transpose_are_column_major() -> None:
    def kernel(table: Any, index: Any) -> Any:
        rows = load(index)
        tile = nl.ndarray((5, 256), table.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=tile, src=table.ap([[5, 256], [1, 5]], vector_offset=rows))
        return store(tile)

    r = np.random.default_rng(2)
    table, index = r.standard_normal((300, 5)).astype(np.float16), r.integers(0, 300, (128, 2)).astype(np.uint32)
    wanted = np.stack([table[row] for column in index.T for row in column], axis=1)
    np.testing.assert_array_equal(both(kernel, table, index), wanted)
