"""The dimensions of a grid: which elements are selected, how they are stored, and what an index selects of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

import numpy as np

from nki.core.errors import ArgumentError, TensorError

SOURCE = "nki/api/generated/nki.language.tiles (NKI 0.7)"


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the source.

    Attributes:
        start, extent: which of its elements are selected.
        tile: elements of a tile; 1 where the dimension is not tiled.
        unit: tiles that one coordinate stands for; more than 1 in a grid of blocks.
        stride: storage elements from one element of a tile to the next.
        tile_stride: storage elements from one tile to the next.
        tiled: whether `tile_shape` covers the dimension.
        open: whether it still has a coordinate, because no int selected one.
    """

    start: int
    extent: int
    tile: int
    unit: int
    stride: int
    tile_stride: int
    tiled: bool
    open: bool = True

    @property
    def step(self) -> int:
        """Elements that one coordinate stands for."""
        return self.tile * self.unit

    @property
    def count(self) -> int:
        """Coordinates; the last one may stand for fewer elements."""
        return -(-self.extent // self.step)

    @property
    def offset(self) -> int:
        """Storage elements before the selection, which starts with a tile."""
        return self.start // self.tile * self.tile_stride

    @property
    def regular(self) -> bool:
        """Whether one stride leads through the whole selection."""
        return self.extent <= self.tile or self.tile_stride == self.tile * self.stride

    def at(self, first: int, last: int, still_open: bool) -> Axis:
        """Coordinates `first` to `last`, exclusive."""
        start = self.start + first * self.step
        end = min(self.start + self.extent, self.start + last * self.step)
        return replace(self, start=start, extent=end - start, open=still_open)


def selected(axes: tuple[Axis, ...], key: Any) -> tuple[Axis, ...]:
    """The dimensions after indexing with `key`."""
    open_axes = [axis for axis in axes if axis.open]
    chosen = {id(axis): _pick(axis, item) for axis, item in zip(open_axes, _keys(key, len(open_axes)), strict=True)}
    return tuple(chosen.get(id(axis), axis) for axis in axes)


def _keys(key: Any, count: int) -> list[Any]:
    """One index for each coordinate."""
    given = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, item in enumerate(given) if isinstance(item, EllipsisType)]
    if len(given) - len(dots) > count or len(dots) > 1:
        raise _bad_index(f"{len(given)} indices for {count} coordinates", "give one index for each coordinate")
    fill = [slice(None)] * (count - len(given) + len(dots))
    at = dots[0] if dots else len(given)
    return [*given[:at], *fill, *given[at + 1 :]]


def _pick(axis: Axis, item: Any) -> Axis:
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        index = int(item) + (axis.count if item < 0 else 0)
        if not 0 <= index < axis.count:
            raise _bad_index(f"index {item} of {axis.count}", f"use 0 to {axis.count - 1}")
        return axis.at(index, index + 1, False)
    if isinstance(item, range) and item and item.start >= 0:
        item = slice(item.start, item.stop, item.step)
    if isinstance(item, slice) and item.step in (None, 1):
        first, last, _ = item.indices(axis.count)
        if first >= last or (item.stop is not None and item.stop > axis.count):
            raise _bad_index(f"range {item.start}:{item.stop} of {axis.count}", f"stay within 0:{axis.count}")
        return axis.at(first, last, True)
    raise _bad_index(
        f"index {item!r}"[:80], "use ints that Python knows, and ranges of step 1; at run time, use tensor.select"
    )


def checked_sizes(shape: Any, name: str, function: str) -> tuple[int, ...]:
    """A tuple of positive ints, as it is."""
    if not isinstance(shape, tuple) or not all(type(size) is int for size in shape):
        raise bad_argument(function, f"{name} is {shape!r}"[:120], f"pass {name}=(128, 512)")
    if not shape or min(shape) < 1:
        raise bad_tile(function, f"{name} is {shape}")
    return shape


def check_rank(tile: Sequence[int], sizes: Sequence[int], on_chip: bool, function: str) -> None:
    """Raise TensorError if tiles of this rank do not fit."""
    if len(tile) < 2 or len(tile) > len(sizes) or (on_chip and len(tile) != len(sizes)):
        raise bad_tile(function, f"tile_shape is {tuple(tile)} for {list(sizes)} {'on chip' if on_chip else 'in HBM'}")


def bad_tile(function: str, message: str) -> TensorError:
    """The error for a shape that does not fit."""
    return TensorError(
        "grid.tile-shape",
        f"nl.{function}: {message}",
        rule="tiles have positive sizes and at least two dimensions, the last ones of the tensor; on chip all of them",
        source=SOURCE,
        fix="give a tile shape for the last dimensions of the tensor, such as (128, 512)",
    )


def bad_argument(function: str, message: str, fix: str) -> ArgumentError:
    """The error for an argument of another kind."""
    return ArgumentError(
        "grid.shape", f"nl.{function}: {message}", rule="shapes are tuples of ints", source=SOURCE, fix=fix
    )


def _bad_index(message: str, fix: str) -> TensorError:
    return TensorError(
        "grid.index", f"grid: {message}", rule="coordinates of a grid are known while tracing", source=SOURCE, fix=fix
    )
