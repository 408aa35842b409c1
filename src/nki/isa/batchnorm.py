"""Mean and variance of each partition in two steps: statistics of pieces, and their aggregate."""

from __future__ import annotations

from typing import Any

from nki.isa.alu import ADD
from nki.isa.indirection import no_indirection
from nki.spec.arrays import Arrays
from nki.spec.cost import OLDER, streams
from nki.spec.cost_vector import BN_AGGR
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import Dst, Name, Src
from nki.spec.rule import Rule

_ISA = "nki/api/nki/isa"
_STATISTICS = 6
_TUPLE = 3


def _result_rule(count: int, what: str) -> Rule:
    return Rule(
        "shapes",
        f"dst has the partitions of data, and {count} elements per partition: {what}",
        lambda a, t: (a.dst.shape[0], a.dst.free_size) == (a.data.shape[0], count),
        _ISA,
        f"allocate dst as (partitions, {count}), or slice {count} columns of a larger tensor",
        lambda a, t: f"dst has {a.dst.shape[0]} x {a.dst.free_size}, data has {a.data.shape[0]} partitions",
    )


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        _result_rule(_STATISTICS, "count, mean and variance * count of even, then of odd elements"),
        Rule(
            "free-size",
            "data has at most {t.limits.bn_stats_max_free} elements per partition",
            lambda a, t: a.data.free_size <= t.limits.bn_stats_max_free,
            _ISA,
            "use one instruction for each {t.limits.bn_stats_max_free} elements, and one nisa.bn_aggr for all results",
            lambda a, t: f"data has {a.data.free_size} elements per partition",
        ),
        no_indirection(),
    ],
    steps=streams("BnStats", "data", source="", estimate=OLDER),
)
def bn_stats(dst: Dst, data: Src, name: Name = None) -> None:
    """Count, mean and ``variance * count`` of the even and of the odd elements of each partition, on Vector.

    Even and odd are positions in the flattened free dimensions, from 0. Arithmetic is float32: the mean first, then the
    sum of squared differences from it. A single element has variance 0, and where there is no odd element all three
    numbers are 0. The results round to the dtype of `dst`, where a count above 256 needs more than bfloat16 has.

    Args:
        dst: SBUF or PSUM, 6 elements per partition; `bn_aggr` takes them.
        data: SBUF or PSUM, any dtype, at most 512 elements per partition.
    """


@bn_stats.body
def _(a: Any, x: Arrays) -> None:
    values, partitions = x.load(a.data), a.data.shape[0]
    parts: list[Any] = []
    for parity in (0, 1):
        count = (a.data.free_size + 1 - parity) // 2
        parts.append(x.broadcast(x.constant(float(count)), partitions, 1))
        if count:
            parts.extend(_moments(x, x.every(values, parity, 2), count))
        else:
            parts.extend([x.broadcast(x.constant(0.0), partitions, 1)] * 2)
    x.store(a.dst, x.concatenate(parts))


def _moments(x: Arrays, values: Any, count: int) -> tuple[Any, Any]:
    """Mean, and sum of squared differences from it."""
    mean = x.divide(x.reduce(ADD, values), x.constant(float(count)))
    difference = x.subtract(values, mean)
    return mean, x.reduce(ADD, x.multiply(difference, difference))


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        _result_rule(2, "mean and variance"),
        Rule(
            "tuples",
            "data has a multiple of 3 elements per partition: count, mean and variance * count of each piece",
            lambda a, t: a.data.free_size % _TUPLE == 0,
            _ISA,
            "pass whole results of nisa.bn_stats, 6 elements each",
            lambda a, t: f"data has {a.data.free_size} elements per partition",
        ),
        no_indirection(),
    ],
    steps=BN_AGGR,
)
def bn_aggr(dst: Dst, data: Src, name: Name = None) -> None:
    """Mean and population variance of each partition from the statistics of its pieces, on Vector.

    The mean is that of the means, weighted by their counts; the variance adds to the pieces' own the weighted squared
    distance of their means from it. Arithmetic is float32 with one rounding to the dtype of `dst`. If all counts are 0,
    both results are NaN.

    Args:
        dst: SBUF or PSUM, 2 elements per partition: mean, variance.
        data: SBUF or PSUM, a multiple of 3 elements per partition: count, mean, variance * count of each piece.
    """


@bn_aggr.body
def _(a: Any, x: Arrays) -> None:
    values = x.load(a.data)
    counts, means, spreads = (x.every(values, column, _TUPLE) for column in range(_TUPLE))
    total = x.reduce(ADD, counts)
    mean = x.divide(x.reduce(ADD, x.multiply(counts, means)), total)
    difference = x.subtract(means, mean)
    spread = x.reduce(ADD, x.add(spreads, x.multiply(counts, x.multiply(difference, difference))))
    x.store(a.dst, x.concatenate([mean, x.divide(spread, total)]))
