"""The ring of segments that search for the largest elements of rows together, see `rotational_topk`."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nkilib.core.topk.topk_plan import AT_ONCE, TopkPlan
from nkilib.streaming import ceil_div, load, psum, sbuf, size, spans, store

MASKED = -3.3e38
"""What -inf counts as: products with 0 stay 0."""
TAKEN = float(np.finfo(np.float32).min)
"""Stands where an element was taken out, and for those that a shorter segment lacks; less than all others."""
PIECE = 2048
"""Elements of a row in one transfer."""
_LEAST = -3.2e38
"""Anything below is -inf, whatever dtype it was rounded to."""
_LOOKED_UP = 64
"""Indices that GpSimd looks up at once."""


def taken(pool: Any, count: int, into: Any = None) -> tuple[Any, Any]:
    """The largest elements of each partition, taken out, in descending order, and their places in uint32."""
    whole = AT_ONCE * ceil_div(count, AT_ONCE)
    values = sbuf((pool.shape[0], whole), nl.float32) if into is None else into
    places = sbuf((pool.shape[0], whole), nl.uint32)
    for part in spans(whole, AT_ONCE):
        nisa.max8(dst=values[:, part], src=pool)
        nisa.nc_match_replace8(dst=pool, data=pool, vals=values[:, part], imm=TAKEN, dst_idx=places[:, part])
    return values, places


def clamped(tile: Any, into: Any) -> None:
    """A tile in float32, with `MASKED` in place of -inf."""
    nisa.tensor_scalar(dst=into, data=tile, op0=nl.maximum, operand0=MASKED)


def looked_up(table: Any, places: Any) -> Any:
    """``table[partition, place]``."""
    found = sbuf(places.shape, table.dtype)
    for part in spans(places.shape[1], _LOOKED_UP):  # the first ones while Vector still searches
        nisa.nc_n_gather(dst=found[:, part], data=table, indices=places[:, part])
    return found


def put(values: Any, indices: Any, found: tuple[Any, Any], rows: slice) -> None:
    """Both results of some rows, with -inf in place of what stands for it."""
    values, indices = (_as(tile, target) for tile, target in zip((values, indices), found, strict=True))
    masked = sbuf(values.shape, nl.uint8)
    nisa.tensor_scalar(dst=masked, data=values, op0=nl.less_equal, operand0=_LEAST)
    nisa.tensor_copy_predicated(dst=values, src=float("-inf"), predicate=masked)
    store(found[0][rows], values)
    store(found[1][rows], indices)


def _as(tile: Any, target: Any) -> Any:
    """As many columns of a tile as a result has, in its dtype."""
    kept = tile[:, : target.shape[1]]
    if kept.dtype == target.dtype:
        return kept
    converted = sbuf(kept.shape, target.dtype)
    nisa.tensor_copy(dst=converted, src=kept, engine=nisa.engine.scalar)
    return converted


class Ring(nl.NKIObject):
    """Rows in segments: partition ``row * segments + segment`` has one, and gives to the next one of the row."""

    def __init__(self, plan: TopkPlan, rows: int, columns: int) -> None:
        self.plan = plan
        self.constants = {
            count: load(nl.shared_constant(constants(plan, count, columns))) for count in _counts(plan, rows)
        }
        self.tables: dict[int, Any] = {}

    def search(self, source: Any, rows: slice) -> tuple[Any, Any]:
        """What all segments took out last of at most 128 rows: (rows, segments * share) values, and indices."""
        plan = self.plan
        values, indices = (sbuf((size(rows), plan.segments * plan.share), nl.float32) for _ in range(2))
        for some in spans(size(rows), plan.together):
            given = self._turn(source, slice(rows.start + some.start, rows.start + some.stop))
            store(values[some], given[:, : plan.share])  # which are sorted while indices are still looked up
            store(indices[some], given[:, plan.share :])
        return values, indices

    def _turn(self, source: Any, some: slice) -> Any:
        """What each segment of each row takes out in the last stage: its values, and behind them their indices."""
        plan = self.plan
        pool, table = self._segments(source, some), self._table(size(some))
        given = None
        for stage in range(plan.segments):
            width = plan.length + stage * plan.share
            if given is not None:
                self._give(given, pool, table, slice(width - plan.share, width))
            given = sbuf((pool.shape[0], 2 * plan.share), nl.float32)
            _, places = taken(pool[:, :width], plan.share, into=given[:, : plan.share])
            nisa.nc_n_gather(dst=given[:, plan.share :], data=table[:, :width], indices=places)
        return given

    def _segments(self, source: Any, rows: slice) -> Any:
        """The segments of some rows, with room for what they get."""
        count, plan = size(rows), self.plan
        raw = sbuf((count * plan.segments, plan.length), source.dtype)
        pool = sbuf((count * plan.segments, plan.widest), nl.float32)
        load_segments(source, rows, plan, raw)
        for part in spans(plan.length, PIECE):
            clamped(raw[:, part], into=pool[:, part])
        missing = plan.segments * plan.length - source.shape[1]
        if missing:
            limit = self.constants[count][:, count * plan.segments + 1 :]
            tail = pool[:, plan.length - missing : plan.length]
            nisa.range_select(
                dst=tail,
                on_true_tile=tail,
                comp_op0=nl.less,
                comp_op1=nl.less,
                bound0=limit,
                bound1=limit,
                range_start=plan.length - missing,
            )
        return pool

    def _table(self, rows: int) -> Any:
        """The index in its row of each element of the segments, with room for those that come."""
        if rows not in self.tables:
            plan = self.plan
            base = self.constants[rows][:, rows * plan.segments : rows * plan.segments + 1]
            table = sbuf((rows * plan.segments, plan.widest), nl.float32)
            own = table[:, : plan.length]
            nisa.iota(dst=own, pattern=[[1, plan.length]])
            nisa.tensor_scalar(dst=own, data=own, op0=nl.add, operand0=base)
            self.tables[rows] = table
        return self.tables[rows]

    def _give(self, given: Any, pool: Any, table: Any, there: slice) -> None:
        """What was taken out, to the next segments: columns of the pool, and of the table."""
        partitions, share = given.shape[0], self.plan.share
        shift = self.constants[partitions // self.plan.segments][:, :partitions]
        for half, target in ((given[:, :share], pool[:, there]), (given[:, share:], table[:, there])):
            for part in spans(share, nl.tile_size.gemm_moving_fmax):
                moved = psum((partitions, size(part)))
                nisa.nc_matmul(dst=moved, stationary=shift, moving=half[:, part])
                nisa.tensor_copy(dst=target[:, part], src=moved, engine=nisa.engine.scalar)


def load_segments(source: Any, rows: slice, plan: TopkPlan, into: Any) -> None:
    """Rows in segments; what a last segment lacks is the beginning of the next row, or 0 after the last row."""
    (all_rows, columns), missing = source.shape, plan.segments * plan.length - source.shape[1]
    alone = bool(missing) and rows.stop == all_rows
    count = size(rows) - alone
    if alone:
        full = columns // plan.length
        first, whole = count * plan.segments, full * plan.length
        nisa.memset(dst=into[:, max(0, plan.length - missing) :], value=0.0)
        if full:
            store(into[first : first + full], source[all_rows - 1, :whole])
        if whole < columns:
            store(into[first + full : first + full + 1, : columns - whole], source[all_rows - 1, whole:])
    if count:
        for part in spans(plan.length, PIECE):
            pattern = [[columns, count], [plan.length, plan.segments], [1, size(part)]]
            here = source.ap(pattern=pattern, offset=rows.start * columns + part.start)
            store(into[: count * plan.segments, part], here)


def constants(plan: TopkPlan, rows: int, columns: int) -> np.ndarray:
    """The matrix that turns the ring, and beside it the index of each segment's first element, and how many it has."""
    shift = np.kron(np.eye(rows), np.roll(np.eye(plan.segments), 1, axis=1))
    base = np.arange(plan.segments) * plan.length
    length = np.minimum(plan.length, columns - base)
    of_segments = np.tile(np.stack([base, length], 1), (rows, 1))
    return np.hstack([shift, of_segments]).astype(np.float32)


def _counts(plan: TopkPlan, rows: int) -> list[int]:
    """How many rows there are together anywhere, on any core: constants are the same on all of them."""
    found = set()
    for some in spans(rows, ceil_div(rows, nl.num_programs(0))):
        for block in spans(size(some), nl.tile_size.pmax):
            found |= {size(each) for each in spans(size(block), plan.together)}
    return sorted(found)
