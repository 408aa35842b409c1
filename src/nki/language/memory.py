"""Allocation: ndarray, and tensors that start with a value, in every memory region."""

from __future__ import annotations

from math import prod
from typing import Any

import nki.isa as nisa
from nki.core.access import DynamicSlice
from nki.core.dtypes import DType
from nki.core.errors import ArgumentError
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister, not_python
from nki.core.shown import shown
from nki.core.tensor import MemoryRegion, whole
from nki.language.arguments import integer, is_number, number, public, result_dtype
from nki.language.arguments import tile as checked_tile
from nki.spec.allocation import check_fit, checked_address, checked_dtype, checked_name, checked_region, checked_shape
from nki.spec.sink import current_sink

FILL_BYTES = 2048
"""Bytes per partition of the SBUF tile that HBM tensors are filled from: DMA is at full rate from 2 KiB on."""


@public
def ndarray(
    shape: Any, dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "", address: Any = None
) -> NkiTensor:
    """A new tensor with unknown contents.

    Args:
        shape: positive sizes; on chip the first one is the number of partitions.
        dtype: an NKI dtype.
        buffer: nl.sbuf, nl.psum, nl.hbm (private) or nl.shared_hbm.
        name: for messages and profiles.
        address: explicit ``(start partition, byte offset)`` on chip.
    """
    sink = current_sink("nl.ndarray")
    region = checked_region(buffer)
    if type(shape) is not tuple and is_number(shape) and is_number(dtype):
        raise ArgumentError(
            "tensor.shape",
            f"the shape is {shown(shape)}, and the dtype {shown(dtype)}",
            rule="a shape is a tuple of ints",
            fix=f"write ({shape}, {dtype}), dtype=...",
        )
    sizes, kind, place = checked_shape(shape, region), checked_dtype(dtype), checked_address(address)
    check_fit(sizes, kind, region, place, sink.target, sink.exceeded)
    storage = sink.allocate(sizes, kind, region, checked_name(name), place)
    return NkiTensor.of(whole(storage.buffer), storage)


def new_tile(shape: tuple[int, ...], dtype: DType) -> NkiTensor:
    """A new SBUF tile, for results."""
    return ndarray(shape, dtype, MemoryRegion.sbuf)


def copied_tile(shape: tuple[int, ...], dtype: DType) -> NkiTensor:
    """A new SBUF tile that is filled from PSUM; the compiler may let what reads it read PSUM instead."""
    sink = current_sink("nl.ndarray")
    check_fit(shape, dtype, MemoryRegion.sbuf, None, sink.target, sink.exceeded)
    storage = sink.allocate(shape, dtype, MemoryRegion.sbuf, "", None, "copy")
    return NkiTensor.of(whole(storage.buffer), storage)


def filled_tile(shape: tuple[int, ...], dtype: DType, value: float) -> NkiTensor:
    """A new SBUF tile of one value."""
    tile = new_tile(shape, dtype)
    nisa.memset(dst=tile, value=value)
    return tile


@public
def zeros(shape: Any, dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A new tensor of zeros; arguments as for `ndarray`."""
    return _full(shape, 0, dtype, buffer, name)


@public
def ones(shape: Any, dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A new tensor of ones; arguments as for `ndarray`."""
    return _full(shape, 1, dtype, buffer, name)


@public
def full(
    shape: Any, fill_value: Any, dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = ""
) -> NkiTensor:
    """A new tensor of one value, which the dtype must be able to hold; other arguments as for `ndarray`.

    HBM tensors are written by DMA from a small SBUF tile.
    """
    return _full(shape, number(fill_value, "fill_value", "full"), dtype, buffer, name)


@public
def zeros_like(x: Any, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """Zeros in the shape of `x`, and in its dtype and memory region unless others are given."""
    like = _any_tensor(x, "zeros_like")
    return _full(like.shape, 0, result_dtype(dtype, like.dtype), like.buffer if buffer is None else buffer, name)


@public
def empty_like(x: NkiTensor, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """A new tensor with unknown contents in the shape of `x`, and in its dtype and region unless others are given."""
    like = _any_tensor(x, "empty_like")
    return ndarray(like.shape, result_dtype(dtype, like.dtype), like.buffer if buffer is None else buffer, name)


@public
def ds(start: int, size: int) -> DynamicSlice:
    """``tensor[ds(start, size)]``: `size` elements from `start`, both ints."""
    if isinstance(start, VirtualRegister):
        raise not_python("the start of nl.ds", "write tensor.ap([[stride, count], ...], scalar_offset=register)")
    return DynamicSlice(integer(start, "start", "ds"), integer(size, "size", "ds"))


def _any_tensor(x: Any, function: str) -> NkiTensor:
    return x if isinstance(x, NkiTensor) else checked_tile(x, "x", function)


def _full(shape: Any, value: float, dtype: Any, buffer: Any, name: str) -> NkiTensor:
    tensor = ndarray(shape, dtype, buffer, name)
    if tensor.buffer.on_chip:
        nisa.memset(dst=tensor, value=value)
    else:
        fill_hbm(tensor, value)
    return tensor


def fill_hbm(tensor: NkiTensor, value: float) -> None:
    """Write one value into a contiguous HBM tensor: full tiles, then full rows, then the rest of a row."""
    partitions = current_sink("nl.full").target.partitions
    total = prod(tensor.shape)
    columns = min(-(-total // partitions), FILL_BYTES // tensor.dtype.itemsize)
    rows = min(partitions, -(-total // columns))
    tile = filled_tile((rows, columns), tensor.dtype, value)
    flat = tensor.reshape((total,))
    done = 0
    while done < total:
        count = min(rows, (total - done) // columns)
        width = columns if count else total - done
        size = max(count, 1) * width
        nisa.dma_copy(dst=flat[done : done + size], src=tile[0 : max(count, 1), 0:width])
        done += size
