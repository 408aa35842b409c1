"""A product with sizes and orders that only trying can settle, in a module that workers import."""

from __future__ import annotations

from itertools import product
from typing import Any

from benchmarks.kernels.products import blocks, psum
from benchmarks.kernels.rows import ROWS, sbuf

import nki.isa as nisa
import nki.language as nl

CONFIGS = [
    {"columns": columns, "load": load, "keep": keep, "outer": outer}
    for columns, load, keep, outer in product((64, 128, 256, 512), (1, 2, 4, 8), (False, True), ("rows", "columns"))
]
"""64 of them."""


def multiply(a: Any, b: Any, columns: int = 128, load: int = 1, keep: bool = False, outer: str = "rows") -> Any:
    """``a.T @ b``, (K, M) and (K, N).

    Args:
        columns: of a block of the result.
        load: how many blocks of b one transfer brings.
        keep: whether b stays in SBUF.
        outer: what the outer loop goes over.
    """
    depth, height, width = a.shape[0], a.shape[1], b.shape[1]
    out = nl.ndarray((height, width), a.dtype, buffer=nl.shared_hbm)
    kept: dict[tuple[int, int], Any] = {}

    def right(k: int, column: int) -> Any:
        start = column // (columns * load) * columns * load
        wide = kept.get((k, start))
        if wide is None:
            wide = sbuf(ROWS, min(columns * load, width - start), dtype=b.dtype)
            nisa.dma_copy(dst=wide, src=b[k : k + ROWS, start : start + wide.shape[1]])
            kept[k, start] = wide
        return wide[:, column - start : column - start + columns]

    def block(rows: slice, column: int) -> None:
        total = psum(ROWS, columns)
        for k in range(0, depth, ROWS):
            left = sbuf(ROWS, ROWS, dtype=a.dtype)
            nisa.dma_copy(dst=left, src=a[k : k + ROWS, rows])
            nisa.nc_matmul(dst=total, stationary=left, moving=right(k, column), accumulate=k > 0)
        if not keep:
            kept.clear()
        result = sbuf(ROWS, columns, dtype=a.dtype)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[rows, column : column + columns], src=result)

    pairs = product(blocks(height, ROWS), range(0, width, columns))
    for rows, column in pairs if outer == "rows" else sorted(pairs, key=lambda pair: (pair[1], pair[0].start)):
        block(rows, column)
    return out
