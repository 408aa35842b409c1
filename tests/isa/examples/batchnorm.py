"""Examples of bn_stats and bn_aggr."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

import nki.language as nl
from nki.core import dtypes
from nki.isa.batchnorm import bn_aggr, bn_stats
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import arrays, empty, filled, gather, gather_arrays, load, nothing, store


def stats(buffer: Any = nl.sbuf) -> Any:
    def kernel(a: Any) -> Any:
        result = empty((a.shape[0], 6), buffer=buffer)
        bn_stats(dst=result, data=load(a, buffer))
        return store(result)

    return kernel


def described(values: list[float]) -> list[float]:
    """Count, mean and variance times count, by Python's exact statistics."""
    if not values:
        return [0.0, 0.0, 0.0]
    return [len(values), statistics.fmean(values), statistics.pvariance(values) * len(values)]


def stats_expected(a: Any) -> Any:
    rows = [[float(v) for v in row.reshape(-1)] for row in a]
    return np.array([described(row[0::2]) + described(row[1::2]) for row in rows])


def normalized(a: Any) -> Any:
    """Mean and variance of rows that need three pieces, the last one shorter."""
    tile, pieces = load(a), empty((a.shape[0], 3, 6))
    result = empty((a.shape[0], 4), dtypes.bfloat16)
    for i in range(3):
        bn_stats(pieces[:, i, :], tile[:, 512 * i : min(512 * (i + 1), a.shape[1])])
    exact = empty((a.shape[0], 2))
    bn_aggr(exact, pieces)
    bn_aggr(result[:, 1:3], pieces)
    return store(exact)


def normalized_expected(a: Any) -> Any:
    return np.stack([a.mean(1, dtype=np.float64), a.var(1, dtype=np.float64)], axis=1)


def from_means(a: Any) -> Any:
    """Hand-made statistics of pieces of unequal size, one of them empty."""
    result = empty((a.shape[0], 2), buffer=nl.psum)
    bn_aggr(result, load(a, nl.psum))
    return store(result)


def from_means_expected(a: Any) -> Any:
    rows = []
    for row in a.astype(np.float64):
        count = sum(row[0::3])
        mean = sum(row[0::3] * row[1::3]) / count
        second = sum(row[2::3] + row[0::3] * row[1::3] ** 2) / count  # mean of the squares
        rows.append([mean, second - mean**2])
    return np.array(rows)


def means() -> tuple[Any, ...]:
    return (np.array([[3, 1.5, 2, 0, 0, 0, 5, -2.5, 1], [1, 4, 0, 7, 4, 0, 2, 4, 0]], np.float32),)


def large(dst: Any, columns: int = 513) -> Any:
    return bn_stats(dst, filled((4, columns)))


def rejected(call: Any) -> Any:
    def kernel(a: Any) -> Any:
        dst, data = empty((4, 8)), load(a)
        call(dst, data)
        return store(dst)

    return kernel


def breaks(code: str, call: Any) -> Breaks:
    return Breaks(code, rejected(call), nothing)


EXAMPLES = [
    Legal("bn_stats", stats(), arrays((128, 512)), stats_expected, rtol=2e-5, atol=1e-5),
    Legal("bn_stats", stats(nl.psum), arrays((8, 3, 5)), stats_expected, rtol=1e-5, atol=1e-6),
    Legal("bn_stats", stats(), arrays((8, 1)), stats_expected),
    Legal("bn_stats", stats(), arrays((8, 2)), stats_expected),
    Legal("bn_aggr", normalized, arrays((16, 1300), scale=3.0), normalized_expected, rtol=1e-5, atol=1e-6),
    Legal("bn_aggr", from_means, means, from_means_expected, rtol=1e-6, atol=1e-6),
    breaks("bn_stats.shapes", lambda d, s: bn_stats(d[:, 0:5], s)),
    breaks("bn_stats.shapes", lambda d, s: bn_stats(d[0:2, 0:6], s)),
    breaks("bn_stats.free-size", lambda d, s: large(d[:, 0:6])),
    Breaks("bn_stats.indirect", gather(lambda d, s: bn_stats(d[:, 0:6], s)), gather_arrays, "trn3"),
    breaks("bn_aggr.shapes", lambda d, s: bn_aggr(d[:, 0:3], s[:, 0:6])),
    breaks("bn_aggr.tuples", lambda d, s: bn_aggr(d[:, 0:2], s)),
    Breaks("bn_aggr.indirect", gather(lambda d, s: bn_aggr(d[:, 0:2], s), 15), gather_arrays, "trn3"),
]
