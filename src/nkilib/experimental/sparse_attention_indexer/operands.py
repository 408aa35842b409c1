"""Operands of the indexer's products: weights with a scale for every 32 numbers, and states as the products want them.

Both kinds of MX operands hold four neighbours of K in a word, as `packed` says. Weights have scales (K / 32, N) in HBM.
States that another kernel quantized come in tiles of 128 tokens, (128, K / 512, 128) words and as many scales, of which
the first four rows of each quadrant count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.mla.deepseek.packed import BLOCK, X4, Packed, Weights, even
from nkilib.experimental.quantize_mxfp8.swizzle import PACK, TILE
from nkilib.streaming import ceil_div, load, psum, sbuf, size, spans

_QUADRANTS = 4
_SLOTS = 4
_ROWS = 100


class FineWeights(Weights):
    """Weights (K, N) in HBM with a scale for every 32 numbers of a column.

    Attributes:
        data: (K / 512, 128, N), packed.
        scales: (K / 512, 4 quadrants, 4, N) in HBM.
    """

    def __init__(self, data: Any, scales: Any) -> None:
        words = data if data.dtype == X4 else data.view(X4)
        self.data = words.reshape((data.shape[0] // BLOCK, BLOCK, data.shape[1]))
        self.scales = scales.reshape((self.data.shape[0], _QUADRANTS, 4, data.shape[1]))

    def strip(self, columns: slice, tiles: slice | None = None) -> Packed:
        """Some columns of all tiles, or of those from a multiple of four on."""
        part = slice(0, self.data.shape[0]) if tiles is None else tiles
        made = Packed(size(part), size(columns))
        streaming.copy(made.data, self.data[part, :, columns].permute((1, 0, 2)))
        for slot in range(min(_SLOTS, size(part))):
            groups = ceil_div(size(part) - slot, _SLOTS)
            for quadrant in range(_QUADRANTS):
                first, start = 32 * quadrant + 4 * slot, part.start + slot
                found = self.scales[start : part.stop : _SLOTS, quadrant, :, columns]
                streaming.copy(made.scales[first : first + 4, 0:groups, :], found.permute((1, 0, 2)))
        return made


class Stored(Packed):
    """States (K, tokens) that were quantized before, whose tiles have scales in rows of their own.

    Args:
        data, scales: (tiles of tokens, 128, K / 512, 128) in HBM, words and uint8.
        tiles: which of them.
    """

    def __init__(self, data: Any, scales: Any, tiles: list[int]) -> None:
        deep = data.shape[2]
        words = sbuf((BLOCK, deep, len(tiles) * BLOCK), X4)
        kept = sbuf((BLOCK, deep, len(tiles) * BLOCK), nl.uint8)
        source = data if data.dtype == X4 else data.view(X4)
        for number, tile in enumerate(tiles):
            columns = slice(number * BLOCK, (number + 1) * BLOCK)
            streaming.copy(words[:, :, columns], source[tile])
            streaming.copy(kept[:, :, columns], scales[tile])
        super().__init__(deep, len(tiles) * BLOCK, words, kept)

    def scales_of(self, tile: int) -> Any:
        """Rows of the scales of a tile."""
        return self.scales[0:_ROWS, tile, :]


def turned(rows: Any) -> Iterator[Any]:
    """Tiles (128, tokens, 4) in bfloat16 of at most 128 rows (tokens, K) in HBM: 512 of K, four neighbours together.

    An odd number of tokens gets one more, of zeros, as the Tensor engine wants it.
    """
    count = rows.shape[0]
    held = load(rows, nl.bfloat16)
    for across in spans(rows.shape[1], TILE):
        moved = psum((BLOCK, count, PACK), nl.bfloat16)
        numbers = held[:, across].reshape_dim(1, (BLOCK, PACK))
        for place in range(PACK):
            nisa.nc_transpose(dst=moved[:, :, place], data=numbers[:, :, place], engine=nisa.engine.tensor)
        tile = sbuf((BLOCK, even(count), PACK), nl.bfloat16)
        if count % 2:
            nisa.memset(dst=tile[:, count:, :], value=0.0)
        streaming.leave(tile[:, 0:count, :], moved, 1)
        yield tile


def check_fine(name: str, data: Any, scales: Any, depth: int, columns: int) -> None:
    """Check weights (depth / 4, columns) and their scales.

    Raises:
        KernelLimit: another shape or dtype, or no scales.
    """
    limits.need(
        scales is not None, f"{name}_scale", "left out", "weights of MX products have scales", f"pass {name}_scale"
    )
    limits.dtype(name, data, (X4, nl.uint32))
    limits.shape(name, data, (depth // PACK, columns))
    limits.dtype(f"{name}_scale", scales, (nl.uint8,))
    limits.shape(f"{name}_scale", scales, (depth // 32, columns))


def check_stored(names: tuple[str, str], data: Any, scales: Any, tiles: int, depth: int | None) -> int:
    """Check states that were quantized before; returns their K.

    Raises:
        KernelLimit: another shape or dtype, or one without the other.
    """
    for name, each in zip(names, (data, scales), strict=True):
        limits.need(each is not None, name, "left out", f"{' and '.join(names)} belong together", f"pass {name}")
    deep = data.shape[2] if depth is None and len(data.shape) == 4 else (depth or TILE) // TILE
    limits.dtype(names[0], data, (X4, nl.uint32))
    limits.dtype(names[1], scales, (nl.uint8,))
    for name, each in zip(names, (data, scales), strict=True):
        wanted = (tiles, BLOCK, deep, BLOCK) if depth is None else (tiles, BLOCK, deep * BLOCK)
        limits.shape(name, each, wanted)
    return int(deep * TILE)
