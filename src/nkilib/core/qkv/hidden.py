"""Hidden states on their way into the projection: residuals, normalisation, and their shape as stacks.

Many tokens lie in rows: statistics are taken there, then the Tensor engine transposes them. Few tokens are spread over
all partitions as they are loaded, a run of each on every partition, so that nothing is transposed, and a product with
ones sums what the partitions have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.mlp.tokens import Norm
from nkilib.core.utils.common_types import NormType
from nkilib.fp8 import Static
from nkilib.stacks import PIECES, Coming, Slab, Stack, Step, empty, row_groups, transposing, turning
from nkilib.streaming import ceil_div, copy, filled, load, psum, sbuf, size, spans, store

FEW = 16
"""Tokens up to which spreading is worth it: each takes a transfer's descriptor for every partition."""

_PART = 2048
"""Features of a part of a tile of tokens: runs that DMA loads at the full rate."""


@dataclass(frozen=True)
class Work:
    """Tokens that are multiplied with the weights together.

    Attributes:
        tokens: counted through all batches.
        stack: of them.
        together: tiles of tokens that a piece of the weights meets.
        between: what is done between products.
        shrinks: what the products of a tile of tokens are multiplied with, by its first token.
    """

    tokens: slice
    stack: Stack | Iterator[Stack]
    together: int = 1
    between: Callable[[], None] | None = None
    shrinks: Mapping[int, Any] = field(default_factory=dict)


@dataclass
class Hidden:
    """Hidden states in rows.

    An RMS norm divides every row by a number. The products may be divided instead: then rows are loaded and transposed
    part by part, and nothing waits for that number before the last moment. Where hidden states are rounded to float8
    they are divided first.

    Attributes:
        rows: ``(tokens, H)`` in HBM.
        residuals: of the same shape, added to it.
        added: of the same shape, where the sum goes; or None.
        norm: of the sum.
        static: how hidden states are rounded to float8, and the norm is `over_scale`; or None.
        dma_transposes: whether DMA may transpose what nothing else happens to.
    """

    rows: Any
    residuals: tuple[Any, ...]
    added: Any
    norm: Norm
    static: Static | None
    dma_transposes: bool
    _shrinks: dict[int, Any] = field(init=False, default_factory=dict)

    def works(self, strips: int, *, shared: bool) -> Iterator[Work]:
        """All tokens in groups, each turned into a stack between the products of the one before.

        Args:
            shared: whether cores share the tokens.
            strips: of the weights, which are as many opportunities.
        """
        # DMA fills the first stack while products with it begin, and then it may be a large one
        groups = row_groups(self.rows.shape[0], 4 if self._by_dma else 2, shared=shared)
        coming = self._coming(groups[0]) if groups else None
        for group, later in zip(groups, [*groups[1:], None], strict=True):
            assert coming is not None
            lazy = self._by_dma and group is groups[0]
            stack = coming.arriving() if lazy else coming.finished()
            coming = None if later is None else self._coming(later)
            yield Work(group, stack, 4, self._between(coming, later, strips), self._shrinks)

    def _between(self, coming: Coming | None, group: slice | None, strips: int) -> Callable[[], None] | None:
        if coming is None or group is None:
            return None
        depth = self.rows.shape[1]
        steps = ceil_div(size(group), nl.tile_size.pmax) * ceil_div(depth, _PART)
        steps = ceil_div(depth, nl.tile_size.pmax * PIECES) + 1 if self._by_dma else steps
        return lambda: coming.advance(ceil_div(steps, strips))

    @property
    def _by_dma(self) -> bool:
        """Whether nothing happens to hidden states, so that DMA may transpose them."""
        changed = self.residuals or self.norm.kind is not NormType.NO_NORM or self.static is not None
        can = self.rows.dtype.itemsize == 2 and nisa.get_nc_version() >= nisa.nc_version.gen3
        return self.dma_transposes and can and not changed

    @property
    def _whole(self) -> bool:
        """Whether rows are normalised before they are transposed."""
        return self.norm.kind is NormType.LAYER_NORM or self.static is not None

    def _coming(self, group: slice) -> Coming:
        dtype = self.rows.dtype if self.static is None else self.static.dtype
        stack = empty(self.rows.shape[1], size(group), dtype, spread=False)
        if self._by_dma:
            return transposing(stack, self.rows[group])
        steps = self._steps(group)
        return turning(stack, one_ahead(steps) if self._whole else steps, self._place)

    def _steps(self, group: slice) -> Iterator[Step]:
        """Tiles of tokens part by part."""
        for place in spans(size(group), nl.tile_size.pmax):
            tokens = slice(group.start + place.start, group.start + place.stop)
            yield from self._standard(tokens, place) if self._whole else self._parts(tokens, place)

    def _standard(self, tokens: slice, place: slice) -> Iterator[Step]:
        """A normalised tile of tokens; its transfers are several, which share the time of DMA with others."""
        tile, parts = sbuf((size(tokens), self.rows.shape[1]), self.rows.dtype), spans(self.rows.shape[1], _PART)
        for features in parts:
            self._part(tokens, features, tile[:, features])
        if self.norm.kind is NormType.NO_NORM:
            yield tile, place, 0
            return
        shrink, shift = self.norm.statistics(tile)
        for features in parts:
            part = sbuf((size(tokens), size(features)), self.rows.dtype)
            nisa.activation(dst=part, op=nl.copy, data=tile[:, features], scale=shrink, bias=shift)
            yield part, place, features.start

    def _parts(self, tokens: slice, place: slice) -> Iterator[Step]:
        """A tile of tokens as it is, and what its products are multiplied with."""
        parts = spans(self.rows.shape[1], _PART)
        squares = sbuf((size(place), len(parts)), nl.float32)
        for number, features in enumerate(parts):
            tile = self._part(tokens, features)
            if self.norm.kind is not NormType.NO_NORM:
                total = squares[:, number : number + 1]
                nisa.activation_reduce(
                    dst=sbuf(tile.shape, tile.dtype), op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total
                )
            yield tile, place, features.start
        if self.norm.kind is not NormType.NO_NORM:
            total = sbuf((size(place), 1), nl.float32)
            nisa.tensor_reduce(dst=total, op=nl.add, data=squares, axis=(1,))
            width = self.norm.width or self.rows.shape[1]
            self._shrinks[tokens.start] = self.norm.inverse_root(total, 1.0 / width)

    def _part(self, tokens: slice, features: slice, into: Any = None) -> Any:
        """Some features of a tile of tokens, with the residuals."""
        tile = sbuf((size(tokens), size(features)), self.rows.dtype) if into is None else into
        copy(tile, self.rows[tokens, features])
        for residual in self.residuals:
            nisa.tensor_tensor(dst=tile, data1=tile, data2=load(residual[tokens, features]), op=nl.add)
        if self.added is not None:
            store(self.added[tokens, features], tile)
        return tile

    def _place(self, into: Any, block: Any, pieces: slice) -> None:
        """Transposed pieces into a stack, with the weights and the bias of the norm."""
        if self.static is None:
            self.norm.place(into, block, pieces)
            return
        exact = sbuf(block.shape, nl.float32)
        self.norm.place(exact, block, pieces)
        self.static.clipped(into, exact)


def one_ahead(steps: Iterator[Step]) -> Iterator[Step]:
    """The same steps, each made while the one before is not done yet: Scalar prepares what Tensor transposes next."""
    last = next(steps, None)
    for step in steps:
        assert last is not None
        yield last
        last = step
    if last is not None:
        yield last


def over_scale(norm: Norm, static: Static, width: int) -> Norm:
    """A norm whose weights and bias are divided by the scale that hidden states are divided by."""
    shape = (nl.tile_size.pmax, ceil_div(width, nl.tile_size.pmax))
    weights = filled(shape, nl.float32, 1.0) if norm.weights is None else norm.weights
    bias = None if norm.bias is None else static.divided(norm.bias)
    return replace(norm, weights=static.divided(weights), bias=bias)


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
