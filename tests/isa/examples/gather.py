"""Examples of local_gather and nc_n_gather."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import bfloat16
from nki.isa.gather import local_gather, nc_n_gather
from tests.isa.examples.dma import BF16
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store


def local(width: int, tile_partitions: int | None = None, dtype: Any = None, **options: Any) -> Callable[..., Any]:
    """A kernel that gathers into a zeroed tile of `width` elements per partition."""

    def kernel(data: Any, index: Any) -> Any:
        tile = nl.ndarray((tile_partitions or data.shape[0], width), dtype or data.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0)
        local_gather(dst=tile, src_buffer=load(data), index=load(index), **options)
        return store(tile)

    return kernel


def local_reference(width: int, run: int = 1, valid: int | None = None) -> Callable[..., Any]:
    def reference(data: Any, index: Any) -> Any:
        flat = data.reshape(data.shape[0], -1)
        out = np.zeros((flat.shape[0], width), data.dtype)
        for p in range(flat.shape[0]):
            group = p // 16 * 16
            column = 0
            for k in range(index.shape[1] * 16 if valid is None else valid):
                start = int(index[group + k % 16, k // 16])
                for element in range(run):
                    out[p, column] = flat[p, start + element]
                    column += 1
        return out

    return reference


def table(
    partitions: int, shape: tuple[int, ...], columns: int, run: int = 1, dtype: Any = np.float32, index: Any = np.uint16
) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(3)
        data = (r.standard_normal((partitions, *shape)) * 50).astype(dtype)
        starts = r.integers(0, int(np.prod(shape)) // run, (partitions, columns)) * run
        return data, starts.astype(index)

    return make


def local_view(data: Any, index: Any) -> Any:
    """Into every second element, as three dimensions, through a sub-view."""
    tile = nl.ndarray((32, 4, 20), data.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)
    local_gather(dst=tile[:, 1:3, 0:16:2], src_buffer=load(data), index=load(index)[:, 0:1])
    return store(tile)


def local_view_reference(data: Any, index: Any) -> Any:
    out = np.zeros((32, 4, 20), data.dtype)
    for p in range(32):
        for k in range(16):
            out[p, 1 + k // 8, 2 * (k % 8)] = data[p, index[p // 16 * 16 + k, 0]]
    return out


def flat(width: int | None = None, tile_partitions: int | None = None, dtype: Any = None) -> Callable[..., Any]:
    def kernel(data: Any, index: Any) -> Any:
        shape = (tile_partitions or data.shape[0], width or index.shape[1])
        tile = nl.ndarray(shape, dtype or data.dtype, buffer=nl.sbuf)
        nc_n_gather(dst=tile, data=load(data), indices=load(index))
        return store(tile)

    return kernel


def flat_reference(data: Any, index: Any) -> Any:
    rows = data.reshape(data.shape[0], -1)
    return np.array([[rows[p, i] for i in index[p]] for p in range(len(rows))], data.dtype)


U32 = np.uint32
EXAMPLES = [
    Legal("local_gather", local(64), table(128, (50,), 4), local_reference(64)),
    Legal("local_gather", local(64, num_elem_per_idx=4), table(32, (5, 8), 1, 4, BF16), local_reference(64, 4)),
    Legal(
        "local_gather",
        local(37 * 2, num_valid_indices=37, num_elem_per_idx=2),
        table(48, (60,), 3, 2, np.int32),
        local_reference(74, 2, 37),
    ),
    Legal("local_gather", local_view, table(32, (30,), 2), local_view_reference),
    Breaks("local_gather.partitions", local(16), table(24, (30,), 1)),
    Breaks("local_gather.partitions", local(16, 16), table(32, (30,), 1)),
    Breaks("local_gather.dtypes", local(16, dtype=bfloat16), table(32, (30,), 1)),
    Breaks("local_gather.run-length", local(48, num_elem_per_idx=3), table(32, (30,), 1)),
    Breaks("local_gather.valid-indices", local(32, num_valid_indices=17), table(32, (30,), 1)),
    Breaks("local_gather.valid-indices", local(32, num_valid_indices=0), table(32, (30,), 1)),
    Breaks("local_gather.index-count", local(4112), table(32, (30,), 257)),
    Breaks("local_gather.dst-size", local(15), table(32, (30,), 1)),
    Breaks("local_gather.dst-exact", local(17), table(32, (30,), 1)),
    Legal("nc_n_gather", flat(), table(128, (700,), 600, index=U32), flat_reference),
    Legal("nc_n_gather", flat(), table(33, (4, 5), 7, dtype=np.int16, index=U32), flat_reference),
    Breaks("nc_n_gather.partitions", flat(tile_partitions=16), table(32, (30,), 4, index=U32)),
    Breaks("nc_n_gather.elements", flat(width=5), table(32, (30,), 4, index=U32)),
    Breaks("nc_n_gather.dtypes", flat(dtype=bfloat16), table(32, (30,), 4, index=U32)),
]
