"""Sums of gradients of attention: in PSUM while one operand stays, in SBUF beyond, and their way to device memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.backward.operands import Stack
from nkilib.core.attention.cte.operands import FIXED, TILE


@dataclass
class Sums:
    """Gradients of at most 512 places of a stack, in float32.

    They are ``(d, places)`` where places are columns of the stack, else ``(128, tiles, d)``.

    Attributes:
        stack, head, span: which.
        total: in SBUF; None before the first sum.
        begun: tiles of 128 places that `total` has.
    """

    stack: Stack
    head: int
    span: slice
    total: Any = None
    begun: set[int] = field(default_factory=set)

    @property
    def tiles(self) -> list[slice]:
        """Places of each tile, counted from the first one."""
        return st.spans(st.size(self.span), TILE)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of `total`."""
        width = self.stack.width
        return (TILE, len(self.tiles), width) if self.stack.rows else (width, st.size(self.span))

    def part(self, whole: Any, place: int) -> Any:
        """One tile's of a tensor of `shape`."""
        tile = self.tiles[place]
        return whole[0 : st.size(tile), place, :] if self.stack.rows else whole[:, tile]

    def add(self, place: int, new: Any) -> None:
        """Add to one tile what is in PSUM."""
        self._allocate()
        here = self.part(self.total, place)
        if place in self.begun:
            nisa.tensor_tensor(dst=here, data1=here, data2=new, op=nl.add)
        else:
            nisa.tensor_copy(dst=here, src=new)
        self.begun.add(place)

    def add_all(self, new: Any) -> None:
        """Add to all tiles what is in PSUM."""
        if self.begun:
            nisa.tensor_tensor(dst=self.total, data1=self.total, data2=new, op=nl.add)
            return
        self._allocate()
        nisa.tensor_copy(dst=self.total, src=new)
        self.begun.update(range(len(self.tiles)))

    def store(self, target: Stack, scale: float = 1.0) -> None:
        """Scale, round once and write to the same places of another stack; tiles without a sum are 0."""
        self._allocate()
        for place in range(len(self.tiles)):
            if place not in self.begun:
                nisa.memset(dst=self.part(self.total, place), value=0.0)
        made, out = st.sbuf(self.shape, target.tensor.dtype), target.of(self.head, self.span)
        if not self.stack.rows:
            nisa.activation(dst=made, op=nl.copy, data=self.total, scale=scale)
            nisa.dma_copy(dst=out, src=made, dge_mode=FIXED)
            return
        for place, tile in enumerate(self.tiles):
            here = self.part(made, place)
            nisa.activation(dst=here, op=nl.copy, data=self.part(self.total, place), scale=scale)
            nisa.dma_copy(dst=out[tile, :], src=here, dge_mode=FIXED)

    def load(self, source: Stack) -> None:
        """Go on from what was stored, in float32."""
        self._allocate()
        stored = source.of(self.head, self.span)
        if not self.stack.rows:
            nisa.dma_copy(dst=self.total, src=stored, dge_mode=FIXED)
        for place, tile in enumerate(self.tiles if self.stack.rows else ()):
            nisa.dma_copy(dst=self.part(self.total, place), src=stored[tile, :], dge_mode=FIXED)
        self.begun.update(range(len(self.tiles)))

    def _allocate(self) -> None:
        if self.total is None:
            self.total = st.sbuf(self.shape, nl.float32)


@dataclass
class Products:
    """A sum of products over queries in PSUM, for the keys of one `Sums`.

    Attributes:
        sums: where it goes.
        touched: tiles of keys that get a product.
        bank: of PSUM.
        begun: tiles that have one.
    """

    sums: Sums
    touched: Sequence[int]
    bank: Any = None
    begun: set[int] = field(default_factory=set)

    def add(self, weights: Any, first: int, rows: Any) -> None:
        """Add ``weights.T @ rows``.

        Args:
            weights: ``(queries, keys)``, tiles of keys from `first` on.
            rows: ``(queries, d)``.
        """
        sums = self.sums
        if self.bank is None:
            self.bank = st.psum(sums.shape)
            if len(self.touched) < len(sums.tiles) or st.size(sums.span) % TILE:
                nisa.memset(dst=self.bank, value=0.0)
        for place in range(first, first + st.ceil_div(weights.shape[1], TILE)):
            start = (place - first) * TILE
            tile = weights[:, start : start + st.size(sums.tiles[place])]
            into = sums.part(self.bank, place)
            stationary, moving = (tile, rows) if sums.stack.rows else (rows, tile)
            nisa.nc_matmul(dst=into, stationary=stationary, moving=moving, accumulate=place in self.begun)
            self.begun.add(place)

    def finish(self) -> None:
        """Add what is in PSUM to the sums."""
        if self.bank is not None:
            self.sums.add_all(self.bank)
