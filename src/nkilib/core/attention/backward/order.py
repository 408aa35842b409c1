"""The order in which gradients of attention are computed.

Keys are outside: the gradients of 512 of them stay in PSUM while queries pass by, and those of queries in SBUF. Heads
of queries that share keys come one after another. Longer sequences are cut on both sides; gradients of queries then are
summed in device memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.backward.operands import Keys, Matrix, Queries, Stack
from nkilib.core.attention.backward.pair import Pair, Rules
from nkilib.core.attention.backward.sums import Products, Sums
from nkilib.core.attention.cte.operands import CHUNK, TILE
from nkilib.core.attention.pipeline import Step, run

SECTION = 4096
"""Queries, and keys, that are in SBUF at once."""

STACKS = "q", "k", "v", "out", "gradient", "dq", "dk", "dv"
"""Tensors of `Gradients`."""

LAG = 3
"""Pairs that begin before the gradients of a pair's keys are summed, and again before those of its queries are."""


@dataclass(frozen=True)
class Gradients:
    """One call.

    Attributes:
        q, k, v, out, gradient: of the forward pass; `gradient` is that of `out`.
        dq, dk, dv: what is computed.
        rules: of the scores.
        bias: gives ``(128, tiles)`` float32 for some queries of a head: minus the logarithm of their sums.
        products: gives ``(128, tiles)`` float32 for some queries of a head: of the result and its gradient; None where
            they are computed from `out`, which is not asked for otherwise.
        begun: gradients to go on from, unscaled float32, for dq, dk and dv; None for 0.
        scaled: whether gradients of queries and keys are multiplied by the scale, or others will be added.
        sinks: what collects the gradients of the sinks, called with each head and its queries; None without sinks.
    """

    q: Stack
    k: Stack
    v: Stack
    out: Stack | None
    gradient: Stack
    dq: Stack
    dk: Stack
    dv: Stack
    rules: Rules
    bias: Callable[[int, slice], Any]
    sinks: Callable[[int, list[Queries]], None] | None = None
    products: Callable[[int, slice], Any] | None = None
    begun: tuple[Stack | None, Stack | None, Stack | None] = (None, None, None)
    scaled: bool = True

    @property
    def factor(self) -> float:
        """What gradients of queries and keys are multiplied by."""
        return self.rules.scale if self.scaled else 1.0

    @property
    def group(self) -> int:
        """Heads of queries for each head of keys."""
        return int(self.q.tensor.shape[0] // self.k.tensor.shape[0])

    def compute(self) -> None:
        """All heads of keys that are this core's."""
        run(self._steps(), LAG)

    def _steps(self) -> Iterator[Step]:
        ones = st.filled((TILE, 1), nl.float32, 1.0)
        sections = st.spans(self.k.places, SECTION)
        kept = Stack(nl.ndarray(self.q.tensor.shape, dtype=nl.float32, buffer=nl.private_hbm), self.q.rows)
        for head in st.share(range(self.k.tensor.shape[0])):
            for section in sections:
                before = self.begun[0] if section is sections[0] else kept
                after = self.dq if section is sections[-1] else kept
                yield from self._section(head, section, ones, (before, after))

    def _section(self, head: int, section: slice, ones: Any, kept: tuple[Stack | None, Stack]) -> Iterator[Step]:
        """Gradients of some keys of a head.

        Args:
            kept: where gradients of queries come from, None for 0, and where they go.
        """
        blocks = [_Block(self, head, span) for span in _within(section, CHUNK)]
        for index in range(head * self.group, (head + 1) * self.group):
            passed = []
            for place in st.spans(self.q.places, SECTION):
                queries = [self._queries(index, span, ones) for span in _within(place, CHUNK)]
                sums = [Sums(self.dq, index, some.span) for some in queries]
                if kept[0] is not None:
                    yield _last([partial(each.load, kept[0]) for each in sums])
                for block in blocks:
                    yield from block.pass_by(queries, sums)
                scale = self.factor if kept[1] is self.dq else 1.0
                yield _last([partial(each.store, kept[1], scale) for each in sums])
                passed += queries
            if self.sinks is not None and kept[0] is None:
                self.sinks(index, passed)
        yield _last([block.store for block in blocks])

    def _queries(self, index: int, span: slice, ones: Any) -> Queries:
        q, gradient = (Matrix(stack, index, span) for stack in (self.q, self.gradient))
        if self.products is not None:
            return Queries(q, gradient, None, self.bias(index, span), self.products(index, span))
        assert self.out is not None
        count = st.ceil_div(st.size(span), TILE)
        ragged = st.size(span) % TILE > 0
        products = st.filled((TILE, count), nl.float32, 0.0) if ragged else st.sbuf((TILE, count), nl.float32)
        queries = Queries(q, gradient, Matrix(self.out, index, span), self.bias(index, span), products)
        queries.compute(ones)
        return queries


@dataclass
class _Block:
    """At most 512 keys, and their gradients."""

    call: Gradients
    head: int
    span: slice

    def __post_init__(self) -> None:
        call = self.call
        self.keys = Keys(Matrix(call.k, self.head, self.span), Matrix(call.v, self.head, self.span))
        self.dk, self.dv = Sums(call.dk, self.head, self.span), Sums(call.dv, self.head, self.span)
        for sums, begun in zip((self.dk, self.dv), call.begun[1:], strict=True):
            if begun is not None:
                sums.load(begun)

    def pass_by(self, queries: list[Queries], sums: list[Sums]) -> Iterator[Step]:
        """Steps with some queries of one head."""
        rules = self.call.rules
        pairs = [
            (some, place, dq, rules.visible(_span(some.span, tile), self.span))
            for some, dq in zip(queries, sums, strict=True)
            for place, tile in enumerate(st.spans(st.size(some.span), TILE))
        ]
        pairs = [pair for pair in pairs if st.size(pair[3])]
        touched = sorted(
            {tile for *_, seen in pairs for tile in range(seen.start // TILE, st.ceil_div(seen.stop, TILE))}
        )
        dk, dv = Products(self.dk, touched), Products(self.dv, touched)
        for some, place, dq, seen in pairs:
            yield Pair(rules, some, place, self.keys, seen, dq, dk, dv).step()
        if pairs:
            yield _last([dk.finish, dv.finish])

    def store(self) -> None:
        """Write the gradients."""
        self.dk.store(self.call.dk, self.call.factor)
        self.dv.store(self.call.dv)


def _within(section: slice, step: int) -> list[slice]:
    """Pieces of a slice."""
    return [_span(section, part) for part in st.spans(st.size(section), step)]


def _span(whole: slice, part: slice) -> slice:
    """A part that counts from the first place of a slice, as the whole counts."""
    return slice(whole.start + part.start, whole.start + part.stop)


def _last(stages: list[Callable[[], None]]) -> Step:
    """What is done after the last stage of the steps before."""

    def finish() -> None:
        for stage in stages:
            stage()

    return Step((_nothing, _nothing, finish))


def _nothing() -> None:
    """The first stages of a step that waits for others."""
