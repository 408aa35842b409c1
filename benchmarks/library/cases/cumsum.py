"""Cumulative sums: many rows, few rows, and the probabilities of a vocabulary."""

from __future__ import annotations

from typing import Any

from benchmarks.library.case import Case, Make

import nki.language as nl


def _case(*shape: int, dtype: Any = nl.bfloat16, lnc: int = 1) -> Case:
    def arguments(make: Make) -> dict[str, Any]:
        return {"x": make(shape, dtype)}

    elements = 1
    for size in shape:
        elements *= size
    # the last place of the sum of a row of 8192, which is about 90, and of which each element adds a rounding
    tolerance = 4e-2 if dtype is nl.bfloat16 else 1e-4
    name = f"{' x '.join(map(str, shape))}, {dtype}"
    return Case("cumsum", name, arguments, 0, 2 * elements * dtype.itemsize, lnc, tolerance=tolerance)


CASES = [
    _case(2048, 8192),
    _case(512, 4096),
    _case(2048, 8192, dtype=nl.float32),
    _case(128, 10, 2048, dtype=nl.float32),
    _case(64, 8192),
    _case(4, 151936, dtype=nl.float32),
    _case(2048, 8192, lnc=2),
]
