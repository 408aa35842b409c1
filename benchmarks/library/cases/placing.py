"""Rows that indices choose, and padding."""

from __future__ import annotations

from typing import Any

from benchmarks.library.case import Case, Make

import nki.language as nl


def _indexed(kernel: str, rows: int, columns: int, indices: int) -> Case:
    def arguments(make: Make, indices: int = indices) -> dict[str, Any]:
        found = {
            "input": make((rows, columns)),
            "dim": 0,
            "index": make((indices,), nl.int32, lambda rng, shape: rng.integers(0, rows, shape)),
        }
        return found if kernel == "gather" else found | {"src": make((indices, columns))}

    return Case(
        kernel=kernel,
        name=f"{indices:,} of {rows:,} rows of {columns:,}",
        arguments=arguments,
        flops=0,
        hbm_bytes=2 * indices * columns * (2 if kernel == "gather" else 3) + 4 * indices,
        small=lambda make: arguments(make, 200),
        official=False,
        exact=kernel == "gather",
    )


def _padded(name: str, shape: tuple[int, ...], padding: tuple[int, ...], mode: str) -> Case:
    longer = list(shape)
    for place in range(len(padding) // 2):
        longer[-1 - place] += padding[2 * place] + padding[2 * place + 1]
    elements = [1, 1]
    for place, sizes in enumerate((shape, longer)):
        for size in sizes:
            elements[place] *= size
    return Case(
        kernel="pad",
        name=name,
        arguments=lambda make: {"x_ref": make(shape), "padding": padding, "mode": mode},
        flops=0,
        hbm_bytes=2 * sum(elements),
        official=False,
        exact=True,
    )


CASES = [
    _indexed("gather", 32000, 4096, 2048),
    _indexed("gather", 32000, 512, 4096),
    _indexed("scatter_add", 32000, 4096, 512),
    _indexed("scatter_add", 4096, 512, 2048),
    _padded("16 x 32 images of 64 x 64, 1 around, replicate", (16, 32, 64, 64), (1, 1, 1, 1), "replicate"),
    _padded("128 rows of 16,384, 3 before, constant", (128, 16384), (3, 0), "constant"),
]
