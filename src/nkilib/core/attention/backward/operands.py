"""Queries, keys, values and gradients of attention in SBUF, with the head's dimension on partitions and beside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.cte.operands import FIXED, PRODUCTS, TILE, converted, load_columns, load_turned


@dataclass(frozen=True, eq=False)
class Stack:
    """A tensor of all heads in device memory.

    Attributes:
        tensor: ``(heads, places, d)`` if `rows`, else ``(heads, d, places)``.
        rows: whether a place is a row.
    """

    tensor: Any
    rows: bool

    @property
    def places(self) -> int:
        """Queries or keys."""
        return int(self.tensor.shape[1 if self.rows else 2])

    @property
    def width(self) -> int:
        """Size of the head's dimension."""
        return int(self.tensor.shape[2 if self.rows else 1])

    def of(self, head: int, span: slice) -> Any:
        """Some places of a head, ``(places, d)`` or ``(d, places)``."""
        return self.tensor[head, span, :] if self.rows else self.tensor[head, :, span]

    def columns(self, head: int, span: slice) -> Any:
        """Some places as ``(d, places)`` in SBUF."""
        return load_columns(self.of(head, span), self.rows)

    def unrounded(self, head: int, span: slice) -> Any:
        """The same in the tensor's own dtype."""
        source = self.of(head, span)
        return load_turned(source) if self.rows else st.load(source)

    def tiles(self, head: int, span: slice) -> list[Any]:
        """Some places as tiles ``(at most 128 places, d)`` in SBUF."""
        source, found = self.of(head, span), []
        for part in st.spans(st.size(span), TILE):
            if self.rows:
                tile = st.sbuf((st.size(part), self.width), PRODUCTS)
                nisa.dma_copy(dst=tile, src=source[part, :], dge_mode=FIXED)
            else:
                tile = converted(load_turned(source[:, part]))
            found.append(tile)
        return found


@dataclass
class Matrix:
    """At most 512 places of a stack in SBUF, both ways, loaded when they are first asked for.

    Attributes:
        stack, head, span: which.
    """

    stack: Stack
    head: int
    span: slice

    @cached_property
    def columns(self) -> Any:
        """``(d, places)``."""
        return self.stack.columns(self.head, self.span)

    @cached_property
    def tiles(self) -> list[Any]:
        """``(at most 128 places, d)`` each."""
        return self.stack.tiles(self.head, self.span)


@dataclass
class Keys:
    """At most 512 keys.

    Attributes:
        k, v: of them.
    """

    k: Matrix
    v: Matrix

    @property
    def span(self) -> slice:
        """Which keys."""
        return self.k.span


@dataclass
class Queries:
    """At most 512 queries, and what the forward pass left of them.

    Attributes:
        q, gradient, out: of them.
        bias: ``(128, tiles)`` float32: minus the logarithm of the sum of the exponentials of a query's scores.
        products: ``(128, tiles)`` float32: of the result and its gradient.
    """

    q: Matrix
    gradient: Matrix
    out: Matrix | None
    bias: Any
    products: Any

    @property
    def span(self) -> slice:
        """Which queries."""
        return self.q.span

    def compute(self, ones: Any) -> None:
        """The products, summed over the head's dimension by the Tensor engine.

        Args:
            ones: ``(128, 1)`` float32.
        """
        assert self.out is not None
        gradient, out = self.gradient.columns, self.out.stack.unrounded(self.out.head, self.out.span)
        width, count = gradient.shape
        both = st.sbuf((width, count), nl.float32)
        nisa.tensor_tensor(dst=both, data1=gradient, data2=out, op=nl.multiply, engine=nisa.engine.gpsimd)
        for place, part in enumerate(st.spans(count, TILE)):
            total = st.psum((st.size(part), 1))
            nisa.nc_matmul(dst=total, stationary=both[:, part], moving=ones[0:width, :])
            nisa.tensor_copy(dst=self.products[0 : st.size(part), place : place + 1], src=total)
