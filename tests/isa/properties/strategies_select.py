"""Cases of index patterns, selections and searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.core.dtypes import float32
from nki.isa import alu
from nki.spec.engine import reduce_cmd
from tests.isa.properties import values
from tests.isa.properties.drawing import Chooser
from tests.isa.properties.places import Tile
from tests.isa.properties.strategies_reduce import commands

Calls = tuple[dict[str, Any], ...]
_INTEGERS = (0, 1, -1, 2, 3, -7, 16, 100, -128, 65537, 2**24 + 1, 2**30, 2**31 - 1, -(2**31))
_COMMANDS = (reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce, reduce_cmd.reset_reduce)
_SEARCHED = (8, 9, 12, 16, 17, 31, 40, 64, 100)


def _pattern(c: Chooser, count: int) -> list[list[int]]:
    """Up to four pairs whose counts make up the elements of a partition."""
    sizes = list(c.shape(1, count)[1:])
    sizes += [1] * c.pick(range(0, 5 - len(sizes)))
    return [[c.pick(_INTEGERS), size] for size in sizes]


def iota(c: Chooser) -> Calls:
    """Sums that wrap, and sums that do not fit the dtype."""
    rows, count = c.sizes(700)
    call = {"dst": c.tile("dst", rows, count), "pattern": _pattern(c, count)}
    return ({**call, "offset": c.pick(_INTEGERS), "channel_multiplier": c.pick(_INTEGERS)},)


def _finite(c: Chooser) -> float:
    """A number without NaN, of which there are many encodings."""
    number = c.number()
    return 1.0 if np.isnan(number) else number


def affine_select(c: Chooser) -> Calls:
    """Masks, and any other patterns; x4 tiles are selected against 0."""
    rows, count = c.sizes(700)
    source = c.tile("on_true_tile", rows, count)
    dtype = source.dtype if source.dtype.is_packed or c.flag() else float32
    call = {"dst": c.tile("dst", rows, count, dtype), "pattern": _pattern(c, count), "on_true_tile": source}
    call |= {"channel_multiplier": c.pick(_INTEGERS), "offset": c.pick(_INTEGERS), "cmp_op": c.pick(alu.COMPARISONS)}
    return ({**call, "on_false_value": 0.0 if source.dtype.is_packed else _finite(c)},)


def _with_result(c: Chooser, call: dict[str, Any], rows: int) -> dict[str, Any]:
    """The one operator there is, and the registers, if it says so."""
    call = {**call, "reduce_op": alu.MAXIMUM} if c.flag() else call
    return {**call, "reduce_res": c.tile("reduce_res", rows, 1)} if c.flag() else call


def range_select(c: Chooser) -> Calls:
    """Bounds within the indices, between them, and far away."""
    rows, count = c.sizes(600)
    operators = [op for op in alu.COMPARISONS if op != alu.NOT_EQUAL]
    calls = []
    for command in commands(c, *_COMMANDS):
        source = c.tile("on_true_tile", rows, count)
        start = c.pick((0, 0, 0, 5, -3, 2**24 - 2, -(2**24) - 1, 2**25))
        call = {"dst": c.out("dst", rows, count, None), "on_true_tile": source, "range_start": start}
        call |= {"comp_op0": c.pick(operators), "comp_op1": c.pick(operators), "reduce_cmd": command}
        for name in ("bound0", "bound1"):
            near = values.whole(start - 2, start + count + 2)
            call[name] = c.tile(name, rows, 1, make=c.pick((near, near, values.wild)))
        call |= {"on_false_value": -3.4028235e38} if c.flag() else {}
        calls.append(_with_result(c, call, rows))
    return tuple(calls)


def select_reduce(c: Chooser) -> Calls:
    """Predicates of all their dtypes, numbers and columns."""
    rows, count = c.sizes(600)
    calls = []
    for command in commands(c, *_COMMANDS):
        source = c.tile("on_true", rows, count)
        predicate = c.tile("predicate", rows, count, make=values.sparse, psum=False if source.psum else None)
        call = {"dst": c.tile("dst", rows, count), "predicate": predicate, "on_true": source, "reduce_cmd": command}
        call |= {"on_false": c.column("on_false", rows), "reverse_pred": c.flag()}
        calls.append(_with_result(c, call, rows))
    return tuple(calls)


# ---- searches


def _searched(c: Chooser, name: str, rows: int, count: int) -> Tile:
    """At most three dimensions; often few different values."""
    shape = c.shape(rows, count)
    make = c.pick((values.few, values.wild, values.tame))
    return c.tile(name, rows, count, make=make, shape=shape if len(shape) <= 3 else (rows, count))


def max8(c: Chooser) -> Calls:
    """Eight elements and more."""
    rows, count = c.sizes(1200, widths=_SEARCHED)
    return ({"dst": c.tile("dst", rows, 8, shape=(rows, 8)), "src": _searched(c, "src", rows, count)},)


def _wanted(c: Chooser, rows: int, data: Tile) -> Tile:
    """Values of the data, some of them several times, or any others."""
    if c.pick((True, True, False)):
        r = c.rng()
        picked = data.storage[np.arange(rows)[:, None], r.integers(0, data.count, (rows, 8))]
        return Tile(np.ascontiguousarray(picked), data.dtype, (rows, 8))
    return c.tile("vals", rows, 8, make=values.few, shape=(rows, 8))


def nc_find_index8(c: Chooser) -> Calls:
    """Values that occur, several times, or not at all."""
    rows, count = c.sizes(1000, widths=_SEARCHED)
    data = _searched(c, "data", rows, count)
    return ({"dst": c.tile("dst", rows, 8, shape=(rows, 8)), "data": data, "vals": _wanted(c, rows, data)},)


def nc_match_replace8(c: Chooser) -> Calls:
    """Into the same dtype or another one, also in place."""
    rows, count = c.sizes(1000)
    data = _searched(c, "data", rows, count)
    dst = c.out("dst", rows, count, data, dtype=data.dtype if c.flag() else None)
    call = {"dst": dst, "data": data, "vals": _wanted(c, rows, data), "imm": _finite(c)}
    return ({**call, "dst_idx": c.tile("dst_idx", rows, 8, shape=(rows, 8))} if c.flag() else call,)


def nonzero_with_count(c: Chooser) -> Calls:
    """Zeros of both signs among the elements."""
    rows, count = c.sizes(900)
    src = c.tile("src", rows, count, make=c.pick((values.sparse, values.few)))
    offset, padding = c.pick((0, 1, -5, 1000)), c.pick(_INTEGERS)
    return ({"dst": c.tile("dst", rows, count + 1), "src": src, "index_offset": offset, "padding_val": padding},)


def topk(c: Chooser) -> Calls:
    """One to eight snakes, with columns that are not searched."""
    rows, count = c.sizes(1500, partitions=(16, 32, 48, 64, 128), widths=(1, 2, 3, 5, 9))
    n = c.pick(range(max(8, 16 * count - 20), 16 * count + 1))
    k = c.pick([width for width in (1, 3, 8, 15, 16, 17, 24, 33, n) if width <= n])
    src = c.tile("src", rows, count, shape=(rows, count))
    call = {
        "val_dst": c.tile("val_dst", rows, k, shape=(rows, k)),
        "idx_dst": c.tile("idx_dst", rows, k, shape=(rows, k)),
    }
    return ({**call, "src": src, "n": n},)


def sequence_bounds(c: Chooser) -> Calls:
    """Runs of small ids, with padding in between."""
    count = c.pick((1, 2, 3, 8, 17, 40, 100))
    segments = c.tile(
        "segment_ids", 1, count, make=c.pick((values.whole(0, 3), values.whole(0, 2), values.whole(5, 9)))
    )
    return ({"dst": c.tile("dst", 1, 2 * count), "segment_ids": segments},)
