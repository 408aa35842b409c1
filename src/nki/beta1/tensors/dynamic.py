"""Indices of run time: the values of a tile choose rows of an HBM tensor, or a position on one free dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nki.beta1.errors import refused
from nki.beta1.tensors.access import Access
from nki.beta1.tensors.mask import Box
from nki.core.dtypes import int32, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import Dynamic, MemoryRegion, ScalarOffset, VectorOffset

if TYPE_CHECKING:
    from nki.beta1.tensors.memory import Memory

_INDEX_KINDS = (int32, uint32)


def is_dynamic(access: Access) -> bool:
    """Whether the values of a tile take part in the index."""
    for axis in access.axes:  # noqa: SIM110 - a loop takes half the time, and every access asks
        if axis.tile is not None:
            return True
    return False


def dynamic_of(memory: Memory, access: Access, box: Box | None) -> tuple[Dynamic, NkiTensor]:
    """What the address adds at run time, and the tile that holds it.

    A tile ``(N, 1)`` along the first axis gives each row of the access an index of its own; one element alone moves
    all of the access.

    Raises:
        Beta1Error: two indices of run time, or one that varies along a free axis
            ("beta1.indirect_indices_free_dim"); one on the partitions of a tile on chip
            ("beta1.copy_dynamic_indirect_indices_not_natively_supported").
    """
    dims = [dim for dim, axis in enumerate(access.axes) if axis.tile is not None]
    if len(dims) > 1:
        raise _not_supported(memory, f"dimensions {dims} have an index of run time", "add both indices to one tile")
    (dim,) = dims
    index = access.axes[dim].tile.tile
    if memory.partition is not None and dim <= memory.partition:
        raise refused(
            "copy_dynamic_indirect_indices_not_natively_supported",
            f"dimension {dim} of tensor `{memory.name}`{list(memory.sizes)} on chip has an index of run time",
            "index a free dimension, or keep the tensor in HBM",
            rule="the partitions of a tile on chip are known when the kernel is compiled",
        )
    shape = (1,) * (len(access.shape) - index.ndim) + index.shape
    scale = memory.steps[dim]
    if all(size == 1 for size in shape):
        found = _index_tile(index, None)
        return ScalarOffset(found.view_record, scale), found
    if memory.on_chip or index.ndim != len(access.shape[: index.ndim]) or any(size != 1 for size in index.shape[1:]):
        raise _not_supported(
            memory,
            f"the index tile {list(index.shape)} of dimension {dim} varies along a free axis",
            "give it one index for each partition: nl.load(tensor[idx[i_p, 0], i_f])",
        )
    if access.shape[0] != index.shape[0] or any(axis.steps[:1] != (0,) for axis in access.axes):
        raise _not_supported(
            memory,
            f"other indices of tensor `{memory.name}` vary along the axis of the index tile",
            "use nl.arange for the free axes alone; nl.mgrid of the partitions adds to each index",
        )
    found = _index_tile(index, None if box is None else box[0])
    return VectorOffset(found.view_record, scale), found


def _index_tile(index: Any, rows: tuple[int, int] | None) -> NkiTensor:
    """The indices as instructions take them: integers of 32 bits in SBUF."""
    tile = index
    if index.dtype not in _INDEX_KINDS or index.buffer is not MemoryRegion.sbuf:
        if not index.dtype.is_integer:
            raise refused(
                "argument",
                f"the index tile {index.describe()} holds no integers",
                "load the indices as int32 or uint32",
            )
        tile = index.astype(int32)
    box = None if rows is None else (rows, *((0, size) for size in tile.shape[1:]))
    found: NkiTensor = tile.elements(box)
    return found


def _not_supported(memory: Memory, what: str, fix: str) -> Exception:
    return refused(
        "indirect_indices_free_dim",
        f"tensor `{memory.name}`{list(memory.sizes)}: {what}",
        fix,
        rule="dynamic indexing only supports the indirect index to be on the partition or block dimension",
    )
