"""Examples of max8, nc_find_index8, nc_match_replace8, nonzero_with_count and topk."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import nki.isa as family
import nki.language as nl
from nki.isa.dma import dma_copy
from tests.isa.examples.select import NEW, gathered, indirect, values
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import filled, load, store

# --- max8


def make_max8(dst: Any = (64, 8), shape: Any = None, dtype: Any = np.float32, buffer: Any = nl.sbuf) -> Any:
    def max8(a: Any) -> Any:
        result = nl.ndarray(dst, dtype, buffer=nl.sbuf)
        family.max8(dst=result, src=load(a, buffer, shape=shape))
        return store(result)

    return max8


def eight_largest(a: np.ndarray) -> np.ndarray:
    return np.array([sorted(row.reshape(-1).tolist(), reverse=True)[:8] for row in a])


MAX8 = [
    Legal("max8", make_max8(), values(), eight_largest),
    Legal("max8", make_max8(shape=(64, 3, 16), buffer=nl.psum), values(ml_dtypes.bfloat16), eight_largest),
    Legal("max8", make_max8(dtype=np.int32), values(np.int32, scale=3.0), eight_largest),
    Breaks("max8.size", make_max8(), values(shape=(64, 7))),
    Breaks("max8.rank", make_max8(shape=(64, 3, 4, 4)), values()),
    Breaks("max8.dst-shape", make_max8(dst=(64, 9)), values()),
    Breaks("max8.dst-shape", make_max8(dst=(64, 2, 4)), values()),
    Breaks("max8.column-partitions", make_max8(dst=(32, 8)), values()),
]


# --- nc_find_index8


def few(shape: Any = (64, 48), kinds: int = 30, dtype: Any = np.float32) -> Any:
    """Data with many duplicates, and values of which some are missing."""

    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(11)
        return r.integers(0, kinds, shape).astype(dtype), r.integers(0, kinds + 4, (shape[0], 8)).astype(dtype)

    return make


def make_find(
    dst: Any = (64, 8), dtype: Any = np.uint32, vals_shape: Any = None, columns: int = 8, shape: Any = None
) -> Any:
    def nc_find_index8(data: Any, vals: Any) -> Any:
        result = nl.ndarray(dst, dtype, buffer=nl.sbuf)
        family.nc_find_index8(dst=result, data=load(data, shape=shape), vals=load(vals, shape=vals_shape)[:, 0:columns])
        return store(result)

    return nc_find_index8


def found(data: np.ndarray, vals: np.ndarray, order: Any, missing: int) -> np.ndarray:
    result = np.full(vals.shape, missing, np.int64)
    for p, row in enumerate(data.tolist()):
        places: dict[float, list[int]] = {}
        for position, value in enumerate(row):
            places.setdefault(value, []).append(position)
        for slot in order:
            waiting = places.get(vals[p, slot].item(), [])
            if waiting:
                result[p, slot] = waiting.pop(0)
    return result


FIND = [
    Legal("nc_find_index8", make_find(), few(), lambda d, v: found(d, v, range(8), 0xFFFFFFFF)),
    Legal(
        "nc_find_index8",
        make_find(dtype=np.uint16, shape=(64, 4, 12)),
        few(kinds=5, dtype=ml_dtypes.bfloat16),
        lambda d, v: found(d, v, range(8), 0xFFFF),
    ),
    Breaks("nc_find_index8.size", make_find(), few((64, 7))),
    Breaks("nc_find_index8.rank", make_find(shape=(64, 3, 4, 4)), few()),
    Breaks("nc_find_index8.vals-shape", make_find(columns=7), few()),
    Breaks("nc_find_index8.dst-shape", make_find(dst=(64, 16)), few()),
    Breaks("nc_find_index8.column-partitions", make_find(dst=(32, 8)), few()),
]


# --- nc_match_replace8


def make_replace(
    imm: float = -1.0,
    dst: Any = (64, 48),
    dtype: Any = np.float32,
    idx: Any = (64, 8),
    idx_dtype: Any = np.uint32,
    columns: int = 8,
) -> Any:
    def nc_match_replace8(data: Any, vals: Any) -> Any:
        result = nl.ndarray(dst, dtype, buffer=nl.sbuf)
        indices = nl.ndarray(idx, idx_dtype, buffer=nl.sbuf)
        family.nc_match_replace8(dst=result, data=load(data), vals=load(vals)[:, 0:columns], imm=imm, dst_idx=indices)
        return store(result), store(indices)

    return nc_match_replace8


def replace_in_place(data: Any, vals: Any) -> Any:
    tile = load(data)
    family.nc_match_replace8(tile, tile, load(vals), float("-inf"))
    return store(tile)


def replaced(imm: float, dtype: Any, missing: int) -> Any:
    def expected(data: np.ndarray, vals: np.ndarray) -> Any:
        indices = found(data, vals, range(7, -1, -1), missing)
        result = data.astype(dtype)
        for p in range(len(data)):
            for index in indices[p]:
                if index != missing:
                    result[p, index] = imm
        return result, indices

    return expected


REPLACE = [
    Legal("nc_match_replace8", make_replace(), few(), replaced(-1.0, np.float32, 0xFFFFFFFF)),
    Legal(
        "nc_match_replace8",
        make_replace(0.5, dtype=ml_dtypes.bfloat16, idx_dtype=np.uint16),
        few(kinds=6),
        replaced(0.5, ml_dtypes.bfloat16, 0xFFFF),
    ),
    Legal(
        "nc_match_replace8",
        replace_in_place,
        few(kinds=9),
        lambda d, v: replaced(float("-inf"), np.float32, -1)(d, v)[0],
    ),
    Breaks("nc_match_replace8.shapes", make_replace(dst=(64, 40)), few()),
    Breaks("nc_match_replace8.size", make_replace(dst=(4, 16385), idx=(4, 8)), few((4, 16385))),
    Breaks("nc_match_replace8.vals-shape", make_replace(columns=4), few()),
    Breaks("nc_match_replace8.dst-idx-shape", make_replace(idx=(64, 4)), few()),
    Breaks("nc_match_replace8.column-partitions", make_replace(idx=(32, 8)), few()),
]


# --- nonzero_with_count


def make_nonzero(dst: Any = (100, 21), **options: Any) -> Any:
    def nonzero_with_count(a: Any) -> Any:
        result = filled(dst, 77, np.int32)
        family.nonzero_with_count(dst=result, src=load(a), **options)
        return store(result)

    return nonzero_with_count


def sparse(dtype: Any) -> Any:
    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(13)
        return ((r.integers(-3, 4, (100, 20)) * r.integers(0, 2, (100, 20))).astype(dtype),)

    return make


def counted(offset: int, padding: int) -> Any:
    def expected(a: np.ndarray) -> np.ndarray:
        result = np.full((100, 21), 77)
        for p in (0, 16, 32, 48, 64, 80, 96):
            where = [i + offset for i, value in enumerate(a[p].tolist()) if value]
            result[p] = where + [padding] * (20 - len(where)) + [len(where)]
        return result

    return expected


NONZERO = [
    Legal("nonzero_with_count", make_nonzero(), sparse(np.float32), counted(0, -1), NEW),
    Legal(
        "nonzero_with_count",
        make_nonzero(index_offset=64, padding_val=5),
        sparse(np.int32),
        counted(64, 5),
        NEW,
    ),
    Breaks("nonzero_with_count.column-partitions", make_nonzero(dst=(64, 21)), sparse(np.int32)),
    Breaks("nonzero_with_count.size", make_nonzero(dst=(100, 20)), sparse(np.int32)),
    Breaks("nonzero_with_count.int32", make_nonzero(index_offset=1 << 31), sparse(np.int32)),
]


# --- topk


def make_topk(
    k: int,
    n: int,
    columns: int,
    src: Any = (32, 5),
    val: Any = None,
    idx: Any = None,
    idx_k: int | None = None,
    rank: int = 2,
) -> Any:
    def topk(a: Any) -> Any:
        values_tile = filled(val or (src[0], columns), 7.0, nl.bfloat16)
        index_tile = filled(idx or (src[0], columns), 7, np.uint32)
        tile = nl.ndarray(src, nl.bfloat16, buffer=nl.sbuf)
        dma_copy(dst=tile, src=a[0 : src[0], 0 : src[1]])
        if rank == 3:
            tile = tile.expand_dim(1)
        family.topk(val_dst=values_tile[:, 0:k], idx_dst=index_tile[:, 0 : idx_k or k], src=tile, n=n)
        return store(values_tile), store(index_tile)

    return topk


def logits() -> tuple[Any, ...]:
    return (np.random.default_rng(17).permutation(128 * 512).reshape(128, 512).astype(ml_dtypes.bfloat16),)


def ranked(k: int, n: int, columns: int, src: Any = (32, 5)) -> Any:
    def expected(a: np.ndarray) -> Any:
        best, where = (np.full((src[0], columns), 7.0) for _ in "vi")
        for base in range(0, src[0], 16):
            snake = [(float(a[base + i % 16, i // 16]), -i) for i in range(n)]
            for j, (value, position) in enumerate(sorted(snake)[n - k :]):
                best[base + j % 16, j // 16] = value
                where[base + j % 16, j // 16] = -position
        return best, where

    return expected


TOPK = [
    Legal("topk", make_topk(8, 42, 8, (16, 3)), logits, ranked(8, 42, 8, (16, 3)), NEW),
    Legal("topk", make_topk(40, 80, 48), logits, ranked(40, 80, 48), NEW),
    Legal("topk", make_topk(32, 70, 32), logits, ranked(32, 70, 32), NEW),
    Breaks("topk.rank", make_topk(8, 42, 8, rank=3), logits),
    Breaks("topk.shapes", make_topk(8, 42, 8, idx_k=7), logits),
    Breaks("topk.column-partitions", make_topk(8, 42, 8, val=(16, 8), idx=(16, 8)), logits),
    Breaks("topk.groups", make_topk(8, 42, 8, (24, 5)), logits),
    Breaks("topk.n", make_topk(4, 7, 8), logits),
    Breaks("topk.k", make_topk(43, 42, 48), logits),
    Breaks("topk.src-size", make_topk(8, 81, 8), logits),
]

# --- tensor indirection, which none of them has


def topk_call(tile: Any) -> None:
    low = filled((16, 8), dtype=nl.bfloat16)
    family.topk(low, filled((16, 8), dtype=np.uint32), gathered(low), 8)


INDIRECT = [
    indirect("max8", lambda t: family.max8(t, gathered(t))),
    indirect("nc_find_index8", lambda t: family.nc_find_index8(filled((16, 8), dtype=np.uint32), gathered(t), t)),
    indirect("nc_match_replace8", lambda t: family.nc_match_replace8(t, t, gathered(t), 0.0)),
    indirect("nonzero_with_count", lambda t: family.nonzero_with_count(filled((16, 9), dtype=np.int32), gathered(t))),
    indirect("topk", topk_call),
]

EXAMPLES = [*MAX8, *FIND, *REPLACE, *NONZERO, *TOPK, *INDIRECT]
