"""The kernels of public repositories with the shapes that were measured, and how their points are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.timing_cases import public_products, public_streams
from benchmarks.timing_cases.runs import Case

import nki.language as nl

F32, BF16 = np.float32, nl.bfloat16
WIDE, NARROW = (4096, 256, 6144), (4096, 256, 2048)
"""The two shapes whose times were added up in a sweep."""
STEPS = {(1, 1): (1, 2, 4, 8), (1, 3): (1, 2, 4, 8), (1, 6): (2, 4, 8, 16), (2, 2): (1, 2, 4, 8), (2, 4): (2, 4, 8, 16)}
SWEEP = (*((m, n, k) for (m, n), steps in STEPS.items() for k in steps), (2, 1, 32))
"""Tiles of M, N and K in a block at most, as the published part of an exhaustive sweep has them."""
ADAMW_COLUMNS = (512, 608, 768, 1152, 1368, 1536, 2304)
SILU: dict[str, tuple[Any, ...]] = {
    "silu_1": (1, 1),
    "silu_2": (2, 1),
    "silu_4_in_place": (4, 1, True),
    "silu_halves": (1, 2),
    "silu_quarters": (1, 4),
    "silu_sevenths": (1, 7),
    "silu_eighths": (1, 8),
}
"""Slices with each transfer, parts of a slice, and whether the result replaces the input."""


def sweep_name(caps: tuple[int, int, int]) -> str:
    """Name of a point of the sweep."""
    return "caps_m{}_n{}_k{}".format(*caps)


def _product(kernel: Any, shape: tuple[int, int, int], *more: Any, lnc: int | None = None) -> Case:
    depth, rows, columns = shape
    return Case(kernel, "trn2", (((depth, rows), BF16), ((depth, columns), BF16)), more, lnc=lnc)


def products() -> dict[str, Case]:
    """Matrix products; of two shapes that are added up, one case each."""
    tiled, blocked, output = public_products.tiled, public_products.blocked, nl.bfloat16
    found = {
        "tiled_512x256x1024": _product(tiled, (512, 256, 1024)),
        "tiled_4096x256x2048": _product(tiled, NARROW),
        "tiled_6144x256x4096": _product(tiled, (6144, 256, 4096)),
        "tiled_1280x640x2560": _product(tiled, (1280, 640, 2560)),
        "blocked_two_cores": _product(blocked, WIDE, (16, 6, 16), lnc=2),
        "blocked_4096x512x2048": _product(blocked, (4096, 512, 2048), (16, 2, 8)),
        "blocked_4096x128x6144": _product(blocked, (4096, 128, 6144), (1, 12, 4)),
        "blocked_output_2048x256x4096": _product(blocked, (2048, 256, 4096), (16, 2, 8), output),
        "blocked_output_4096x1024x512": _product(blocked, (4096, 1024, 512), (16, 2, 8), output),
        "blocked_m2_n6_k16": _product(blocked, WIDE, (2, 6, 16)),
        "buffered_2048": _product(public_products.buffered, (2048, 2048, 2048)),
    }
    for shape in (WIDE, NARROW):
        columns = shape[2]
        found[f"tiled_columns_first_{columns}"] = _product(tiled, shape, True)
        found[f"tiled_sum_{columns}"] = _product(tiled, shape, False, "sum")
        found[f"tiled_language_{columns}"] = _product(tiled, shape, False, "language")
        found[f"staged_{columns}"] = _product(public_products.staged, shape)
        for caps in SWEEP:
            found[f"{sweep_name(caps)}_{columns}"] = _product(blocked, shape, caps)
    return found


def streams() -> dict[str, Case]:
    """Kernels that stream tensors."""
    found = {
        f"rmsnorm_{rows}x{columns}": Case(
            public_streams.rmsnorm, "trn2", (((rows, columns), BF16), ((1, columns), BF16))
        )
        for rows, columns in ((256, 4096), (2048, 4096), (32768, 128))
    }
    found["copy_256x4096"] = Case(public_streams.copy, "trn2", (((256, 4096), BF16),))
    weights = (((10944, 2048), F32),) * 4
    for columns in (0, *ADAMW_COLUMNS):
        name = f"adamw_{columns or 'rows'}"
        found[name] = Case(public_streams.adamw, "trn2", weights, (columns,), lnc=2)
    tensor = (((128, 32, 7168), F32),)
    for name, more in SILU.items():
        found[name] = Case(public_streams.silu, "trn2", tensor, more, lnc=2)
    found["silu_3"] = Case(public_streams.silu, "trn2", tensor, (3,))
    found["silu_in_turns"] = Case(public_streams.silu_in_turns, "trn2", tensor)
    scales = ((16, 512), np.uint8)
    packed = nl.float8_e4m3fn_x4
    found["mx_products"] = Case(
        public_products.mx_products, "trn3", (((128, 512), packed), ((128, 512), packed), scales, scales), (64,)
    )
    return found
