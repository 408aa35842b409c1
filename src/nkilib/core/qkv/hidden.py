"""Hidden states on their way into the projection: residuals, normalisation, and their shape as stacks.

Many tokens lie in rows: statistics are taken there, then the Tensor engine transposes them. Few tokens are spread over
all partitions as they are loaded, a run of each on every partition, so that nothing is transposed, and a product with
ones sums what the partitions have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.mlp.tokens import Norm
from nkilib.core.utils.common_types import NormType
from nkilib.stacks import PIECES, Slab, Stack, turned
from nkilib.streaming import copy, filled, load, psum, sbuf, size, spans, store

FEW = 16
"""Tokens up to which spreading is worth it: each takes a transfer's descriptor for every partition."""

_TOKENS = 256
"""Tokens of a stack: as few as begin soon, of which the Tensor engine makes two tiles of rows."""


@dataclass(frozen=True)
class Hidden:
    """Hidden states in rows.

    Attributes:
        rows: ``(tokens, H)`` in HBM.
        residuals: of the same shape, added to it.
        added: of the same shape, where the sum goes; or None.
        norm: of the sum.
        dtype: of the stacks.
    """

    rows: Any
    residuals: tuple[Any, ...]
    added: Any
    norm: Norm
    dtype: Any

    def stacks(self, block: slice) -> Iterator[Stack]:
        """Some tokens as stacks (H, 256 tokens), each made when it is asked for."""
        width = self.rows.shape[1]
        for part in spans(size(block), _TOKENS):
            some = slice(block.start + part.start, block.start + part.stop)
            yield turned(self._tiles(some), size(some), width, self.dtype, self.norm.place, spread=False)

    def _tiles(self, block: slice) -> Iterator[Any]:
        for part in spans(size(block), nl.tile_size.pmax):
            here = slice(block.start + part.start, block.start + part.stop)
            tile = load(self.rows[here])
            for residual in self.residuals:
                nisa.tensor_tensor(dst=tile, data1=tile, data2=load(residual[here]), op=nl.add)
            if self.added is not None:
                store(self.added[here], tile)
            yield self.norm.standard(tile, self.rows.dtype)


@dataclass(frozen=True)
class FewHidden:
    """Hidden states of up to 128 tokens, spread over the partitions: partition p has H / 128 of each that follow.

    Attributes:
        tile: ``(128, tokens, H / 128)`` in SBUF.
        residuals: ``(tokens, H)`` in HBM, added to it.
        added: of the same shape, where the sum goes; or None.
        kind, gamma, eps, width: of the norm: none, or an RMS norm with weights ``(1, H)`` in HBM or None, of `width`
            features.
        dtype: of the stack.
    """

    tile: Any
    residuals: tuple[Any, ...]
    added: Any
    kind: NormType
    gamma: Any
    eps: float
    width: int
    dtype: Any

    def stack(self) -> Stack:
        """All tokens as one stack (H, tokens)."""
        pmax, tokens, pieces = self.tile.shape
        values = self.tile
        for residual in self.residuals:
            values = _combined(values, spread(residual), nl.add)
        if self.added is not None:
            rounded = sbuf(values.shape, self.tile.dtype)
            nisa.tensor_copy(dst=rounded, src=values)
            copy(_spread(self.added), rounded)
        if self.kind is not NormType.NO_NORM:
            values = _combined(values, self._shrink(values).expand_dim(2).broadcast(2, pieces), nl.multiply)
        made = sbuf((pmax, pieces, tokens), self.dtype)
        target = made.permute((0, 2, 1))
        if self.gamma is None:
            nisa.tensor_copy(dst=target, src=values)
        else:
            weights = spread(self.gamma).broadcast(1, tokens)
            nisa.tensor_tensor(dst=target, data1=values, data2=weights, op=nl.multiply)
        return [Slab(made[:, group], group.start, pieces) for group in spans(pieces, PIECES)]

    def _shrink(self, values: Any) -> Any:
        """``1 / sqrt(mean square + eps)`` of each token, on every partition."""
        pmax, tokens, _ = values.shape
        sums, total, result = sbuf((pmax, tokens), nl.float32), psum((pmax, tokens)), sbuf((pmax, tokens), nl.float32)
        nisa.tensor_reduce(dst=sums, op=nl.add, data=_combined(values, values, nl.multiply), axis=(2,))
        nisa.nc_matmul(dst=total, stationary=filled((pmax, pmax), nl.float32, 1.0), moving=sums)
        bias = filled((pmax, 1), nl.float32, self.eps)
        nisa.activation(dst=result, op=nl.rsqrt, data=total, scale=1.0 / self.width, bias=bias)
        return result


def _combined(values: Any, operand: Any, op: Any) -> Any:
    result = sbuf(values.shape, nl.float32)
    nisa.tensor_tensor(dst=result, data1=values, data2=operand, op=op)
    return result


def spread(rows: Any) -> Any:
    """Rows ``(tokens, H)`` of HBM as ``(128, tokens, H / 128)`` in SBUF."""
    return load(_spread(rows))


def _spread(rows: Any) -> Any:
    tokens, width = rows.shape
    pmax = nl.tile_size.pmax
    return rows.reshape((tokens, pmax, width // pmax)).permute((1, 0, 2))
