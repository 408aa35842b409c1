"""Gradients of the sinks of attention."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st
from nkilib.core.attention.backward.operands import Queries
from nkilib.core.attention.cte.operands import TILE


@dataclass
class SinkGradients:
    """What sinks change: ``-sum(exp(sink - lse) * products)`` over all queries of a head.

    Attributes:
        sinks: ``(heads, sinks)`` in device memory.
        result: their gradients, like them.
    """

    sinks: Any
    result: Any

    def add(self, head: int, queries: list[Queries]) -> None:
        """Compute those of one head, from all of its queries."""
        for number in range(self.sinks.shape[1]):
            sink = st.load_repeated(self.sinks[head, number : number + 1], TILE, nl.float32)
            parts = st.sbuf((TILE, len(queries)), nl.float32)
            for place, some in enumerate(queries):
                _one(sink, some, parts[:, place : place + 1])
            self._store(head, number, parts)

    def _store(self, head: int, number: int, parts: Any) -> None:
        """Sum over chunks of queries and partitions."""
        rows, made = st.psum((1, parts.shape[1])), st.sbuf((1, 1), self.result.dtype)
        total = st.sbuf((1, 1), nl.float32)
        minus = st.filled((TILE, 1), nl.float32, -1.0)
        nisa.nc_matmul(dst=rows, stationary=minus, moving=parts)
        nisa.tensor_reduce(dst=total, op=nl.add, data=rows, axis=(1,))
        nisa.tensor_copy(dst=made, src=total)
        st.store(self.result[head, number : number + 1], made)


def _one(sink: Any, queries: Queries, into: Any) -> None:
    """The sum over the queries of a chunk on each partition."""
    shape = queries.bias.shape
    weights, product = st.sbuf(shape, nl.float32), st.sbuf(shape, nl.float32)
    nisa.activation(dst=weights, op=nl.exp, data=queries.bias, bias=sink)
    nisa.tensor_tensor(dst=product, data1=weights, data2=queries.products, op=nl.multiply)
    nisa.tensor_reduce(dst=into, op=nl.add, data=product, axis=(1,))


def flat(sinks: Any) -> Any:
    """Sinks ``(batch, heads)`` or ``(batch, heads, sinks)`` as ``(heads, sinks)``."""
    each = sinks.shape[2] if len(sinks.shape) > 2 else 1
    return sinks.reshape((prod(sinks.shape) // each, each))
