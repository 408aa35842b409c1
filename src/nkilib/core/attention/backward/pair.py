"""Gradients that one tile of queries and at most 512 keys give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.backward.operands import Keys, Queries
from nkilib.core.attention.backward.sums import Products, Sums
from nkilib.core.attention.cte.operands import PRODUCTS, TILE
from nkilib.core.attention.pipeline import Step


@dataclass(frozen=True)
class Rules:
    """What all pairs of a call have in common.

    Attributes:
        scale: of the scores.
        causal: a query sees no keys after its own position.
        window: keys that it sees at most; 0 for all.
        first, stop: ``(heads or 1, queries)`` in device memory: the first key that a query sees, and the one after the
            last; None without such limits.
        shift: added to positions of queries where `causal` is asked: 0, or 0 or -1 as a scalar of the device.
    """

    scale: float
    causal: bool
    window: int
    first: Any = None
    stop: Any = None
    shift: Any = 0

    def visible(self, queries: slice, keys: slice) -> slice:
        """Keys among which are all that some queries see, in whole tiles, counted from the first one of `keys`."""
        start, stop = keys.start, keys.stop
        if self.causal:
            stop = min(stop, st.ceil_div(queries.stop, TILE) * TILE)
        if self.window:
            start = max(start, (queries.start - self.window + 1) // TILE * TILE)
        return slice(min(start, stop) - keys.start, max(stop - keys.start, 0)) if start < stop else slice(0, 0)

    def hide(self, weights: Any, queries: slice, keys: slice) -> None:
        """Make weights ``(queries, keys)`` 0 where the query does not see the key, as far as is known; in place."""
        count = st.size(keys)
        if self.causal and keys.stop - 1 > queries.start:
            skip = max(0, queries.start - keys.start) // TILE * TILE
            _keep(weights[:, skip:count], -1, 1, self.shift + (queries.start - keys.start - skip))
        if self.window and queries.stop - 1 >= keys.start + self.window:
            part = min(count, st.ceil_div(queries.stop - self.window - keys.start, TILE) * TILE)
            _keep(weights[:, 0:part], 1, -1, keys.start - queries.start + self.window - 1)


def _keep(weights: Any, column: int, partition: int, offset: Any) -> None:
    """Keep weights where the sum of an offset and steps for each row and column is not negative."""
    nisa.affine_select(
        dst=weights,
        pattern=[[column, weights.shape[1]]],
        channel_multiplier=partition,
        offset=offset,
        on_true_tile=weights,
        on_false_value=0.0,
        cmp_op=nl.greater_equal,
    )


@dataclass
class Pair:
    """A tile of queries and the keys of a block that it sees.

    Attributes:
        rules: of the call.
        queries, place: the tile of queries, by its number among those that are loaded together.
        keys, seen: the keys, counted from the first one of the block.
        dq: of the queries.
        dk, dv: of the keys.
        weights: of the keys, ``(queries, keys)``.
        change: gradient of the scores, before their scale, ``(queries, keys)``.
        turned: the same with keys on partitions, tile by tile.
    """

    rules: Rules
    queries: Queries
    place: int
    keys: Keys
    seen: slice
    dq: Sums
    dk: Products
    dv: Products
    weights: Any = None
    change: Any = None
    turned: Any = None

    def step(self) -> Step:
        """Weights and the change of the scores, then gradients of keys and values, then those of queries."""
        return Step((self._change, self._keys, self._queries))

    @property
    def _columns(self) -> slice:
        return st.spans(st.size(self.queries.span), TILE)[self.place]

    @property
    def _span(self) -> slice:
        start = self.queries.span.start
        return slice(start + self._columns.start, start + self._columns.stop)

    def _change(self) -> None:
        rows, shape = st.size(self._columns), (st.size(self._columns), st.size(self.seen))
        scores, above = st.psum(shape), st.psum(shape)
        q, gradient = self.queries.q.columns, self.queries.gradient.columns
        nisa.nc_matmul(dst=scores, stationary=q[:, self._columns], moving=self.keys.k.columns[:, self.seen])
        nisa.nc_matmul(dst=above, stationary=gradient[:, self._columns], moving=self.keys.v.columns[:, self.seen])
        self.weights, self.change = st.sbuf(shape, PRODUCTS), st.sbuf(shape, PRODUCTS)
        bias = self.queries.bias[0:rows, self.place : self.place + 1]
        nisa.activation(dst=self.weights, op=nl.exp, data=self._limited(scores), scale=self.rules.scale, bias=bias)
        start = self.keys.span.start
        self.rules.hide(self.weights, self._span, slice(start + self.seen.start, start + self.seen.stop))
        nisa.scalar_tensor_tensor(
            dst=self.change,
            data=above,
            op0=nl.subtract,
            operand0=self.queries.products[0:rows, self.place : self.place + 1],
            op1=nl.multiply,
            operand1=self.weights,
        )

    def _limited(self, scores: Any) -> Any:
        """The lowest number in the place of scores that tensors of the call hide."""
        if self.rules.first is None:
            return scores
        seen = st.sbuf(scores.shape, nl.float32)
        head = self.queries.q.head if self.rules.first.shape[0] > 1 else 0
        nisa.range_select(
            dst=seen,
            on_true_tile=scores,
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=st.load(self.rules.first[head, self._span], nl.float32),
            bound1=st.load(self.rules.stop[head, self._span], nl.float32),
            range_start=self.keys.span.start + self.seen.start,
        )
        return seen

    def _keys(self) -> None:
        first = self.seen.start // TILE
        self.dv.add(self.weights, first, self.queries.gradient.tiles[self.place])
        self.dk.add(self.change, first, self.queries.q.tiles[self.place])
        rows, parts = st.size(self._columns), st.spans(st.size(self.seen), TILE)
        moved = st.psum((TILE, len(parts) * rows), PRODUCTS)
        self.turned = st.sbuf(moved.shape, PRODUCTS)
        for place, part in enumerate(parts):
            here = moved[0 : st.size(part), place * rows : (place + 1) * rows]
            nisa.nc_transpose(dst=here, data=self.change[:, part], engine=nisa.engine.tensor)
        whole = st.size(self.seen) // TILE * rows
        engine = nisa.engine.scalar
        if whole:
            nisa.tensor_copy(dst=self.turned[:, 0:whole], src=moved[:, 0:whole], engine=engine)
        if whole < moved.shape[1]:
            rest = slice(0, st.size(parts[-1]))
            nisa.tensor_copy(dst=self.turned[rest, whole:], src=moved[rest, whole:], engine=engine)

    def _queries(self) -> None:
        rows, first = st.size(self._columns), self.seen.start // TILE
        width = self.dq.stack.width
        total = st.psum((rows, width) if self.dq.stack.rows else (width, rows))
        for place, part in enumerate(st.spans(st.size(self.seen), TILE)):
            change = self.turned[0 : st.size(part), place * rows : (place + 1) * rows]
            keys = self.keys.k.tiles[first + place]
            stationary, moving = (change, keys) if self.dq.stack.rows else (keys, change)
            nisa.nc_matmul(dst=total, stationary=stationary, moving=moving, accumulate=place > 0)
        self.dq.add(self.place, total)
