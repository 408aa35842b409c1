"""Sums of a number of rows that is known at run time; the time is that of one trip, of 128 rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.library.case import Case, Make

import nki.language as nl


def _added(columns: int, lnc: int = 1) -> Case:
    def arguments(make: Make, rows: int = 2048) -> dict[str, Any]:
        return {
            "input_a": make((rows, columns)),
            "input_b": make((rows, columns)),
            "num_m_tiles": make((1, 1), nl.int32, lambda rng, shape: np.full(shape, rows // 128)),
        }

    return Case(
        kernel="dynamic_elementwise_add",
        name=f"a trip of 128 x {columns:,}",
        arguments=arguments,
        flops=0,
        hbm_bytes=3 * 2 * 128 * columns + 4,
        lnc=lnc,
        small=lambda make: arguments(make, 256),
    )


CASES = [_added(4096), _added(8192), _added(8192, lnc=2)]
