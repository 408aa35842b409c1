"""Examples of nc_stream_shuffle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import bfloat16
from nki.isa.shuffle import nc_stream_shuffle
from tests.isa.examples.dma import BF16, normal
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store

ROTATE = [(i + 5) % 32 for i in range(32)]
SOME = [255 if i % 3 == 0 else 31 - i for i in range(32)]


def shuffled(mask: list[int], dtype: Any = None, width: int | None = None) -> Callable[..., Any]:
    """Shuffle the first array into a tile that starts as the second."""

    def kernel(a: Any, b: Any) -> Any:
        tile = load(b, dtype)
        nc_stream_shuffle(dst=tile[:, 0 : width or b.shape[1]], src=load(a), shuffle_mask=mask)
        return store(tile)

    return kernel


def reference(mask: list[int]) -> Callable[..., Any]:
    def compute(a: Any, b: Any) -> Any:
        out = b.copy()
        for quadrant in range(0, len(b), 32):
            for i in range(min(32, len(b) - quadrant)):
                if mask[i] != 255:
                    out[quadrant + i] = a[quadrant + mask[i]]
        return out

    return compute


def in_place(a: Any) -> Any:
    tile = load(a)
    nc_stream_shuffle(tile, tile, ROTATE)
    return store(tile)


def spread(a: Any) -> Any:
    """Partition 0 to all partitions, quadrant by quadrant, from SBUF and from PSUM."""
    first = nl.ndarray((1, a.shape[1]), a.dtype, buffer=nl.psum)
    nisa.tensor_copy(dst=first, src=load(a)[0:1, :])
    tile = nl.ndarray((128, a.shape[1]), a.dtype, buffer=nl.sbuf)
    for quadrant in range(3):
        nc_stream_shuffle(dst=tile[32 * quadrant : 32 * quadrant + 32, :], src=first, shuffle_mask=[0] * 32)
    nc_stream_shuffle(dst=tile[96:128, :], src=tile[32:33, :], shuffle_mask=[0] * 32)
    return store(tile)


def between(start_src: int, start_dst: int, rows: int, src_rows: int | None = None) -> Callable[..., Any]:
    """From one start partition to another."""

    def kernel(a: Any) -> Any:
        source, tile = load(a), nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0.0)
        nc_stream_shuffle(
            dst=tile[start_dst : start_dst + rows, :],
            src=source[start_src : start_src + (src_rows or rows), :],
            shuffle_mask=[0] * 32 if src_rows else ROTATE,
        )
        return store(tile)

    return kernel


def moved_reference(a: Any) -> Any:
    out = np.zeros_like(a)
    for quadrant in (0, 32):
        for i in range(32):
            out[64 + quadrant + i] = a[quadrant + (i + 5) % 32]
    return out


SQUARE = normal((64, 12), (64, 12))
EXAMPLES = [
    Legal("nc_stream_shuffle", shuffled(ROTATE), normal((128, 9), (128, 9), dtype=BF16), reference(ROTATE)),
    Legal("nc_stream_shuffle", shuffled(SOME), normal((96, 9), (96, 9), dtype=np.int32), reference(SOME)),
    Legal("nc_stream_shuffle", shuffled(list(range(32))), normal((50, 9), (50, 9)), lambda a, b: a),
    Legal("nc_stream_shuffle", in_place, normal((64, 12)), lambda a: reference(ROTATE)(a, a)),
    Legal("nc_stream_shuffle", spread, normal((4, 12)), lambda a: np.tile(a[:1], (128, 1))),
    Legal("nc_stream_shuffle", between(0, 64, 64), normal((128, 6)), moved_reference),
    Breaks("nc_stream_shuffle.dtypes", shuffled(ROTATE, bfloat16), SQUARE),
    Breaks("nc_stream_shuffle.elements", shuffled(ROTATE, width=5), SQUARE),
    Breaks("nc_stream_shuffle.mask", shuffled(ROTATE[:31]), SQUARE),
    Breaks("nc_stream_shuffle.mask", shuffled([*ROTATE[:31], 32]), SQUARE),
    Breaks("nc_stream_shuffle.mask", shuffled([*ROTATE[:31], -1]), SQUARE),
    Breaks("nc_stream_shuffle.mask-source", shuffled(ROTATE), normal((20, 9), (20, 9))),
    Breaks("nc_stream_shuffle.start-partition", between(0, 32, 32, 64), normal((128, 6))),
]
