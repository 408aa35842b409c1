"""Tokens on their way into a product: loaded, added to a residual, normalised, and turned into a panel.

Statistics are taken where a token lies on one partition. The weights and the bias of a normalisation belong to
features, which lie on partitions after the turn: there they are columns, and the copy out of PSUM applies them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.mlp.static_scales import Static
from nkilib.core.mlp.weight_products import Weights, in_tiles, panel_of
from nkilib.core.utils.common_types import NormType
from nkilib.streaming import Panel, ceil_div, filled, load, psum, sbuf, size, spans, store, transpose

_BANK_BYTES = 2048

_PIECE = 4096
"""Features of tokens that are turned at once, a multiple of 128."""


def columns_of_vector(vector: Any) -> Any:
    """A vector ``(1, n)`` of HBM on partitions, in float32: element ``tile * 128 + p`` at ``[p, tile]``."""
    pmax, count = nl.tile_size.pmax, vector.shape[-1]
    whole, rest = divmod(count, pmax)
    target = sbuf((pmax, whole + (rest > 0)), nl.float32)
    line = vector.reshape((count,))
    for tiles in spans(whole, pmax):
        rows = load(line[tiles.start * pmax : tiles.stop * pmax].reshape((size(tiles), pmax)))
        transpose(rows, into=target[:, tiles])
    if rest:
        transpose(load(line[whole * pmax : count].reshape((1, rest))), into=target[0:rest, whole : whole + 1])
    return target


def along(columns: Any, partitions: int, tiles: slice, tokens: int) -> Any:
    """Columns of a vector beside a panel ``(partitions, tiles, tokens)``: the same for every token."""
    return columns[0:partitions, tiles].expand_dim(2).broadcast(2, tokens)


@dataclass(frozen=True)
class Norm:
    """A normalisation of each token.

    Attributes:
        kind: which one.
        weights, bias: columns of its vectors, or None.
        eps: that is added to the mean square, or to the variance.
        width: features of a token that count, where others are zeros at its end; None: all.
    """

    kind: NormType
    weights: Any
    bias: Any
    eps: float
    width: int | None = None

    @classmethod
    def of(cls, kind: NormType, weights: Any, bias: Any, eps: float, width: int | None = None) -> Norm:
        """With its vectors ``(1, features)`` loaded from HBM."""
        used = kind in (NormType.RMS_NORM, NormType.LAYER_NORM)
        return cls(
            kind,
            columns_of_vector(weights) if used and weights is not None else None,
            columns_of_vector(bias) if used and bias is not None else None,
            eps,
            width,
        )

    def standard(self, tile: Any, dtype: Any) -> Any:
        """Tokens ``(tokens, features)`` without mean, where it is taken off, and of mean square 1."""
        if self.kind is NormType.NO_NORM:
            return tile
        result = sbuf(tile.shape, dtype)
        shrink, shift = self.statistics(tile, result)
        if shift is None:
            nisa.activation(dst=result, op=nl.copy, data=tile, scale=shrink)
        else:  # copies of Scalar have no bias on NeuronCore-v2
            nisa.tensor_scalar(dst=result, data=tile, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=shift)
        return result

    def statistics(self, tile: Any, squares: Any = None) -> tuple[Any, Any]:
        """What tokens ``(tokens, features)`` are multiplied with, and what is added then or None: columns."""
        if self.kind is not NormType.LAYER_NORM:
            return self.shrink(tile, squares), None
        moments = _moments(tile[:, 0 : self.width or tile.shape[1]])
        shrink, shift = self.inverse_root(moments[:, 1:2], 1.0), sbuf((tile.shape[0], 1), nl.float32)
        mean = moments[:, 0:1]
        nisa.tensor_scalar(dst=shift, data=mean, op0=nl.multiply, operand0=shrink, op1=nl.multiply, operand1=-1.0)
        return shrink, shift

    def shrink(self, tile: Any, squares: Any = None) -> Any:
        """What makes the mean square of tokens ``(tokens, features)`` 1: a column; `squares` is overwritten."""
        tokens, features = tile.shape
        total, into = sbuf((tokens, 1), nl.float32), sbuf(tile.shape, tile.dtype) if squares is None else squares
        nisa.activation_reduce(dst=into, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total)
        return self.inverse_root(total, 1.0 / (self.width or features))

    def inverse_root(self, values: Any, scale: float) -> Any:
        """``1 / sqrt(values * scale + eps)``."""
        result = sbuf(values.shape, nl.float32)
        bias = filled((values.shape[0], 1), nl.float32, self.eps)
        nisa.activation(dst=result, op=nl.rsqrt, data=values, scale=scale, bias=bias)
        return result

    def place(self, target: Any, turned: Any, tiles: slice) -> None:
        """Standardised features ``(partitions, tiles, tokens)`` into a panel, times the weights, plus the bias."""
        partitions, _, tokens = turned.shape
        value = turned
        for columns, op in ((self.weights, nl.multiply), (self.bias, nl.add)):
            if columns is not None:
                nisa.tensor_tensor(dst=target, data1=value, data2=along(columns, partitions, tiles, tokens), op=op)
                value = target
        if value is turned:
            nisa.tensor_copy(dst=target, src=turned)


def _moments(tile: Any) -> Any:
    """Mean and variance of each token."""
    tokens, features = tile.shape
    parts = spans(features, nl.tile_size.psum_bank_fmax)
    stats, moments = sbuf((tokens, len(parts), 6), nl.float32), sbuf((tokens, 2), nl.float32)
    for number, part in enumerate(parts):
        nisa.bn_stats(dst=stats[:, number, :], data=tile[:, part])
    nisa.bn_aggr(dst=moments, data=stats)
    return moments


def row_piece(features: int, norm: NormType) -> int:
    """Features of a token that are turned at once: all of them if a norm needs them all."""
    return min(features, _PIECE) if norm is NormType.NO_NORM else features


@dataclass(frozen=True)
class Tokens:
    """Rows of HBM that become panels.

    Attributes:
        hidden: ``(tokens, features)``.
        residual: of the same shape, added to it; or None.
        stored: where the sums go; or None.
        norm: of the sums.
        dtype: of the panels.
        static: their scale, if they have 8 bits.
    """

    hidden: Any
    residual: Any
    stored: Any
    norm: Norm
    dtype: Any
    static: Static | None = None

    def order(self, matrix: Any) -> Weights:
        """Weights in the order of the panel's tiles."""
        return in_tiles(matrix)

    def panel(self, rows: slice) -> Panel:
        """Some tokens, at most 512: a list of tiles ``(features <= 128, tokens)``."""
        pmax, features = nl.tile_size.pmax, self.hidden.shape[1]
        turned = sbuf((pmax, ceil_div(features, pmax), size(rows)), self.dtype)
        between = self.dtype if self.static is None else self.hidden.dtype
        for part in spans(size(rows), pmax):
            here = slice(rows.start + part.start, rows.start + part.stop)
            for columns in spans(features, row_piece(features, self.norm.kind)):
                tile = self.norm.standard(self._rows(here, columns), between)
                self._turn(tile, turned[:, columns.start // pmax : ceil_div(columns.stop, pmax), part])
        return panel_of(turned, features)

    def _rows(self, rows: slice, columns: slice) -> Any:
        tile = load(self.hidden[rows, columns])
        if self.residual is not None:
            nisa.tensor_tensor(dst=tile, data1=tile, data2=load(self.residual[rows, columns]), op=nl.add)
            if self.stored is not None:
                store(self.stored[rows, columns], tile)
        return tile

    def _turn(self, tile: Any, target: Any) -> None:
        """A tile ``(tokens, features)`` into a panel's ``(features, tiles, tokens)``, a bank of PSUM at a time."""
        pmax, (tokens, features) = nl.tile_size.pmax, tile.shape
        whole, rest = divmod(features, pmax)
        slot = tokens + tokens % 2  # elements of 2 bytes begin at multiples of 4
        groups = spans(whole, max(1, _BANK_BYTES // (slot * tile.dtype.itemsize)))
        for group in [*groups, *([slice(whole, whole + 1)] if rest else [])]:
            height = pmax if group.start < whole else rest
            moved = psum((height, size(group), slot), tile.dtype)[:, :, 0:tokens]
            for number in range(size(group)):
                start = (group.start + number) * pmax
                source = tile[:, start : start + height]
                nisa.nc_transpose(dst=moved[:, number, :], data=source, engine=nisa.engine.tensor)
            self._place(target[0:height, group, :], moved, group)

    def _place(self, target: Any, moved: Any, group: slice) -> None:
        """Turned features out of PSUM into a panel."""
        if self.static is None:
            self.norm.place(target, moved, group)
            return
        value = sbuf(moved.shape, nl.float32)
        self.norm.place(value, moved, group)
        self.static.round(target, value)
