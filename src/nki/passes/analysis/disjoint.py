"""Whether two accesses to one memory certainly share no byte: arithmetic on their steps, at a bounded cost."""

from __future__ import annotations

from nki.passes.analysis.footprints import Dims, Footprint

_MOST_RUNS = 256


def disjoint(a: Footprint, b: Footprint) -> bool:
    """True if two footprints of one space certainly share no byte; exact but for pairs of very ragged ones."""
    if a.after <= b.first or b.after <= a.first or a.high <= b.low or b.high <= a.low:
        return True
    if len(a.dims) < 2 and len(b.dims) < 2:
        if not a.dims:
            return not _meets(a.low, a.high, b.low, b.dims, b.run)
        if not b.dims:
            return not _meets(b.low, b.high, a.low, a.dims, a.run)
        if a.dims[0][0] == b.dims[0][0]:
            return _apart_in_step(a, b)
    # The runs of one pattern are asked about one by one, so that of the pattern with fewer.
    if run_count(a.dims) > run_count(b.dims):
        a, b = b, a
    if run_count(a.dims) > _MOST_RUNS:
        return _apart_by_steps(a, b)
    if len(a.dims) == len(b.dims) == 1:
        return _apart_run_by_run(a, b)
    return not any(_meets(low, low + a.run, b.low, b.dims, b.run) for low in starts(a.low, a.dims))


def run_count(dims: Dims) -> int:
    """Number of contiguous runs of a pattern."""
    runs = 1
    for _, count in dims:
        runs *= count
    return runs


def starts(low: int, dims: Dims) -> list[int]:
    """First bytes of the runs of a pattern."""
    found = [low]
    for stride, count in dims:
        found = [start + k * stride for start in found for k in range(count)]
    return found


def _meets(low: int, high: int, start: int, dims: Dims, run: int) -> bool:
    """Whether bytes low:high meet a pattern."""
    if not dims:
        return start < high and low < start + run
    (stride, count), inner = dims[0], dims[1:]
    span = run
    for s, n in inner:
        span += s * (n - 1)
    # Repetition k covers `span` bytes from ``start + k * stride`` on: only these can reach into low:high. Without inner
    # dimensions they do, because a repetition is one run.
    first = max(0, -(-(low - start - span + 1) // stride))
    last = min(count - 1, (high - 1 - start) // stride)
    if not inner:
        return first <= last
    return any(_meets(low, high, start + k * stride, inner, run) for k in range(first, last + 1))


def _apart_in_step(a: Footprint, b: Footprint) -> bool:
    """Whether two patterns of one and the same stride share no byte."""
    (stride, a_count), (_, b_count) = a.dims[0], b.dims[0]
    # Run j of b begins ``shift - (i - j) * stride`` bytes behind run i of a. They meet if that is above -b.run and
    # below a.run, so one interval of differences i - j decides for all pairs.
    shift = b.low - a.low
    first = max(-(b_count - 1), -(-(shift - a.run + 1) // stride))
    return first > min(a_count - 1, (shift + b.run - 1) // stride)


def _apart_run_by_run(a: Footprint, b: Footprint) -> bool:
    """Whether two patterns of different strides share no byte: only runs of a that lie within b are asked about.

    Places of device memory that tensors of different shapes take one after another are compared so very often.
    """
    (stride, count), (step, runs) = a.dims[0], b.dims[0]
    first, last = max(0, -(-(b.low - a.run + 1 - a.low) // stride)), min(count - 1, (b.high - 1 - a.low) // stride)
    before, behind = b.low + b.run - 1, b.low - a.run + 1
    for low in range(a.low + first * stride, a.low + last * stride + 1, stride):
        # runs of b from the first one that ends behind this one's beginning to the last one that begins in it
        least, most = -((before - low) // step), (low - behind) // step
        if (least if least > 0 else 0) <= (most if most < runs else runs - 1):
            return False
    return True


def _apart_by_steps(a: Footprint, b: Footprint) -> bool:
    """Whether all bytes of both fall into different places modulo a common step."""
    steps = {stride for stride, _ in (*a.dims, *b.dims)}
    unit = min(steps)
    if any(stride % unit for stride in steps):
        return False
    shift = (b.low - a.low) % unit
    return shift >= a.run and shift + b.run <= unit
