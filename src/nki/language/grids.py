"""Grids of tiles: tensors that are indexed by tile or by block of tiles instead of by element."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, NoReturn, TypeVar

from nki.core.dtypes import DType
from nki.core.errors import ArgumentError, TensorError
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, NKIObject, ScalarOffset, contiguous_strides
from nki.language.arguments import public
from nki.language.grid_axes import SOURCE, Axis, bad_argument, bad_tile, check_rank, checked_sizes, selected
from nki.language.memory import ndarray
from nki.spec.allocation import checked_region

G = TypeVar("G", bound="NkiGrid")


class NkiGrid(NKIObject):
    """A tensor, or a part of one, whose coordinates count tiles or blocks: what `tiles` and `blocks` return.

    ``grid[i, j]`` selects one coordinate and ``grid[i, :]`` a range of them; both are grids again, and nothing is
    copied. ``grid.data`` is the selection as a tensor, for instructions.
    """

    __slots__ = ("_axes", "_tensor")

    _axes: tuple[Axis, ...]
    _tensor: NkiTensor

    def __init__(self, **kwargs: Any) -> None:
        raise ArgumentError(
            "grid.construct",
            f"{type(self).__name__} was called",
            rule="grids are made from tensors",
            source=SOURCE,
            fix="call nl.tiles(tensor, tile_shape=...) or nl.blocks(tensor, tile_shape=..., block_shape=...)",
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of coordinates in each dimension that has one left."""
        return tuple(axis.count for axis in self._axes if axis.open)

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """Elements of a whole tile."""
        return tuple(axis.tile for axis in self._axes if axis.tiled)

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Elements of the selection, exact at the border; dimensions without tiles vanish when an int selects them."""
        return tuple(axis.extent for axis in self._axes if axis.tiled or axis.open)

    @property
    def index_step_elements(self) -> tuple[int, ...]:
        """Elements from one coordinate to the next, in each dimension that has one left."""
        return tuple(axis.step for axis in self._axes if axis.open)

    @property
    def is_remainder(self) -> bool:
        """Whether the selection ends with a coordinate that stands for fewer elements than the others."""
        return any(axis.extent % axis.step != 0 for axis in self._axes if axis.tiled)

    @property
    def is_data_representable(self) -> bool:
        """Whether `data` exists: one access pattern leads through the selection."""
        return all(axis.regular for axis in self._axes)

    @property
    def dtype(self) -> DType:
        """dtype of the elements."""
        return self._tensor.dtype

    @property
    def buffer(self) -> MemoryRegion:
        """Memory region of the tensor."""
        return self._tensor.buffer

    @property
    def data(self) -> NkiTensor:
        """The selection as a tensor of `element_shape`.

        Raises:
            TensorError: tiles of the selection lie behind each other in the partitions that hold them all, so that no
                access pattern has this shape (``grid.data``).
        """
        if not self.is_data_representable:
            raise TensorError(
                "grid.data",
                f"a selection of {list(self.element_shape)} elements with tiles of {list(self.tile_shape)} in "
                f"{self.buffer}",
                rule="one access pattern leads through the selection (is_data_representable)",
                source=SOURCE,
                fix="select one tile in each dimension that is stored tile by tile",
            )
        view = self._tensor.view_record
        kept = [axis for axis in self._axes if axis.tiled or axis.open]
        moved = view._replace(
            shape=tuple(axis.extent for axis in kept),
            strides=tuple(axis.stride for axis in kept),
            offset=view.offset + sum(axis.offset for axis in self._axes),
        )
        return self._tensor._with(moved)

    def __getitem__(self: G, key: Any) -> G:
        return self._of(self._tensor, selected(self._axes, key))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> NoReturn:
        raise TensorError(
            "grid.iteration",
            f"a grid of {list(self.shape)} cannot be iterated",
            fix="loop over range(grid.shape[0]) and index",
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.shape)} of {self.dtype}{list(self.tile_shape)} in {self.buffer})"

    @classmethod
    def _of(cls: type[G], tensor: NkiTensor, axes: tuple[Axis, ...]) -> G:
        grid = object.__new__(cls)
        grid._tensor, grid._axes = tensor, axes
        return grid


class NkiTileGrid(NkiGrid):
    """A grid whose coordinates count tiles."""

    __slots__ = ()


class NkiBlockGrid(NkiGrid):
    """A grid whose coordinates count blocks of tiles."""

    __slots__ = ()

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Tiles of a whole block."""
        return tuple(axis.unit for axis in self._axes if axis.tiled)


@public
def tiles(source: NkiTensor | NkiGrid, *, tile_shape: tuple[int, ...] | None = None) -> NkiTileGrid:
    """The tensor as a grid of tiles, of which those at the end may be smaller; or the tiles of a grid's selection.

    Args:
        source: tensor, or grid.
        tile_shape: elements of a tile in the last dimensions of the tensor, at least two. Dimensions before them, which
            only HBM tensors can have, count element by element. A grid has its tile shape already.

    Raises:
        ArgumentError: a shape is no tuple of ints (``grid.shape``).
        TensorError: a shape that does not fit the tensor (``grid.tile-shape``).
    """
    axes = _axes(source, tile_shape, "tiles")
    return NkiTileGrid._of(_tensor(source), axes)


@public
def blocks(
    source: NkiTensor | NkiGrid, *, tile_shape: tuple[int, ...] | None = None, block_shape: tuple[int, ...]
) -> NkiBlockGrid:
    """The tensor as a grid of blocks of tiles, of which those at the end may be smaller.

    Args:
        source, tile_shape: as in `tiles`.
        block_shape: tiles of a block in each tiled dimension.

    Raises:
        ArgumentError, TensorError: as `tiles`.
    """
    axes = _axes(source, tile_shape, "blocks")
    return NkiBlockGrid._of(_tensor(source), _grouped(axes, block_shape, "blocks"))


@public
def alloc_tiles(
    *,
    tile_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: Any,
    address: Any = None,
    name: str = "",
) -> NkiTileGrid:
    """New storage with unknown contents as a grid of tiles.

    In HBM it is a tensor of `element_shape`. In SBUF and PSUM whole tiles lie one behind the other in the free
    dimension, in row-major order, so that there may be more rows than partitions.

    Args:
        tile_shape: elements of a tile in the last dimensions, at least two; on chip in all dimensions.
        element_shape: elements of all tiles together.
        buffer, dtype, address, name: as in `ndarray`.

    Raises:
        ArgumentError, TensorError: as `tiles`.
    """
    return NkiTileGrid._of(*_allocated(tile_shape, element_shape, buffer, dtype, address, name, "alloc_tiles"))


@public
def alloc_blocks(
    *,
    tile_shape: tuple[int, ...],
    block_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: Any,
    address: Any = None,
    name: str = "",
) -> NkiBlockGrid:
    """New storage with unknown contents as a grid of blocks of tiles; stored like that of `alloc_tiles`.

    Args:
        block_shape: tiles of a block in each tiled dimension.
        tile_shape, element_shape, buffer, dtype, address, name: as in `alloc_tiles`.

    Raises:
        ArgumentError, TensorError: as `tiles`.
    """
    tensor, axes = _allocated(tile_shape, element_shape, buffer, dtype, address, name, "alloc_blocks")
    return NkiBlockGrid._of(tensor, _grouped(axes, block_shape, "alloc_blocks"))


def _allocated(
    tile_shape: Any, element_shape: Any, buffer: Any, dtype: Any, address: Any, name: str, function: str
) -> tuple[NkiTensor, tuple[Axis, ...]]:
    tile = checked_sizes(tile_shape, "tile_shape", function)
    sizes = checked_sizes(element_shape, "element_shape", function)
    on_chip = checked_region(buffer).on_chip
    check_rank(tile, sizes, on_chip, function)
    if not on_chip:
        tensor = ndarray(sizes, dtype, buffer, name, address)
        return tensor, _axes(tensor, tile, function)
    counts = [-(-size // length) for size, length in zip(sizes, tile, strict=True)]
    row = prod(tile[1:])
    tensor = ndarray((tile[0], prod(counts) * row), dtype, buffer, name, address)
    strides = (tensor.strides[0], *contiguous_strides(tile[1:]))
    steps = contiguous_strides(tuple(counts))
    return tensor, tuple(
        Axis(0, size, length, 1, stride, step * row, True)
        for size, length, stride, step in zip(sizes, tile, strides, steps, strict=True)
    )


def _axes(source: Any, tile_shape: Any, function: str) -> tuple[Axis, ...]:
    """The dimensions of a tensor, or those of a grid with all coordinates of its selection, in tiles."""
    if isinstance(source, NkiGrid):
        if tile_shape is not None and checked_sizes(tile_shape, "tile_shape", function) != source.tile_shape:
            raise bad_tile(function, f"tile_shape is {tile_shape}, the grid has tiles of {source.tile_shape}")
        return tuple(replace(axis, unit=1, open=axis.open or axis.tiled) for axis in source._axes)
    if not isinstance(source, NkiTensor):
        raise bad_argument(function, f"source is {type(source).__name__} {source!r}"[:160], "pass a tensor or a grid")
    view = source.view_record
    tile = checked_sizes(tile_shape, "tile_shape", function)
    check_rank(tile, view.shape, view.on_chip, function)
    if not isinstance(view.dynamic, ScalarOffset | None):
        raise bad_tile(function, "source chooses its rows by an index tensor")
    lengths = (*(1 for _ in range(view.ndim - len(tile))), *tile)
    return tuple(
        Axis(0, size, length, 1, stride, length * stride, i >= view.ndim - len(tile))
        for i, (size, length, stride) in enumerate(zip(view.shape, lengths, view.strides, strict=True))
    )


def _tensor(source: NkiTensor | NkiGrid) -> NkiTensor:
    return source._tensor if isinstance(source, NkiGrid) else source


def _grouped(axes: tuple[Axis, ...], block_shape: Any, function: str) -> tuple[Axis, ...]:
    block = checked_sizes(block_shape, "block_shape", function)
    tiled = [axis for axis in axes if axis.tiled]
    if len(block) != len(tiled):
        raise bad_tile(function, f"block_shape is {block}, tiles have {len(tiled)} dimensions")
    units = iter(block)
    return tuple(replace(axis, unit=next(units)) if axis.tiled else axis for axis in axes)
