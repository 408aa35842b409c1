"""Operands of MX products as DeepSeek's weights come: four neighbours of K in each word, scales for 128 x 128 of them.

A **packed** matrix (K, columns) lies in SBUF in tiles of 512 of K: word p of a tile holds the numbers ``4 p`` to
``4 p + 3``. The Tensor engine wants a scale for every 8 words, in 4 rows at the beginning of their quadrant, and takes
them from row 0, 4, 8 or 12 of it: scales of four tiles share 128 rows. Weights in HBM have one scale for 128 of K and
128 columns. Those 128 of K are one quadrant, whose 4 rows of scales are equal, and each is repeated for 128 columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits, products, streaming
from nkilib.experimental.quantize_mxfp8.swizzle import PACK, TILE
from nkilib.streaming import ceil_div, psum, sbuf, size, spans

BLOCK = 128
"""Rows and columns of weights that share a scale."""

X4 = nl.float8_e4m3fn_x4

_SLOTS = 4
"""Tiles whose scales share a tensor."""

_QUADRANTS = 4

_ROWS = 100
"""Rows of scales of a tile, from the first one that counts to the last."""

_WEIGHTS = (X4, nl.uint32)


class Packed:
    """A matrix (K, columns) in SBUF.

    Attributes:
        data: (128, K / 512, columns), packed.
        scales: (128, K / 2048 rounded up, columns), uint8.
    """

    def __init__(self, tiles: int, columns: int, data: Any = None, scales: Any = None) -> None:
        self.data = sbuf((BLOCK, tiles, columns), X4) if data is None else data
        self.scales = sbuf((BLOCK, ceil_div(tiles, _SLOTS), columns), nl.uint8) if scales is None else scales

    @property
    def tiles(self) -> int:
        """K / 512."""
        return int(self.data.shape[1])

    def scales_of(self, tile: int) -> Any:
        """Rows of the scales of a tile."""
        first = tile % _SLOTS * 4
        return self.scales[first : first + _ROWS, tile // _SLOTS, :]

    def quantize(self, tile: int, values: Any, first: int = 0) -> None:
        """Fill columns of a tile, from the first on, with what (128, columns * 4) are, four of K beside each other."""
        columns = slice(first, first + values.shape[1] // PACK)
        nisa.quantize_mx(dst=self.data[:, tile, columns], src=values, dst_scale=self.scales_of(tile)[:, columns])

    def operand(self, tile: int, columns: slice) -> tuple[Any, Any]:
        """Words and scales of some columns of a tile."""
        return self.data[:, tile, columns], self.scales_of(tile)[:, columns]


def product(left: Packed, rows: slice, right: Packed, columns: slice, tiles: Sequence[int] | None = None) -> Any:
    """``left[:, rows].T @ right[:, columns]`` in one bank of PSUM, summed over tiles of K, by default all."""
    sums = psum((size(rows), size(columns)))
    for place, tile in enumerate(range(left.tiles) if tiles is None else tiles):
        a, a_scales = left.operand(tile, rows)
        b, b_scales = right.operand(tile, columns)
        nisa.nc_matmul_mx(
            dst=sums,
            stationary=a,
            moving=b,
            stationary_scale=a_scales,
            moving_scale=b_scales,
            accumulate=place > 0,
        )
    return sums


class Weights:
    """Weights (K, N) in HBM, of which strips of columns are loaded.

    Attributes:
        data: (K / 512, 128, N), packed.
        scales: (128, K / 2048 rounded up, N / 128 rounded up) in SBUF, of which four rows in four count.
    """

    def __init__(self, data: Any, compact: Any) -> None:
        words = data.view(X4) if data.dtype != X4 else data
        self.data = words.reshape((data.shape[0] // BLOCK, BLOCK, data.shape[1]))
        self.scales = _spread(compact)

    def strip(self, columns: slice, tiles: slice | None = None) -> Packed:
        """Columns whose scales begin at the first of them, and are repeated by GpSimd, which has nothing else to do.

        Args:
            columns: begin at a multiple of 128.
            tiles: of K, beginning at a multiple of four; by default all.
        """
        part = slice(0, self.data.shape[0]) if tiles is None else tiles
        made = Packed(size(part), size(columns))
        for some in spans(size(part), _SLOTS):
            here = slice(part.start + some.start, part.start + some.stop)
            streaming.copy(made.data[:, some, :], self.data[here, :, columns].permute((1, 0, 2)))
            group, blocks = some.start // _SLOTS, slice(columns.start // BLOCK, ceil_div(columns.stop, BLOCK))
            found = self.scales[:, here.start // _SLOTS, blocks]
            for block in range(size(blocks)):
                covered = slice(block * BLOCK, min((block + 1) * BLOCK, size(columns)))
                nisa.tensor_copy(
                    dst=made.scales[:, group, covered],
                    src=found[:, block : block + 1].broadcast(1, size(covered)),
                    engine=nisa.engine.gpsimd,
                )
        return made


def _spread(compact: Any) -> Any:
    """Compact scales (K / 128, blocks) where `Weights` has them; rows of no tile are 0."""
    tiles, blocks = compact.shape[0] // _QUADRANTS, compact.shape[1]
    spread = streaming.filled((BLOCK, ceil_div(tiles, _SLOTS), blocks), nl.uint8, 0)
    by_tile = compact.reshape((tiles, _QUADRANTS, blocks))
    for slot in range(min(_SLOTS, tiles)):
        groups = ceil_div(tiles - slot, _SLOTS)
        last = slot + _SLOTS * (groups - 1) + 1
        for quadrant in range(_QUADRANTS):
            first = 32 * quadrant + 4 * slot
            source = by_tile[slot:last:_SLOTS, quadrant, :].expand_dim(0).broadcast(0, 4)
            streaming.copy(spread[first : first + 4, 0:groups, :], source)
    return spread


def check_weights(name: str, data: Any, compact: Any, depth: int | None, columns: int | None) -> tuple[int, int]:
    """K and N of packed weights and their compact scales.

    Args:
        name: of the argument; that of the scales is ``name_scale_hbm``.
        depth, columns: what they have to be; None if any.

    Raises:
        KernelLimit: they do not fit.
    """
    full = f"{name}_hbm"
    limits.dtype(full, data, _WEIGHTS)
    limits.dtype(f"{name.removesuffix('_qtz')}_scale_hbm", compact, (nl.uint8,))
    sizes = limits.shape(full, data, ("K / 4" if depth is None else depth // PACK, "N" if columns is None else columns))
    rows, width = sizes.get("K / 4", data.shape[0]), data.shape[1]
    limits.multiple(f"K of {full}", rows * PACK, TILE, "a tile of MX products contracts 512 numbers")
    limits.shape(f"{name.removesuffix('_qtz')}_scale_hbm", compact, (rows * PACK // BLOCK, ceil_div(width, BLOCK)))
    return rows * PACK, width


def turned(numbers: Any, columns: int) -> Any:
    """(128, columns * 4) in SBUF, as they are quantized, of (rows, 4, 128) in HBM, whose 4 go beside each other.

    Args:
        columns: rows, or one more, which are zeros then.
    """
    rows = numbers.shape[0]
    tile = sbuf((BLOCK, columns, PACK), numbers.dtype)
    if columns > rows:
        nisa.memset(dst=tile[:, rows:, :], value=0.0)
    nisa.dma_transpose(dst=tile[:, 0:rows, :].permute((0, 2, 1)), src=numbers, dge_mode=nisa.dge_mode.none)
    return tile.reshape((BLOCK, columns * PACK))


def blocks_of_core(tokens: int, step: int, unit: int = 1) -> list[slice]:
    """Tokens of this core, block by block; it has whole units."""
    own = products.own(tokens, unit)
    return [slice(own.start + part.start, own.start + part.stop) for part in spans(size(own), step)]


def even(count: int) -> int:
    """Columns of a stationary operand that has so many: the Tensor engine loads two at a time."""
    return count + count % 2
