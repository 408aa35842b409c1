"""What prefill attention is computed of: a call, and blocks of its queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.operands import TILE, Segment, load_columns
from nkilib.core.attention.cte.sight import Sight

BANK = 512
"""float32 of a bank of PSUM."""

Part = tuple[Segment, slice]
"""Keys of a segment."""


@dataclass
class Constants:
    """Tiles that all blocks share, made when they are first asked for.

    Attributes:
        made: by what they hold.
    """

    made: dict[Any, Any] = field(default_factory=dict)

    def filled(self, value: float) -> Any:
        """A column of one value, ``(128, 1)`` float32."""
        return self._once(("filled", value), lambda: st.filled((TILE, 1), nl.float32, value))

    def positions(self, start: int) -> Any:
        """Numbers from `start` on, ``(128, 1)`` float32."""
        return self._once(("positions", start), lambda: counted(start))

    def identity(self, dtype: Any) -> Any:
        """``(128, 128)``."""
        return self._once(("identity", dtype), lambda: _identity(dtype))

    def sink(self, sink: Any, head: int) -> Any:
        """The score of the sink of a head on all partitions, ``(128, 1)`` float32."""
        return self._once(("sink", head), lambda: st.load_repeated(sink[head], TILE, nl.float32))

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]


def counted(start: Any) -> Any:
    """Numbers from `start` on, an int or a scalar of the device, ``(128, 1)`` float32."""
    tile = st.sbuf((TILE, 1), nl.float32)
    nisa.iota(dst=tile, pattern=[[0, 1]], offset=start, channel_multiplier=1)
    return tile


def _identity(dtype: Any) -> Any:
    tile = st.filled((TILE, TILE), dtype, 1.0)
    nisa.affine_select(
        dst=tile, pattern=[[-1, TILE]], channel_multiplier=1, on_true_tile=tile, on_false_value=0.0, cmp_op=nl.equal
    )
    return tile


@dataclass(frozen=True)
class Call:
    """One call of the kernel.

    Attributes:
        q, out, neg_max, sums, sink, bias: its tensors in device memory; None for those it does not have.
        segments: keys, those of the prefix first.
        sight: which keys queries see.
        scale: of the scores.
        group: heads of queries for each head of keys.
        rows: whether a query is a row of `q`.
        columns: whether a query is a column of `out`.
        normalized: whether results are divided by the sums of their weights.
        maxima: whether `neg_max` gets the largest scores, or anything that was taken off.
        plan: ``tiles`` of `attention_cte`.
        stretch: what results are multiplied by, ``(128, d)`` float32; None for 1.
        constants: of all blocks.
    """

    q: Any
    out: Any
    neg_max: Any
    sums: Any
    sink: Any
    bias: Any
    segments: tuple[Segment, ...]
    sight: Sight
    scale: float
    group: int
    rows: bool
    columns: bool
    normalized: bool
    maxima: bool
    plan: Mapping[str, int]
    stretch: Any = None
    constants: Constants = field(default_factory=Constants)

    @property
    def heads(self) -> int:
        """Heads of queries of the whole batch."""
        return int(self.q.shape[0])

    @property
    def features(self) -> int:
        """Size of a value."""
        return int(self.segments[-1].v.shape[2])

    @property
    def queries(self) -> int:
        """Queries of a head."""
        return int(self.q.shape[1 if self.rows else 2])


@dataclass
class Block:
    """Some queries of one head.

    Attributes:
        call: of the kernel.
        head: of queries; a number, or a scalar of the device.
        start: the first query; a number, or a scalar of the device.
        count: queries.
        totals: sums of weighted values and of weights so far, ``(at most 128, tiles, d + 1)`` float32; None before.
        largest: the largest score of each query so far, ``(queries, 1)`` float32; None if it is not computed.
        bias: what is added to its scaled scores, ``(queries, 1)`` float32; None for 0.
        limits: first and last keys that queries see of each segment, as columns, where they were asked for.
        weights: where the sums of the weights are kept, ``(128, tiles)`` float32; None if nobody looks at them.
    """

    call: Call
    head: Any
    start: Any
    count: int
    totals: Any = None
    largest: Any = None
    bias: Any = None
    limits: dict[Segment, tuple[Any, Any]] = field(default_factory=dict)
    weights: Any = None
    _queries: Any = None

    @property
    def fixed(self) -> bool:
        """Whether it is known while compiling which queries they are."""
        return isinstance(self.start, int)

    @property
    def span(self) -> slice:
        """The queries of a block that is fixed."""
        return slice(self.start, self.start + self.count)

    @property
    def queries(self) -> Any:
        """``(d, queries)``, loaded when they are first asked for."""
        if self._queries is None:
            self._queries = load_columns(self.of(self.call.q, self.call.rows), self.call.rows)
        return self._queries

    @property
    def tiles(self) -> list[slice]:
        """Queries of each tile, counted from the first one of the block."""
        return st.spans(self.count, TILE)

    def of(self, tensor: Any, rows: bool) -> Any:
        """What a tensor ``(heads, queries, d)``, or ``(heads, d, queries)`` without `rows`, has for the block."""
        if self.fixed:
            part = tensor[self.head]
            return part[self.span, :] if rows else part[:, self.span]
        queries, width = tensor.shape[1:] if rows else tensor.shape[:0:-1]
        place = self.head * (queries * width) + self.start * (width if rows else 1)
        pattern = [[width, self.count], [1, width]] if rows else [[queries, width], [1, self.count]]
        return tensor.reshape((self.call.heads * queries * width, 1)).ap(pattern, scalar_offset=place)

    def visible(self, segment: Segment) -> slice:
        """Keys of a segment among which are all that queries of the block see."""
        return self.call.sight.keys(segment, self.span) if self.fixed else slice(0, segment.length)

    def position(self, ahead: Any) -> Any:
        """Positions of the queries and a number, ``(128, 1)`` float32, where they count from 0."""
        start = self.start + ahead
        return self.call.constants.positions(start) if isinstance(start, int) else counted(start)

    def sink(self) -> Any:
        """The score of the sink on all partitions, ``(128, 1)`` float32."""
        if self.fixed:
            return self.call.constants.sink(self.call.sink, self.head)
        return st.load_repeated(self.call.sink.select(0, self.head), TILE, nl.float32)


def common(a: slice, b: slice) -> slice:
    """What is in both slices."""
    start = max(a.start, b.start)
    return slice(start, max(start, min(a.stop, b.stop)))
