"""Examples of iota, affine_select, range_select, select_reduce and sequence_bounds."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np

import nki.isa as family
import nki.language as nl
from nki.core import dtypes
from nki.isa import alu
from nki.spec.engine import reduce_cmd
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import filled, load, nothing, store

FP32_MIN = -3.4028235e38
NEW = ("trn2", "trn3")


def affine(partitions: int, pattern: Any, offset: int = 0, multiplier: int = 0) -> np.ndarray:
    """The documented loop nest, one value at a time, in Python integers that wrap to 32 bits."""
    rows = []
    for p in range(partitions):
        row = []
        for index in itertools.product(*(range(count) for _, count in pattern)):
            value = offset + p * multiplier + sum(i * step for i, (step, _) in zip(index, pattern, strict=True))
            row.append((value + 2**31) % 2**32 - 2**31)
        rows.append(row)
    return np.array(rows, np.int64)


# --- iota


def make_iota(shape: Any, dtype: Any, pattern: Any, **options: Any) -> Any:
    def iota(_: Any) -> Any:
        tile = nl.ndarray(shape, dtype, buffer=nl.sbuf)
        family.iota(dst=tile, pattern=pattern, **options)
        return store(tile)

    return iota


IOTA_PATTERN = [[100, 2], [-7, 3], [1, 4]]

IOTA = [
    Legal(
        "iota",
        make_iota((128, 6), np.int32, [[1, 6]]),
        nothing,
        lambda _: np.tile(np.arange(6, dtype=np.int32), (128, 1)),
    ),
    Legal(
        "iota",
        make_iota((5, 6, 4), np.float32, IOTA_PATTERN, offset=-3, channel_multiplier=1000),
        nothing,
        lambda _: affine(5, IOTA_PATTERN, -3, 1000).reshape(5, 6, 4).astype(np.float32),
    ),
    Legal(
        "iota",
        make_iota((3, 16), np.uint32, [[0, 2], [3, 2], [5, 2], [7, 2]], offset=1),
        nothing,
        lambda _: affine(3, [[0, 2], [3, 2], [5, 2], [7, 2]], 1).astype(np.uint32),
    ),
    Breaks("iota.pattern-rank", make_iota((3, 32), np.int32, [[1, 2]] * 5), nothing),
    Breaks("iota.pattern-size", make_iota((3, 32), np.int32, [[1, 2], [1, 15]]), nothing),
    Breaks("iota.pattern-size", make_iota((3, 6), np.int32, [[1, -2], [1, -3]]), nothing),
    Breaks("iota.int32", make_iota((3, 4), np.int32, [[1, 4]], offset=1 << 31), nothing),
]


# --- affine_select


def make_affine(pattern: Any, multiplier: int, value: Any, dtype: Any = None, size: int = 48, **options: Any) -> Any:
    def affine_select(a: Any) -> Any:
        tile = load(a)
        result = nl.ndarray((tile.shape[0], size), dtype or tile.dtype, buffer=nl.sbuf)
        family.affine_select(
            dst=result,
            pattern=pattern,
            channel_multiplier=multiplier,
            on_true_tile=tile,
            on_false_value=value,
            **options,
        )
        return store(result)

    return affine_select


def values(dtype: Any = np.float32, shape: Any = (64, 48), scale: float = 50.0) -> Any:
    def make() -> tuple[Any, ...]:
        return ((np.random.default_rng(3).standard_normal(shape) * scale).astype(dtype),)

    return make


def causal(a: np.ndarray, offset: int, value: float) -> np.ndarray:
    result = np.array(a)
    for query in range(a.shape[0]):
        for key in range(a.shape[1]):
            if query + offset < key:
                result[query, key] = value
    return result


def affine_packed(a: Any) -> Any:
    tile = filled((16, 4), dtype=dtypes.float8_e4m3fn_x4)
    family.affine_select(tile, [[1, 4]], 0, tile, 1.0)
    return store(load(a))


AFFINE = [
    Legal(
        "affine_select",
        make_affine([[-1, 48]], 1, FP32_MIN, cmp_op=alu.GREATER_EQUAL, offset=-3),
        values(),
        lambda a: causal(a, -3, FP32_MIN),
    ),
    Legal(
        "affine_select",
        make_affine([[1, 48]], -1, 0.0),
        values(np.int32),
        lambda a: np.where(np.eye(64, 48) > 0, a, 0),
    ),
    Legal(
        "affine_select",
        make_affine([[16, 3], [1, 16]], 0, 1.5, np.float32, cmp_op=alu.LESS, offset=-20),
        values(ml_dtypes.bfloat16),
        lambda a: np.concatenate([a[:, :20].astype(np.float32), np.full((64, 28), 1.5, np.float32)], axis=1),
    ),
    Breaks("affine_select.pattern-rank", make_affine([[1, 3], [1, 2], [1, 2], [1, 2], [1, 2]], 0, 0.0), values()),
    Breaks("affine_select.pattern-size", make_affine([[1, 47]], 0, 0.0), values()),
    Breaks("affine_select.int32", make_affine([[1 << 40, 48]], 0, 0.0), values()),
    Breaks("affine_select.shapes", make_affine([[1, 40]], 0, 0.0, size=40), values()),
    Breaks("affine_select.cmp-op", make_affine([[1, 48]], 0, 0.0, cmp_op=alu.ADD), values()),
    Breaks("affine_select.packed", affine_packed, values()),
]


# --- range_select


def make_range(
    op0: Any = alu.GREATER_EQUAL,
    op1: Any = alu.LESS,
    dtype: Any = np.float32,
    res: Any = (40, 1),
    res_dtype: Any = np.float32,
    bounds: Any = (1, 1),
    size: int = 48,
    **options: Any,
) -> Any:
    def range_select(a: Any, low: Any, high: Any) -> Any:
        result = nl.ndarray((40, size), dtype, buffer=nl.sbuf)
        largest = filled(res, dtype=res_dtype)
        tiles = [load(b)[:, 0:n] for b, n in zip((low, high), bounds, strict=True)]
        family.range_select(
            dst=result,
            on_true_tile=load(a, nl.psum),
            comp_op0=op0,
            comp_op1=op1,
            bound0=tiles[0],
            bound1=tiles[1],
            reduce_res=largest,
            **options,
        )
        return store(result), store(largest)

    return range_select


def range_values() -> tuple[Any, ...]:
    r = np.random.default_rng(5)
    low, high = (r.integers(start, start + 30, (40, 2)).astype(np.float32) for start in (90, 110))
    return (r.standard_normal((40, 48)).astype(np.float32), low, high)


def range_expected(dtype: Any = np.float32, start: int = 100) -> Any:
    def expected(a: np.ndarray, low: np.ndarray, high: np.ndarray) -> Any:
        result = np.full(a.shape, np.float32(FP32_MIN))
        for p in range(a.shape[0]):
            for i in range(a.shape[1]):
                if low[p, 0] <= i + start < high[p, 0]:
                    result[p, i] = a[p, i]
        with np.errstate(over="ignore"):
            return result.astype(dtype), result.max(axis=1, keepdims=True)

    return expected


RANGE = [
    Legal("range_select", make_range(range_start=100), range_values, range_expected(), NEW),
    Legal(
        "range_select",
        make_range(dtype=ml_dtypes.bfloat16, range_start=100, on_false_value=FP32_MIN),
        range_values,
        range_expected(ml_dtypes.bfloat16),
        NEW,
    ),
    Breaks("range_select.shapes", make_range(size=40), range_values),
    Breaks("range_select.bound0", make_range(bounds=(2, 1)), range_values),
    Breaks("range_select.bound1", make_range(bounds=(1, 2)), range_values),
    Breaks("range_select.comparison", make_range(op1=alu.NOT_EQUAL), range_values),
    Breaks("range_select.on-false-value", make_range(on_false_value=-1e30), range_values),
    Breaks("range_select.reduce-op", make_range(reduce_op=alu.ADD), range_values),
    Breaks("range_select.reduce-cmd", make_range(reduce_cmd=reduce_cmd.load_reduce), range_values),
    Breaks("range_select.reduce-res", make_range(res=(40, 2)), range_values),
    Breaks("range_select.index-range", make_range(range_start=1 << 24), range_values),
    Breaks(
        "range_select.reduce-res-dtype",
        make_range(dtype=ml_dtypes.bfloat16, res_dtype=ml_dtypes.bfloat16),
        range_values,
    ),
]


# --- select_reduce


def make_select(
    on_false: Any = -2.0, res: Any = (64, 1), size: int = 48, psum: bool = False, rows: int = 64, **options: Any
) -> Any:
    def select_reduce(a: Any, predicate: Any) -> Any:
        result = nl.ndarray((64, size), np.float32, buffer=nl.sbuf)
        largest = filled(res)
        family.select_reduce(
            dst=result,
            predicate=load(predicate, nl.psum if psum else nl.sbuf, shape=(64, 3, 16)),
            on_true=load(a, nl.psum if psum else nl.sbuf),
            on_false=filled((rows, 1), on_false) if rows != 64 else on_false,
            reduce_res=largest,
            **{"reduce_cmd": reduce_cmd.reset_reduce, **options},
        )
        return store(result), store(largest)

    return select_reduce


def select_values(dtype: Any = np.float32, predicate: Any = np.uint8) -> Any:
    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(7)
        return (r.standard_normal((64, 48)) * 9).astype(dtype), r.integers(0, 3, (64, 48)).astype(predicate)

    return make


def select_expected(reverse: bool = False) -> Any:
    def expected(a: np.ndarray, predicate: np.ndarray) -> Any:
        result = np.array(a, np.float32)
        result[(predicate == 0) ^ reverse] = -2.0
        return result, result.max(axis=1)[:, None]

    return expected


SELECT = [
    Legal("select_reduce", make_select(), select_values(), select_expected()),
    Legal("select_reduce", make_select(), select_values(np.int16, np.int16), select_expected()),
    Legal("select_reduce", make_select(), select_values(ml_dtypes.bfloat16, np.bool_), select_expected()),
    Legal("select_reduce", make_select(reverse_pred=True), select_values(np.float16, np.int8), select_expected(True)),
    Breaks("select_reduce.shapes", make_select(size=40), select_values()),
    Breaks("select_reduce.both-psum", make_select(psum=True), select_values()),
    Breaks("select_reduce.column-partitions", make_select(rows=32), select_values()),
    Breaks("select_reduce.reduce-op", make_select(reduce_op=alu.MINIMUM), select_values()),
    Breaks("select_reduce.reduce-cmd", make_select(reduce_cmd=reduce_cmd.load_reduce), select_values()),
    Breaks("select_reduce.reduce-res", make_select(res=(32, 1)), select_values()),
]


# --- sequence_bounds


def make_bounds(shape: Any, rows: int = 1) -> Any:
    def sequence_bounds(ids: Any) -> Any:
        result = nl.ndarray(shape, ids.dtype, buffer=nl.sbuf)
        family.sequence_bounds(dst=result, segment_ids=load(ids)[0:rows])
        return store(result)

    return sequence_bounds


def segments(dtype: Any) -> Any:
    return lambda: (np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]] * 2, dtype),)


BOUNDS = [
    Legal(
        "sequence_bounds",
        make_bounds((1, 2, 9)),
        segments(dtype),
        lambda ids: np.array([[[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]], ids.dtype),
    )
    for dtype in (np.int32, np.float32)
] + [
    Breaks("sequence_bounds.partitions", make_bounds((2, 2, 9), rows=2), segments(np.int32)),
    Breaks("sequence_bounds.size", make_bounds((1, 9)), segments(np.int32)),
]

# --- tensor indirection, which none of them has


def gathered(tile: Any) -> Any:
    """The same elements by an index, as no instruction of these families takes them."""
    count = tile.shape[1]
    rows = tile.shape[0]
    return tile.indirect(filled((rows, -(-count // min(rows, 16))), dtype=np.uint32), count)


def indirect(name: str, call: Any) -> Breaks:
    """`call` gets a small float32 tile and must pass it through `gathered` somewhere."""

    def kernel(_: Any) -> Any:
        tile = filled((16, 8))
        call(tile)
        return store(tile)

    return Breaks(f"{name}.indirect", kernel, nothing, "trn3")


def range_call(tile: Any) -> None:
    bound = tile[:, 0:1]
    family.range_select(tile, gathered(tile), alu.LESS, alu.LESS, bound, bound)


INDIRECT = [
    indirect("iota", lambda t: family.iota(gathered(t), [[1, 8]])),
    indirect("affine_select", lambda t: family.affine_select(t, [[1, 8]], 0, gathered(t), 0.0)),
    indirect("range_select", range_call),
    indirect("select_reduce", lambda t: family.select_reduce(t, filled((16, 8), dtype=np.uint8), gathered(t), 0.0)),
    indirect("sequence_bounds", lambda t: family.sequence_bounds(filled((1, 2, 8)), gathered(t[0:1]))),
]

EXAMPLES = [*IOTA, *AFFINE, *RANGE, *SELECT, *BOUNDS, *INDIRECT]
