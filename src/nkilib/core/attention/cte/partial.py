"""Results of attention over some of the keys, and how those over others are added.

A partial result has weighted values that are not divided by the sums of their weights, and what was added to the scaled
scores before their exponentials. Two of them are brought to what was added less of, and then summed, as in flash
attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.again import attend
from nkilib.core.attention.cte.block import Block, Call
from nkilib.core.attention.cte.operands import TILE
from nkilib.core.attention.cte.work import Share

_NONE = 1.0e30
"""What is added to scores of keys that nobody sees, negated."""

_NO_KEY = -1.0e20
"""The logarithm of the sum of a query that sees no key is less."""


@dataclass(frozen=True)
class Partial:
    """Results over some keys, in device memory.

    Attributes:
        share: what this core computed.
        out: ``(heads, queries, d)`` float32, not divided.
        added: what was added to the scaled scores, ``(heads, 128, tiles)`` float32.
        sums: of the weights, ``(heads, 128, tiles)`` float32.
    """

    share: Share
    out: Any
    added: Any
    sums: Any

    def blocks(self) -> Iterator[Block]:
        """Those whose results are this core's."""
        for _, blocks in self.share.blocks():
            yield from blocks

    def of(self, block: Block) -> Sums:
        """Those of a block."""
        out = st.load(_rows(self.out, block))
        return Sums(out, *(st.load(_columns(each, block)) for each in (self.added, self.sums)))

    def put(self, block: Block, sums: Sums) -> None:
        """Others of a block instead."""
        st.store(_rows(self.out, block), sums.out)
        for target, tile in ((self.added, sums.added), (self.sums, sums.weights)):
            st.store(_columns(target, block), tile)


def computed(call: Call) -> Partial:
    """Results over the keys of a call, which says how; where they go is not asked."""
    heads, queries, tiles = call.heads, call.queries, st.ceil_div(call.queries, TILE)
    shapes = (heads, queries, call.features), (heads, TILE, tiles), (heads, TILE, tiles)
    out, added, sums = (nl.ndarray(shape, dtype=nl.float32, buffer=nl.private_hbm) for shape in shapes)
    share = attend(replace(call, out=out, neg_max=added, sums=sums, columns=False, normalized=False))
    return Partial(share, out, added, sums)


@dataclass(frozen=True)
class Sums:
    """Results over some keys of the queries of a block, in SBUF, float32.

    Attributes:
        out: ``(at most 128, tiles, d)``, not divided.
        added, weights: as `Partial.added` and `Partial.sums`, ``(at most 128, tiles)``.
    """

    out: Any
    added: Any
    weights: Any

    def hidden(self, none: Any) -> Sums:
        """Results that count for nothing if a number is 1.

        Args:
            none: the number, ``(128, 1)`` float32, else 0.
        """
        rows, more, added = self.added.shape[0], st.sbuf(none.shape, nl.float32), st.sbuf(self.added.shape, nl.float32)
        nisa.tensor_scalar(dst=more, data=none, op0=nl.multiply, operand0=_NONE)
        nisa.tensor_scalar(dst=added, data=self.added, op0=nl.add, operand0=more[0:rows, :])
        return Sums(self.out, added, self.weights)

    def plus(self, other: Sums) -> Sums:
        """Results over the keys of both."""
        added = st.sbuf(self.added.shape, nl.float32)
        nisa.tensor_tensor(dst=added, data1=self.added, data2=other.added, op=nl.minimum)
        mine, theirs = (_factors(added, each.added) for each in (self, other))
        out = st.sbuf(self.out.shape, nl.float32)
        every = theirs.expand_dim(2).broadcast(2, out.shape[2])
        nisa.tensor_tensor(dst=out, data1=other.out, data2=every, op=nl.multiply, engine=nisa.engine.gpsimd)
        for place in range(added.shape[1]):
            _add(out[:, place, :], self.out[:, place, :], mine[:, place : place + 1])
        weights, scaled = st.sbuf(added.shape, nl.float32), st.sbuf(added.shape, nl.float32)
        nisa.tensor_tensor(dst=scaled, data1=other.weights, data2=theirs, op=nl.multiply)
        nisa.tensor_tensor(dst=weights, data1=self.weights, data2=mine, op=nl.multiply)
        nisa.tensor_tensor(dst=weights, data1=weights, data2=scaled, op=nl.add)
        return Sums(out, added, weights)

    def divided(self, dtype: Any) -> Any:
        """Results, ``(at most 128, tiles, d)``."""
        inverse, made = st.sbuf(self.weights.shape, nl.float32), st.sbuf(self.out.shape, dtype)
        nisa.reciprocal(dst=inverse, data=self.weights)
        for place in range(made.shape[1]):
            factors = inverse[:, place : place + 1]
            nisa.tensor_scalar(dst=made[:, place, :], data=self.out[:, place, :], op0=nl.multiply, operand0=factors)
        return made

    def logarithms(self) -> Any:
        """Logarithms of the sums of the exponentials of the scaled scores, 0 for queries that see no key."""
        shape = self.weights.shape
        logarithm, result, seen = (st.sbuf(shape, nl.float32) for _ in range(3))
        nisa.activation(dst=logarithm, op=nl.log, data=self.weights)
        nisa.tensor_tensor(dst=result, data1=logarithm, data2=self.added, op=nl.subtract)
        nisa.scalar_tensor_tensor(
            dst=seen, data=result, op0=nl.greater, operand0=_NO_KEY, op1=nl.multiply, operand1=result
        )
        return seen


def _factors(after: Any, before: Any) -> Any:
    """What weights are multiplied by when something else is added to their scores."""
    change, factors = st.sbuf(after.shape, nl.float32), st.sbuf(after.shape, nl.float32)
    nisa.tensor_tensor(dst=change, data1=after, data2=before, op=nl.subtract)
    nisa.activation(dst=factors, op=nl.exp, data=change)
    return factors


def _add(into: Any, tile: Any, factors: Any) -> None:
    """``into = tile * factors + into``."""
    nisa.scalar_tensor_tensor(dst=into, data=tile, op0=nl.multiply, operand0=factors, op1=nl.add, operand1=into)


def store(block: Block, sums: Sums, out: Any, logarithms: Any) -> None:
    """Results of a block into device memory.

    Args:
        out: ``(heads, queries, d)``.
        logarithms: ``(heads, 128, tiles)``, 0 where there is no query; or None.
    """
    st.store(_rows(out, block), sums.divided(out.dtype))
    if logarithms is not None:
        whole = st.filled((TILE, len(block.tiles)), logarithms.dtype, 0.0)
        nisa.tensor_copy(dst=whole[0 : min(block.count, TILE), :], src=sums.logarithms())
        tile = block.start // TILE
        st.store(logarithms[block.head, :, tile : tile + len(block.tiles)], whole)


def _rows(out: Any, block: Block) -> Any:
    """Those of a block as ``(at most 128, tiles, d)``: whole tiles, or a single one."""
    rows = min(block.count, TILE)
    tiles = out[block.head, block.span, :].reshape((block.count // rows, rows, out.shape[2]))
    return tiles.permute((1, 0, 2))


def _columns(tensor: Any, block: Block) -> Any:
    tile = block.start // TILE
    return tensor[block.head, 0 : min(block.count, TILE), tile : tile + len(block.tiles)]
