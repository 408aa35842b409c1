"""Tiles of test cases: what lies in a buffer, and the view of it that an instruction gets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import nki.language as nl
from nki.core.dtypes import DType
from nki.isa.copy import tensor_copy
from nki.isa.dma import dma_copy
from tests.isa.properties.formats import F64, bits_of, decoded, loaded

Shape = tuple[int, ...]
LAYOUTS = ("plain", "gaps", "turned", "corner", "backwards")
"""Views that can be written: the whole buffer, every other element, free dimensions in reverse order, away from all
borders, and an explicit pattern with a negative step in the last dimension."""


@dataclass(frozen=True, repr=False)
class Tile:
    """A view of a buffer that holds something from the start.

    Attributes:
        buffer: storage of the whole buffer.
        shape: of the view.
        layout: one of `LAYOUTS`, or "repeated": dimension 1 is broadcast.
        psum: whether it lies in PSUM, else in SBUF.
    """

    buffer: Any
    dtype: DType
    shape: Shape
    layout: str = "plain"
    psum: bool = False

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} {self.layout}{' psum' if self.psum else ''}"

    @cached_property
    def storage(self) -> Any:
        """``(P, F)`` storage values of the view."""
        return np.ascontiguousarray(part(self.buffer, self.layout, self.shape)).reshape(self.shape[0], -1)

    @cached_property
    def bits(self) -> Any:
        """``(P, F)`` as unsigned integers."""
        return bits_of(self.storage)

    @cached_property
    def exact(self) -> F64:
        """``(P, F)`` values, 32-bit integers as they are."""
        return decoded(self.storage, self.dtype)

    @cached_property
    def f32(self) -> F64:
        """``(P, F)`` float32 values."""
        return loaded(self.storage, self.dtype)

    @property
    def partitions(self) -> int:
        return self.shape[0]

    @property
    def count(self) -> int:
        """Elements per partition."""
        return int(np.prod(self.shape[1:]))


def buffer_shape(shape: Shape, layout: str) -> Shape:
    """Shape of the buffer that has a view of `shape` in it."""
    match layout:
        case "gaps":
            return (*shape[:-1], 2 * shape[-1] + 1)
        case "turned":
            return (shape[0], *reversed(shape[1:]))
        case "corner":
            return (_first(shape) + shape[0], *shape[1:-1], shape[-1] + 3)
        case "repeated":
            return (shape[0], 1, *shape[2:])
    return shape


def _first(shape: Shape) -> int:
    """First partition: engines start at multiples of 32 where the rest of the partitions suffices."""
    return 32 if shape[0] <= 32 else 64 if shape[0] <= 64 else 0


def part(buffer: Any, layout: str, shape: Shape) -> Any:
    """The NumPy view of a buffer."""
    match layout:
        case "gaps":
            return buffer[..., 1::2]
        case "turned":
            return np.transpose(buffer, (0, *range(buffer.ndim - 1, 0, -1)))
        case "corner":
            return buffer[_first(shape) :, ..., 2:-1]
        case "backwards":
            return buffer[..., ::-1]
        case "repeated":
            return np.broadcast_to(buffer, shape)
    return buffer


def view(buffer: Any, layout: str, shape: Shape) -> Any:
    """The same view of a tensor inside a kernel."""
    last = shape[-1]
    match layout:
        case "gaps":
            return buffer.slice(len(shape) - 1, 1, 2 * last, 2)
        case "turned":
            return buffer.permute((0, *range(len(shape) - 1, 0, -1)))
        case "corner":
            start = _first(shape)
            return buffer[start : start + shape[0]].slice(len(shape) - 1, 2, last + 2)
        case "backwards":
            strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape) - 1)]
            return buffer.ap([*([s, n] for s, n in zip(strides, shape, strict=False)), [-1, last]], offset=last - 1)
        case "repeated":
            return buffer.broadcast(1, shape[1])
    return buffer


def image(tile: Tile) -> Any:
    """The buffer as bytes, one row for each partition, to be passed to a kernel."""
    return np.ascontiguousarray(tile.buffer).view(np.uint8).reshape(tile.buffer.shape[0], -1)


def place(tile: Tile, argument: Any) -> Any:
    """The buffer on chip, from the argument that carries its bytes."""
    source = argument if tile.dtype.name == "uint8" else argument.view(tile.dtype)
    inner = nl.ndarray(tile.buffer.shape, tile.dtype, buffer=nl.sbuf)
    dma_copy(dst=inner, src=source.reshape(tile.buffer.shape))
    if not tile.psum:
        return inner
    outer = nl.ndarray(tile.buffer.shape, tile.dtype, buffer=nl.psum)
    tensor_copy(dst=outer, src=inner)
    return outer


def fetch(buffer: Any) -> Any:
    """The whole buffer as a result of the kernel."""
    if buffer.buffer is nl.psum:
        inner = nl.ndarray(buffer.shape, buffer.dtype, buffer=nl.sbuf)
        tensor_copy(dst=inner, src=buffer)
        buffer = inner
    out = nl.ndarray(buffer.shape, buffer.dtype, buffer=nl.shared_hbm)
    dma_copy(dst=out, src=buffer)
    return out
