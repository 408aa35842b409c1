"""Gradients that sum over the tokens of a block, and over blocks: those of weights and of biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.core.moe.moe_cte.block import Share
from nkilib.experimental.moe.bwd.inner import Inner
from nkilib.experimental.moe.bwd.job import Job, Tokens
from nkilib.streaming import Panel, contract, sbuf, size

_WIDE = 2048
"""Columns in float32 of half of PSUM."""

_AHEAD_BYTES = 8 * 1024
"""Of a partition, for gradients so far that are loaded before sums are added to them."""


class SoFar:
    """Gradients so far of a block's expert, tile by tile in the order in which they are added to, and loaded ahead.

    A load takes longer to come than the sums of a tile take to be made.
    """

    def __init__(self, targets: Sequence[Any]) -> None:
        self._targets = list(targets)
        self._loaded: list[tuple[Any, Any]] = []
        self._room = _AHEAD_BYTES
        self._load()

    def _load(self) -> None:
        """Load as many of the next tiles as there is room for, and at least one."""
        while self._targets and (not self._loaded or self._room >= _bytes(self._targets[0])):
            target = self._targets.pop(0)
            tile = sbuf(target.shape, target.dtype)
            streaming.copy_selected(tile, target)
            self._loaded.append((target, tile))
            self._room -= _bytes(target)

    def add(self, sums: Any) -> None:
        """Add sums in PSUM to the next tile."""
        target, tile = self._loaded.pop(0)
        self._room += _bytes(target)
        self._load()
        nisa.tensor_tensor(dst=tile, data1=sums, data2=tile, op=nl.add)
        nisa.dma_copy(dst=target, src=tile)


def _bytes(target: Any) -> int:
    """Of a partition."""
    return int(target.size // target.shape[0] * target.dtype.itemsize)


def sums_so_far(job: Job, share: Share, tokens: Tokens) -> SoFar:
    """The gradients so far of everything that `add_weights` adds to, in its order."""
    expert, middle = tokens.block.expert, share.middle
    targets = _down_tiles(job.down.select(0, expert)[middle])
    targets += _gate_up_tiles(job.gate_up.select(0, expert)[:, :, middle])
    if job.gate_up_bias is not None:
        targets += _gate_up_tiles(job.gate_up_bias.select(0, expert)[:, middle].expand_dim(0))
        targets += _down_tiles(job.down_bias.select(0, expert)[share.columns].expand_dim(0))
    return SoFar(targets)


def add_weights(job: Job, share: Share, tokens: Tokens, inner: Inner, so_far: SoFar) -> None:
    """Add a block's part to the gradients of its expert's weights and biases."""
    scaled, gate, up = (_by_tokens(panel, tokens) for panel in (inner.scaled, inner.gate, inner.up))
    _add_down(so_far, scaled, tokens.gradient)
    _add_gate_up(so_far, tokens.hidden, gate, up)
    if job.gate_up_bias is not None:
        ones = [streaming.filled((tile.shape[0], 1), tile.dtype, 1.0) for tile in gate]
        _add_gate_up(so_far, ones, gate, up)
        weights = ones if job.layer.scale_intermediate else _rounded(tokens)
        _add_down(so_far, weights, [tile[:, share.columns] for tile in tokens.gradient])


def _down_tiles(target: Any) -> list[Any]:
    rows, columns = (streaming.spans(*each) for each in zip(target.shape, (nl.tile_size.pmax, _WIDE), strict=True))
    return [target[down, across] for down in rows for across in columns]


def _gate_up_tiles(target: Any) -> list[Any]:
    rows, _, columns = target.shape
    return [
        target[down, :, across]
        for down in streaming.spans(rows, nl.tile_size.pmax)
        for across in streaming.spans(columns, _WIDE // 2)
    ]


def _by_tokens(panel: Panel, tokens: Tokens) -> list[Any]:
    """A panel (I, B) as tiles (height, I), one for each tile of tokens."""
    height, tiles = tokens.block.ids.shape
    width, found = sum(piece.shape[0] for piece in panel), []
    for tile in range(tiles):
        target = sbuf((height, width), panel[0].dtype)
        for place, piece in enumerate(panel):
            first = place * nl.tile_size.pmax
            here = piece[:, tile * height : (tile + 1) * height]
            streaming.transpose(here, into=target[:, first : first + piece.shape[0]])
        found.append(target)
    return found


def _rounded(tokens: Tokens) -> list[Any]:
    """Affinities as columns in the dtype of products."""
    columns = []
    for tile, gradient in enumerate(tokens.gradient):
        column = sbuf((gradient.shape[0], 1), gradient.dtype)
        nisa.tensor_copy(dst=column, src=tokens.block.affinities[:, tile : tile + 1])
        columns.append(column)
    return columns


def _add_down(so_far: SoFar, left: list[Any], right: list[Any]) -> None:
    """Add ``left.T @ right`` to the tiles of a gradient (rows, columns)."""
    for down in streaming.spans(left[0].shape[1], nl.tile_size.pmax):
        for across in streaming.spans(right[0].shape[1], _WIDE):
            total = streaming.psum((size(down), size(across)))
            for part in streaming.spans(size(across), nl.tile_size.psum_bank_fmax):
                here = slice(across.start + part.start, across.start + part.stop)
                contract([tile[:, down] for tile in left], [tile[:, here] for tile in right], total[:, part])
            so_far.add(total)


def _add_gate_up(so_far: SoFar, left: list[Any], gate: list[Any], up: list[Any]) -> None:
    """Add ``left.T @ gate`` and ``left.T @ up`` to the tiles of a gradient (rows, 2, columns)."""
    bank = nl.tile_size.psum_bank_fmax
    for down in streaming.spans(left[0].shape[1], nl.tile_size.pmax):
        stationary = [tile[:, down] for tile in left]
        for across in streaming.spans(gate[0].shape[1], _WIDE // 2):
            room = streaming.ceil_div(size(across), bank) * bank
            total = streaming.psum((size(down), 2, room))[:, :, 0 : size(across)]
            for which, right in enumerate((gate, up)):
                for part in streaming.spans(size(across), bank):
                    here = slice(across.start + part.start, across.start + part.stop)
                    contract(stationary, [tile[:, here] for tile in right], total[:, which, part])
            so_far.add(total)
