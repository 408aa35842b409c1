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
    name = f"{' x '.join(map(str, shape))}, {dtype}"
    return Case("cumsum", name, arguments, 0, 2 * elements * dtype.itemsize, lnc)


CASES = [
    _case(2048, 8192),
    _case(512, 4096),
    _case(2048, 8192, dtype=nl.float32),
    _case(128, 10, 2048, dtype=nl.float32),
    _case(64, 8192),
    _case(4, 151936, dtype=nl.float32),
    _case(2048, 8192, lnc=2),
]
