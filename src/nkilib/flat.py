"""Tensors of any shape as the elements that they have, loaded and stored in blocks that fill the partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nki.language as nl
from nkilib import limits
from nkilib.rows import RowBlock, row_blocks
from nkilib.streaming import load, store

FLOATS = (nl.bfloat16, nl.float16, nl.float32)


def checked(numel: int, scalars: dict[str, Any] | None = None, **tensors: Any) -> None:
    """Check tensors of `numel` elements each, of float dtypes, and scalars that come 128 times, (128, 1).

    Raises:
        KernelLimit: another number of elements, another shape of a scalar, dtypes.
    """
    limits.between("numel", numel, 1, 2**31 - 1)
    for name, tensor in tensors.items():
        limits.between(f"the number of elements of {name}", tensor.size, numel, numel, f"numel is {numel}")
        limits.dtype(name, tensor, FLOATS)
    for name, tensor in (scalars or {}).items():
        limits.shape(name, tensor, (nl.tile_size.pmax, 1))
        limits.dtype(name, tensor, FLOATS)


def scalar(tensor: Any) -> Any:
    """A scalar (128, 1) in float32, one on each partition."""
    return load(tensor, nl.float32)


def blocks(numel: int, dtype: Any) -> list[RowBlock]:
    """Elements that are in SBUF together, divided among the cores of the launch."""
    return row_blocks(numel, dtype.itemsize)


def tiles(block: RowBlock, *tensors: Any) -> Iterator[Any]:
    """These elements of tensors of HBM: (partitions, elements of each), one after the other."""
    for tensor in tensors:
        yield load(_of(block, tensor))


def put(block: RowBlock, tensor: Any, tile: Any) -> None:
    """Elements into a tensor of HBM."""
    store(_of(block, tensor), tile)


def _of(block: RowBlock, tensor: Any) -> Any:
    flat = tensor.reshape((tensor.size,))
    return flat[block.span].reshape((block.partitions, block.each))
