"""Few tokens on their way into a product, each spread over all partitions, so that nothing has to be turned.

A partition holds ``features / 128`` features of a token that follow each other: a run of HBM for DMA, and for the first
product a tile of every so many rows of the weights. Sums over the features of a token are taken on each partition by
Vector, and over the partitions by a product with ones, which leaves them on every partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.mlp.weight_products import Weights, by_partitions
from nkilib.core.utils.common_types import NormType
from nkilib.streaming import Panel, filled, psum, sbuf, store

MOST = 32
"""Tokens that are worth it: each takes a descriptor for every partition."""

LEAST_RUN = 8
"""Features of a partition that are worth it."""


def spread(matrix: Any, parts: int = 1) -> Any:
    """A matrix ``(tokens, features)`` of HBM as a view ``(128, tokens, features / 128)``, or with parts one by one."""
    tokens, features = matrix.shape
    pmax = nl.tile_size.pmax
    if parts == 1:
        return matrix.reshape((tokens, pmax, features // pmax)).permute((1, 0, 2))
    return matrix.reshape((tokens, parts, pmax, features // parts // pmax)).permute((2, 0, 1, 3))


@dataclass(frozen=True)
class SpreadTokens:
    """All tokens of a call, as `spread` has them.

    Attributes:
        hidden: ``(128, tokens, tiles)`` in SBUF.
        residual: ``(tokens, features)`` in HBM, added to it; or None.
        stored: of the same shape, where the sum goes; or None.
        norm: of the sum, with `weights` and `bias` ``(1, features)`` in HBM; either may be None.
        eps: of the norm.
        dtype: of the panel.
        parts: blocks of features that are spread one by one.
    """

    hidden: Any
    residual: Any
    stored: Any
    norm: NormType
    weights: Any
    bias: Any
    eps: float
    dtype: Any
    parts: int = 1

    def order(self, matrix: Any) -> Weights:
        """Weights in the order of the panel's tiles."""
        return by_partitions(matrix, self.parts)

    def panel(self, rows: slice) -> Panel:
        """All tokens."""
        pmax, tokens, tiles = self.hidden.shape
        values, steps = self.hidden, []
        if self.residual is not None:
            values = sbuf(values.shape, values.dtype)
            nisa.tensor_tensor(dst=values, data1=self.hidden, data2=self._loaded(self.residual), op=nl.add)
            if self.stored is not None:
                store(spread(self.stored, self.parts), values)
        if self.norm is NormType.LAYER_NORM:
            values = _combined(values, self._mean(values).expand_dim(2).broadcast(2, tiles), nl.subtract)
        if self.norm is not NormType.NO_NORM:
            mean = self._mean(_combined(values, values, nl.multiply))
            shrink, bias = sbuf(mean.shape, nl.float32), filled((pmax, 1), nl.float32, self.eps)
            nisa.activation(dst=shrink, op=nl.rsqrt, data=mean, bias=bias)
            steps.append((shrink.expand_dim(2).broadcast(2, tiles), nl.multiply))
        for vector, op in ((self.weights, nl.multiply), (self.bias, nl.add)):
            if vector is not None:
                row = self._loaded(vector)[:, 0, :].expand_dim(1).broadcast(1, tokens)
                steps.append((row, op))
        if steps or values.dtype != self.dtype:
            values = self._finished(values, steps)
        return [values[:, :, tile] for tile in range(tiles)]

    def _finished(self, values: Any, steps: list[tuple[Any, Any]]) -> Any:
        """What the steps make of the values, the tokens of a tile side by side."""
        pmax, tokens, tiles = values.shape
        result = sbuf((pmax, tiles, tokens), self.dtype).permute((0, 2, 1))
        for operand, op in steps[:-1]:
            values = _combined(values, operand, op)
        if steps:
            nisa.tensor_tensor(dst=result, data1=values, data2=steps[-1][0], op=steps[-1][1])
        else:
            nisa.tensor_copy(dst=result, src=values)
        return result

    def _loaded(self, matrix: Any) -> Any:
        return loaded(matrix, self.parts)

    def _mean(self, values: Any) -> Any:
        """The mean of the features of each token, on every partition."""
        pmax, tokens, tiles = values.shape
        sums, total = sbuf((pmax, tokens), nl.float32), psum((pmax, tokens))
        nisa.tensor_reduce(dst=sums, op=nl.add, data=values, axis=(2,))
        nisa.nc_matmul(dst=total, stationary=filled((pmax, pmax), nl.float32, 1.0), moving=sums)
        mean = sbuf((pmax, tokens), nl.float32)
        nisa.tensor_scalar(dst=mean, data=total, op0=nl.multiply, operand0=1.0 / (pmax * tiles))
        return mean


def loaded(matrix: Any, parts: int = 1) -> Any:
    """A matrix ``(tokens, features)`` of HBM as ``(128, tokens, features / 128)`` in SBUF."""
    pmax, (tokens, features) = nl.tile_size.pmax, matrix.shape
    tile = sbuf((pmax, tokens, features // pmax), matrix.dtype)
    nisa.dma_copy(dst=tile, src=spread(matrix, parts), dge_mode=nisa.dge_mode.none)  # generating them takes longer
    return tile


def _combined(values: Any, operand: Any, op: Any) -> Any:
    result = sbuf(values.shape, nl.float32)
    nisa.tensor_tensor(dst=result, data1=values, data2=operand, op=op)
    return result
