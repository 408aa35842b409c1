"""Which keys a query of prefill attention sees: what is known while compiling, and what only the call's tensors say.

A query at position p sees the keys up to p (causal), the last `window` of them, and those within its bounds. Positions
count keys of the call, so that the prefix has negative ones. What is known is left out tile by tile, and masked where
a tile is cut. What is not (context parallelism, packed sequences, the used part of the prefix) becomes two numbers for
each query, the first key that it sees and the one after the last, in tensors of device memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.operands import TILE, KeyTile, Segment

_LINE = 16
"""Queries whose limits one partition computes."""


NOT_SEEN = -3.0e38
"""Added to scores of keys that nobody sees, whose weights then are 0."""


@dataclass(frozen=True)
class Limits:
    """Keys that queries see of a segment, in device memory: ``(heads or 1, queries)``, float32; None without a limit.

    Attributes:
        first: the first key.
        stop: the key after the last one.
    """

    first: Any = None
    stop: Any = None

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return self.first is not None or self.stop is not None


@dataclass(frozen=True)
class Sight:
    """Rules of a call.

    Attributes:
        causal: a query sees no keys after its own position.
        window: keys that it sees at most, its own among them; 0 for all.
        moved: whether positions of queries are only known while the kernel runs.
        active, prior: limits that only tensors say, of the keys of the call and of the prefix.
        used: used keys of the prefix, ``(128, 1)`` float32; None without one.
        unused: for each tile of the prefix a column of float32: 0 for keys that are used, else the lowest number.
        least: the first key of a prefix whose place is known, ``(128, 1)`` float32, if it begins before the sequence.
        behind: keys before a segment that first and last keys count as well, ``(128, 1)`` float32; None for none.
        shift: added to positions of queries where `causal` is asked: 0, or 0 or -1 as a scalar of the device.
    """

    causal: bool
    window: int
    moved: bool
    active: Limits
    prior: Limits
    used: Any = None
    unused: Any = None
    least: Any = None
    behind: Any = None
    shift: Any = 0

    @property
    def known(self) -> bool:
        """Whether only the used part of the prefix depends on tensors of the call."""
        return not (self.moved or self.active.any or self.prior.any)

    def limits(self, segment: Segment) -> Limits:
        """Those of a segment."""
        return self.prior if segment.prior else self.active

    def keys(self, segment: Segment, queries: slice) -> slice:
        """Keys of a segment among which are all that some queries see, in whole tiles."""
        if segment.first is None or self.moved:
            return slice(0, segment.length)
        start, stop = queries.start - segment.first, queries.stop - segment.first
        stop = min(segment.length, st.ceil_div(stop, TILE) * TILE) if self.causal else segment.length
        first = max(0, start - self.window + 1) // TILE * TILE if self.window else 0
        return slice(min(first, stop), stop)

    def queries(self, tile: KeyTile, queries: slice) -> slice:
        """Queries among which are all that see a tile; the cuts are whole tiles of queries."""
        if tile.segment.first is None or self.moved:
            return queries
        first, stop, place = queries.start, queries.stop, tile.segment.first
        if self.causal:
            first += max(0, place + tile.start - first) // TILE * TILE
        if self.window:
            tiles = st.ceil_div(max(0, place + tile.stop + self.window - 1 - queries.start), TILE)
            stop = min(stop, queries.start + tiles * TILE)
        return slice(first, max(first, stop))

    def hide(self, weights: Any, tile: KeyTile, queries: slice) -> None:
        """Make weights 0 where the query does not see the key, as far as is known: ``(keys, queries)``, in place."""
        if tile.segment.first is None or self.moved:
            return
        start, count, place = queries.start, st.size(queries), tile.segment.first
        first, stop = place + tile.start, place + tile.stop
        if self.causal and stop - 1 > start:  # queries before the last key
            part = min(count, st.ceil_div(stop - 1 - start, TILE) * TILE)
            _keep(weights[:, 0:part], [[1, part]], -1, self.shift + (start - first))
        if self.window and queries.stop - 1 >= first + self.window:  # queries that lost the first key
            skip = max(0, first + self.window - start) // TILE * TILE
            part = count - skip
            _keep(weights[:, skip:count], [[-1, part]], 1, first + self.window - 1 - start - skip)


def _keep(weights: Any, pattern: list[list[int]], partition: int, offset: Any) -> None:
    """Keep weights where the sum of an offset and steps for each row and column is not negative."""
    nisa.affine_select(
        dst=weights,
        pattern=pattern,
        channel_multiplier=partition,
        offset=offset,
        on_true_tile=weights,
        on_false_value=0.0,
        cmp_op=nl.greater_equal,
    )


def sight_of(arguments: Mapping[str, Any], queries: int) -> Sight:
    """The rules of a call.

    Args:
        arguments: of `attention_cte`, by name.
        queries: of a head.
    """
    given = SimpleNamespace(**arguments)
    causal, window = given.causal_mask, given.sliding_window or 0
    moved, prior = given.cp_offset is not None, given.v_prior is not None
    positions = Positions(
        count=queries,
        offset=st.load_repeated(given.cp_offset, TILE, nl.float32) if moved else None,
        stride=given.global_cp_deg if given.cp_strided_q_slicing else 1,
        bounds=None
        if given.bound_min is None
        else tuple(by_head(b, queries) for b in (given.bound_min, given.bound_max)),
        used=st.load_repeated(given.prior_used_len, TILE, nl.float32) if prior else None,
    )
    return Sight(
        causal=causal,
        window=window,
        moved=moved,
        active=positions.limits(causal, window, prior=False) if moved or positions.bounds else Limits(),
        prior=positions.limits(causal, window, prior=True) if prior and window else Limits(),
        used=positions.used,
        unused=unused(given.v_prior.shape[1], positions.used) if prior else None,
    )


def by_head(bound: Any, queries: int) -> Any:
    """Bounds ``(batch, queries)``, ``(batch, queries, 1)``, ``(queries, 1)`` or ``(queries,)`` as rows."""
    return bound.reshape((prod(bound.shape) // queries, queries))


# ------------------------------------------------------------------------------- what only the tensors of the call say


@dataclass(frozen=True)
class Positions:
    """Where the queries of a call are, and what bounds them.

    Attributes:
        count: queries.
        offset: ``(128, 1)`` float32, the position of the first one, or None for 0.
        stride: positions from one query to the next.
        bounds: ``bound_min`` and ``bound_max`` as ``(heads or 1, queries)``, or None.
        used: ``(128, 1)`` float32, used keys of the prefix, or None.
    """

    count: int
    offset: Any
    stride: int
    bounds: tuple[Any, Any] | None
    used: Any

    def limits(self, causal: bool, window: int, prior: bool) -> Limits:
        """First and last keys that queries see of a segment, computed into device memory."""
        bounds = None if prior else self.bounds
        heads = bounds[0].shape[0] if bounds else 1
        has_first, has_stop = bool(window) or bounds is not None, not prior and (causal or bounds is not None)
        first = nl.ndarray((heads, self.count), dtype=nl.float32, buffer=nl.private_hbm) if has_first else None
        stop = nl.ndarray((heads, self.count), dtype=nl.float32, buffer=nl.private_hbm) if has_stop else None
        for head in range(heads):
            for place, lines, width in _lines(self.count):
                here = slice(place, place + lines * width)
                position = self._position(place, lines, width)
                if first is not None:
                    step = position if window else None
                    tile = self._first(
                        step, window, prior, None if bounds is None else bounds[0][head, here], (lines, width)
                    )
                    st.store(first[head, here], tile)
                if stop is not None:
                    tile = _stop(
                        position if causal else None, None if bounds is None else bounds[1][head, here], (lines, width)
                    )
                    st.store(stop[head, here], tile)
        return Limits(first, stop)

    def _position(self, place: int, lines: int, width: int) -> Any:
        tile = st.sbuf((lines, width), nl.float32)
        step = self.stride
        nisa.iota(dst=tile, pattern=[[step, width]], offset=place * step, channel_multiplier=width * step)
        if self.offset is not None:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=self.offset[0:lines, :])
        return tile

    def _first(self, position: Any, window: int, prior: bool, bound: Any, shape: tuple[int, int]) -> Any:
        if position is None:
            return _loaded(bound, shape)
        tile = st.sbuf(shape, nl.float32)
        nisa.tensor_scalar(dst=tile, data=position, op0=nl.add, operand0=float(1 - window))
        if prior:
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=self.used[0 : shape[0], :])
        if bound is not None:
            nisa.tensor_tensor(dst=tile, data1=tile, data2=_loaded(bound, shape), op=nl.maximum)
        return tile


def _stop(position: Any, bound: Any, shape: tuple[int, int]) -> Any:
    if position is None:
        return _loaded(bound, shape)
    tile = st.sbuf(shape, nl.float32)
    nisa.tensor_scalar(dst=tile, data=position, op0=nl.add, operand0=1.0)
    if bound is not None:
        nisa.tensor_tensor(dst=tile, data1=tile, data2=_loaded(bound, shape), op=nl.minimum)
    return tile


def _loaded(bound: Any, shape: tuple[int, int]) -> Any:
    return st.load(bound.reshape(shape), nl.float32)


def _lines(count: int) -> list[tuple[int, int, int]]:
    """Queries in rectangles: the first query, lines, and queries of a line."""
    found = []
    for part in st.spans(count, TILE * _LINE):
        lines, rest = divmod(st.size(part), _LINE)
        if lines:
            found.append((part.start, lines, _LINE))
        if rest:
            found.append((part.stop - rest, 1, rest))
    return found


def unused(length: int, used: Any, run: int = 1) -> Any:
    """For each tile of the prefix a column that is 0 for used keys and else the lowest number: ``(128, tiles)``.

    Args:
        length: keys, a multiple of 128 * `run` unless that is 1.
        used: how many are, ``(128, 1)`` float32.
        run: keys that follow each other on a partition, in as many tiles.
    """
    tiles = st.ceil_div(length, TILE)
    position, result = st.sbuf((TILE, tiles), nl.float32), st.sbuf((TILE, tiles), nl.float32)
    pattern = [[TILE * run, tiles // run], [1, run]] if run > 1 else [[TILE, tiles]]
    nisa.iota(dst=position, pattern=pattern, channel_multiplier=run)
    nisa.tensor_scalar(
        dst=result, data=position, op0=nl.greater_equal, operand0=used, op1=nl.multiply, operand1=NOT_SEEN
    )
    return result
