"""Allocation: ndarray and its relatives, and slices by start and size."""

from __future__ import annotations

from typing import Any

from nki.core.access import DynamicSlice
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, whole
from nki.spec.allocation import check_fit, checked_address, checked_dtype, checked_region, checked_shape
from nki.spec.sink import current_sink


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
    sizes, kind, place = checked_shape(shape, region), checked_dtype(dtype), checked_address(address)
    check_fit(sizes, kind, region, place, sink.target)
    storage = sink.allocate(sizes, kind, region, name, place)
    return NkiTensor.of(whole(storage.buffer), storage)


def ds(start: int, size: int) -> DynamicSlice:
    """``tensor[ds(start, size)]``: `size` elements from `start`."""
    return DynamicSlice(start, size)
