"""Hidden states of a few tokens to queries, keys and values, from where they lie to a tile in SBUF.

Tokens are spread over the partitions as they come, so that nothing is transposed: partition p holds the features
``c * H / C + p * H / 128 / C + t`` of each of C chunks. One chunk is how DMA reads rows of HBM in the longest runs; as
many chunks as cores is how a kernel before this one leaves its result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.attention.decode import swap
from nkilib.core.utils.common_types import DtypeMode
from nkilib.epilogue import Epilogue
from nkilib.fp8 import Static
from nkilib.products import products
from nkilib.stacks import PIECES, Slab, Stack
from nkilib.streaming import filled, psum, sbuf, spans

FEW_EXCHANGED = 1024
"""Elements of a partition up to which GpSimd exchanges them sooner than DMA."""


@dataclass
class Tokens:
    """Hidden states.

    Attributes:
        tile: ``(128, tokens, chunks, pieces)`` in SBUF.
        width: features that count for the norm; the others are zeros.
    """

    tile: Any
    width: int

    @staticmethod
    def of(source: Any, width: int | None, transposed: bool) -> Tokens:
        """Of an argument that was checked.

        Args:
            source: (B, S, H) or, transposed, (128, chunks, pieces, B * S) in HBM; or (128, B * S, H / 128) in SBUF, in
                as many chunks as there are cores.
            width: features that count, or None for all.
        """
        rows = int(nl.tile_size.pmax)
        if transposed:
            _, chunks, pieces, tokens = source.shape
            tile = sbuf((rows, chunks, pieces, tokens), source.dtype)
            nisa.dma_copy(dst=tile, src=source)
            return Tokens(tile.permute((0, 3, 1, 2)), width or rows * chunks * pieces)
        if source.buffer == nl.sbuf:
            chunks = int(nl.num_programs(0))
            shape = (rows, source.shape[1], chunks, source.shape[2] // chunks)
            return Tokens(source.reshape(shape), width or rows * source.shape[2])
        batch, new, features = source.shape
        tile = sbuf((rows, batch * new, 1, features // rows), source.dtype)
        flat = source.reshape((batch * new, 1, rows, features // rows))
        nisa.dma_copy(dst=tile, src=flat.permute((2, 0, 1, 3)), dge_mode=nisa.dge_mode.none)
        return Tokens(tile, width or features)

    def normalised(self, eps: float, gamma: Any) -> Tokens:
        """``x / sqrt(mean(x^2) + eps) * gamma``, gamma (1, H) in HBM or None."""
        rows, tokens, chunks, pieces = self.tile.shape
        squares, made = sbuf((rows, tokens, chunks, pieces), nl.float32), sbuf(tuple(self.tile.shape), self.tile.dtype)
        nisa.tensor_tensor(dst=squares, data1=self.tile, data2=self.tile, op=nl.multiply)
        sums = sbuf((rows, tokens), nl.float32)
        nisa.tensor_reduce(dst=sums, op=nl.add, data=squares, axis=[2, 3])
        shrink = rooted(sums, self.width, eps)
        spread = shrink.reshape((rows, tokens, 1, 1)).broadcast(2, chunks).broadcast(3, pieces)
        if gamma is None:
            nisa.tensor_tensor(dst=made, data1=self.tile, data2=spread, op=nl.multiply)
            return Tokens(made, self.width)
        weights = sbuf((rows, 1, chunks, pieces), gamma.dtype)
        flat = gamma.reshape((1, chunks, rows, pieces)).permute((2, 0, 1, 3))
        nisa.dma_copy(dst=weights, src=flat)
        nisa.tensor_tensor(dst=squares, data1=self.tile, data2=weights.broadcast(1, tokens), op=nl.multiply)
        nisa.tensor_tensor(dst=made, data1=squares, data2=spread, op=nl.multiply)
        return Tokens(made, self.width)

    def stack(self) -> Stack:
        """All tokens as columns."""
        rows, tokens, chunks, pieces = self.tile.shape
        made = sbuf((rows, chunks, pieces, tokens), self.tile.dtype)
        nisa.tensor_copy(dst=made, src=self.tile.permute((0, 2, 3, 1)))
        if pieces == 1:
            return [Slab(made[:, chunk], chunk * rows) for chunk in range(chunks)]
        return [
            Slab(made[:, chunk, group], group.start, pieces, chunk * rows * pieces)
            for chunk in range(chunks)
            for group in spans(pieces, PIECES)
        ]


def rooted(sums: Any, count: int, eps: float) -> Any:
    """``1 / sqrt(sum over partitions / count + eps)`` of each column, on every partition."""
    rows, columns = sums.shape
    total, made = psum((rows, columns)), sbuf((rows, columns), nl.float32)
    ones = filled((rows, rows), nl.float32, 1.0 / count)
    nisa.nc_matmul(dst=total, stationary=ones, moving=sums, accumulate=False)
    # Vector raises to a power; Scalar would load another table, and that of the exponential again after it
    nisa.tensor_scalar(dst=made, data=total, op0=nl.add, operand0=eps, op1=nl.power, operand1=-0.5)
    return made


@dataclass
class Projection:
    """Weights of the projection and what belongs to them.

    Attributes:
        weights: ``(H, I)``.
        bias: ``(1, I)`` or None.
        weight_scale, input_scale: of float8, see `attention_block_tkg`; None where weights are as wide as tokens.
        ends: columns at which queries, keys and values end.
        mode: which float8.
    """

    weights: Any
    bias: Any
    weight_scale: Any
    input_scale: Any
    ends: tuple[int, ...]
    mode: DtypeMode

    def of(self, stack: Stack, tokens: int, dtype: Any) -> Any:
        """``(tokens, I)`` in SBUF; of two cores each computes half of the columns, and gets the others."""
        cores, core, width = int(nl.num_programs(0)), int(nl.program_id(0)), self.weights.shape[1]
        mine = slice(core * width // cores, (core + 1) * width // cores)
        scales: list[Any] = [1.0] * 3
        if self.input_scale is not None:
            static = Static(self.input_scale, self.weight_scale, self.mode)
            stack, count = static.quantized(stack), static.scale.shape[1]
            scales = [static.scale[:, i % count : i % count + 1] for i in range(3)]
        factors = self.weight_scale[0:1] if self.weight_scale is not None and self.input_scale is None else None
        finishes = [Epilogue(dtype, self.weights.shape[0], tokens, self.bias, scale, factors) for scale in scales]
        out = sbuf((tokens, width), dtype)
        for _, columns, sums in products(stack, self.weights, columns=mine, biases=finishes[0].begin):
            for finish, part in self._parts(finishes, columns):
                finish(sums[:, part.start - columns.start : part.stop - columns.start], part, out[:, part])
        if cores > 1:
            theirs = slice(width - mine.stop, width - mine.start)
            swap(out[:, mine], out[:, theirs], through_gpsimd=theirs.stop - theirs.start <= FEW_EXCHANGED)
        return out

    def _parts(self, finishes: list[Any], columns: slice) -> Iterable[tuple[Any, slice]]:
        """Columns of queries, keys and values, with what their sums are multiplied with; together if it is the same."""
        if self.input_scale is None:
            return [(finishes[0], columns)]
        starts = (0, *self.ends[:2])
        cut = [slice(max(a, columns.start), min(b, columns.stop)) for a, b in zip(starts, self.ends, strict=True)]
        return [(finish, part) for finish, part in zip(finishes, cut, strict=True) if part.start < part.stop]
