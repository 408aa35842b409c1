"""Heads of queries, keys and values of new tokens: turned onto partitions, normalised, rotated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.embeddings.rope import RoPE_sbuf
from nkilib.experimental.transformer.block_projection import rooted
from nkilib.streaming import load, psum, sbuf, size


@dataclass
class HeadNorm:
    """An RMS norm of each head of queries and of keys.

    Attributes:
        eps: added to the mean square.
        queries, keys: weights ``(1, d)`` in HBM, or None.
    """

    eps: float
    queries: Any
    keys: Any

    def of(self, heads: Any) -> Any:
        """Of ``(d, batch, heads, new tokens)``, whose last head is that of keys."""
        head, batch, count, new = heads.shape
        squares = sbuf((head, batch * count * new), nl.float32)
        flat = heads.reshape(tuple(squares.shape))
        nisa.tensor_tensor(dst=squares, data1=flat, data2=flat, op=nl.multiply)
        shrink = rooted(squares, head, self.eps).reshape((head, batch, count, new))
        made = sbuf((head, batch, count, new), heads.dtype)
        for weights, part in ((self.queries, slice(0, count - 1)), (self.keys, slice(count - 1, count))):
            factor = 1.0 if weights is None else load(weights.reshape((head, 1)), nl.float32)
            nisa.scalar_tensor_tensor(
                dst=made[:, :, part],
                data=heads[:, :, part],
                op0=nl.multiply,
                operand0=factor,
                op1=nl.multiply,
                operand1=shrink[:, :, part],
            )
        return made


@dataclass
class HeadPlan:
    """What happens to heads between the projection and attention.

    Attributes:
        batch, heads, new, head: sizes.
        before, after: norms before and after the rotation, or None.
        cos, sin: ``(d / 2, batch, new tokens)`` in HBM, or None.
        contiguous: whether pairs are elements of the two halves; otherwise neighbours.
    """

    batch: int
    heads: int
    new: int
    head: int
    before: HeadNorm | None
    after: HeadNorm | None
    cos: Any
    sin: Any
    contiguous: bool

    def of(self, projected: Any) -> Any:
        """Queries and keys ``(d, batch, heads + 1, new tokens)`` from ``(batch * new tokens, columns)``."""
        heads = self._turned(projected)
        if self.before is not None:
            heads = self.before.of(heads)
        if self.cos is not None:
            rotated = sbuf(tuple(heads.shape), heads.dtype)
            heads = RoPE_sbuf(heads, load(self.cos), load(self.sin), rotated, not self.contiguous)
        return heads if self.after is None else self.after.of(heads)

    def _turned(self, projected: Any) -> Any:
        count = self.heads + 1
        moved = psum((self.head, count, self.batch, self.new), projected.dtype)
        for place in range(count):
            columns = projected[:, place * self.head : (place + 1) * self.head]
            into = moved[:, place].reshape((self.head, self.batch * self.new))
            nisa.nc_transpose(dst=into, data=columns, engine=nisa.engine.tensor)
        made = sbuf((self.head, self.batch, count, self.new), projected.dtype)
        nisa.tensor_copy(dst=made.permute((0, 2, 1, 3)), src=moved)
        return made


def by_token(values: Any, new: int, there: slice) -> Any:
    """Values ``(batch * new tokens, d)`` in SBUF of some sequences as ``(new tokens, sequences, 1, d)``.

    The Tensor engine moves them: the rows of a sequence are chosen by columns of the identity matrix.
    """
    tokens, head = values.shape
    made = sbuf((new, size(there), 1, head), values.dtype)
    kind = nl.float32 if values.dtype == nl.float32 else nl.bfloat16
    chosen = nl.shared_identity_matrix(tokens, kind)
    for place, sequence in enumerate(range(there.start, there.stop)):
        rows = psum((new, head))
        columns = chosen[:, sequence * new : (sequence + 1) * new]
        nisa.nc_matmul(dst=rows, stationary=columns, moving=values, accumulate=False)
        nisa.tensor_copy(dst=made[:, place, 0, :], src=rows)
    return made


def quantized(tile: Any, scale: Any, dtype: Any, most: float) -> Any:
    """A tile ``(rows, n)`` times a scale of HBM, clipped, as 8-bit numbers."""
    rows = tile.shape[0]
    factor = sbuf((rows, 1), nl.float32)
    nisa.dma_copy(dst=factor, src=scale[0:1, 0:1].broadcast(0, rows))
    wide, made = sbuf(tuple(tile.shape), nl.float32), sbuf(tuple(tile.shape), dtype)
    nisa.tensor_scalar(dst=wide, data=tile, op0=nl.multiply, operand0=factor, op1=nl.minimum, operand1=most)
    nisa.tensor_scalar(dst=made, data=wide, op0=nl.maximum, operand0=-most)
    return made
