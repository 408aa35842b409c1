"""Kernels with two tiles of few partitions, of which SBUF holds only one if both begin at partition 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki.isa as nisa
import nki.language as nl

Use = Callable[[Any], None]
Kernel = Callable[[Any], Any]


def small(*shape: int, dtype: Any = nl.float32, buffer: Any = nl.sbuf, address: Any = None) -> Any:
    """A tile that holds some number."""
    tile = nl.ndarray(shape, dtype=dtype, buffer=buffer, address=address)
    nisa.memset(dst=tile, value=0)
    return tile


def pair(use: Use | None = None, other: Use | None = None, count: int = 2, addresses: tuple[Any, ...] = ()) -> Kernel:
    """Tiles as wide as the argument that are all needed until the end.

    Args:
        use, other: what happens to the first tile and to all others in between.
        count: how many there are.
        addresses: of the first ones, in SBUF.
    """

    def tiles_together(a: Any) -> Any:
        places = (*addresses, *(None for _ in range(count)))
        tiles = [nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf, address=places[n]) for n in range(count)]
        out = nl.ndarray((count, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=tiles[0], src=a)
        for tile in tiles[1:]:
            nisa.tensor_scalar(dst=tile, data=tiles[0], op0=nl.add, operand0=1.0)
        for tile, what in zip(tiles, (use, *(other for _ in tiles[1:])), strict=True):
            if what is not None:
                what(tile)
        for number, tile in enumerate(tiles):
            nisa.dma_copy(dst=out[number], src=tile)
        return out

    return tiles_together


def only_transferred(a: Any) -> Any:
    """As `pair`, but no engine uses the tiles, only DMA."""
    tiles = [nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf) for _ in range(2)]
    out = nl.ndarray((2, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    for tile in tiles:
        nisa.dma_copy(dst=tile, src=a)
    nisa.dma_copy(dst=tiles[0][0:1], src=tiles[1][0:1])
    for number, tile in enumerate(tiles):
        nisa.dma_copy(dst=out[number], src=tile)
    return out


def as_written(kernel: Kernel) -> Kernel:
    """The kernel, none of whose instructions may move."""

    def in_order(a: Any) -> Any:
        with nl.no_reorder():
            return kernel(a)

    return in_order


def rotated(a: Any) -> Any:
    """A rotation of pairs: the lower half of the partitions holds one of each pair, the upper half the other.

    The four products as one writes them down have no place. Where both of the lower numbers come first, they have.
    """
    half = a.shape[0]
    both = nl.ndarray((2 * half, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf, name="both")
    for start in (0, half):
        nisa.dma_copy(dst=both[start : start + half], src=a)
    upper = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=upper, data=both[half:], op0=nl.add, operand0=1.0)  # so that the halves differ
    lower_cos, upper_cos, lower_sin, upper_sin = (nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf) for _ in range(4))
    for product, data, factor in (
        (lower_cos, both[:half], 0.5),
        (upper_cos, upper, 0.5),
        (lower_sin, both[:half], 0.25),
        (upper_sin, upper, 0.25),
    ):
        nisa.tensor_scalar(dst=product, data=data, op0=nl.multiply, operand0=factor)
    turned = nl.ndarray(both.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(turned[:half], lower_cos, upper_sin, nl.subtract)
    nisa.tensor_tensor(turned[half:], upper_cos, lower_sin, nl.add)
    out = nl.ndarray(both.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=turned)
    return out


def read_together(a: Any) -> Any:
    """Two pairs of narrower tiles: a pair is added up, and all four are needed until the end."""
    tiles = [nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf, name=f"tile{n}") for n in range(4)]
    out = nl.ndarray((4, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    for tile in tiles:
        nisa.dma_copy(dst=tile, src=a)
    for left, right in (tiles[0::2], tiles[1::2]):
        nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    for number, tile in enumerate(tiles):
        nisa.dma_copy(dst=out[number], src=tile)
    return out


def in_a_loop(a: Any) -> Any:
    """As `pair`, once around a loop on the device and once in it."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=total, src=a)
    for _ in nl.dynamic_range(3):
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=total, op0=nl.multiply, operand0=2.0)
        nisa.tensor_scalar(dst=total, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out, src=tile)
    nisa.dma_copy(dst=out, src=total)
    return out


# --- uses of a tile


def _columns(tile: Any) -> Any:
    return tile[:, 0 : tile.shape[0]]


def stationary(tile: Any) -> None:
    """The matrix that Tensor keeps."""
    rows = tile.shape[0]
    product = nl.ndarray((rows, rows), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=_columns(tile), moving=small(rows, rows))


def moving(tile: Any) -> None:
    """The matrix that Tensor moves past it."""
    rows = tile.shape[0]
    product = nl.ndarray((rows, rows), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=product, stationary=small(rows, rows), moving=_columns(tile))


def on_gpsimd(tile: Any) -> None:
    """An instruction on GpSimd."""
    nisa.memset(dst=tile[:, 0:1], value=3.0, engine=nisa.engine.gpsimd)


def by_scalar(tile: Any) -> None:
    """A column that a tensor chooses."""
    index = small(1, 1, dtype=nl.int32)
    column = tile.ap([[tile.shape[1], tile.shape[0]], [1, 1]], scalar_offset=index, indirect_dim=1)
    nisa.tensor_copy(dst=small(tile.shape[0], 1), src=column)


def by_register(tile: Any) -> None:
    """A column that a register chooses."""
    for index in nl.dynamic_range(2):
        column = tile.ap([[tile.shape[1], tile.shape[0]], [1, 1]], scalar_offset=index, indirect_dim=1)
        nisa.tensor_scalar(dst=column, data=column, op0=nl.add, operand0=1.0)


def as_index(tile: Any) -> None:
    """It chooses the column of another tile."""
    data = small(tile.shape[0], 4)
    column = data.ap([[4, tile.shape[0]], [1, 1]], scalar_offset=tile[0:1, 0:1], indirect_dim=1)
    nisa.tensor_copy(dst=small(tile.shape[0], 1), src=column)


def beside_dynamic(tile: Any) -> None:
    """Filled from an address that a tensor chooses."""
    index = small(1, 1, dtype=nl.int32)
    wide = small(tile.shape[0], 4)
    column = wide.ap([[4, tile.shape[0]], [1, 1]], scalar_offset=index, indirect_dim=1)
    nisa.tensor_copy(dst=tile[:, 0:1], src=column)


def with_all_partitions(tile: Any) -> None:
    """Vector reads it together with a tile that cannot move."""
    large = small(128, 1)
    nisa.tensor_tensor(dst=small(tile.shape[0], 1), data1=tile[:, 0:1], data2=large[0 : tile.shape[0]], op=nl.add)


def with_an_address(tile: Any) -> None:
    """Vector reads it together with a tile whose address is given."""
    given = small(tile.shape[0], 1, address=(0, 0))
    nisa.tensor_tensor(dst=small(tile.shape[0], 1), data1=given, data2=tile[:, 0:1], op=nl.add)


def on_scalar(tile: Any) -> None:
    """Scalar reads and writes it."""
    nisa.activation(dst=tile, op=nl.square, data=tile)


def upper_part(tile: Any) -> None:
    """Vector uses its upper half alone."""
    part = tile[tile.shape[0] // 2 : tile.shape[0]]
    nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=2.0)


def into_all_partitions(tile: Any) -> None:
    """Copied into a part of a tile that cannot move, and back."""
    large = small(128, 1)
    nisa.tensor_copy(dst=large[0 : tile.shape[0]], src=tile[:, 0:1])
    nisa.tensor_copy(dst=tile[:, 1:2], src=large[0 : tile.shape[0]])
    nisa.dma_copy(dst=tile[:, 0:1], src=large[0 : tile.shape[0]])
