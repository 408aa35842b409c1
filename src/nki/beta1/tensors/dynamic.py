"""Indices of run time: the values of a tile choose rows of an HBM tensor, or a number moves all of an access."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

from nki.beta1.errors import refused
from nki.beta1.tensors.access import Access
from nki.beta1.tensors.mask import Box
from nki.beta1.tensors.scalar import Scalar
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


def moves_by_number(access: Access) -> bool:
    """Whether numbers of run time alone take part in the index, and no tile."""
    return all(axis.tile is None or axis.tile.is_number for axis in access.axes)


def dynamic_of(memory: Memory, access: Access, box: Box | None) -> tuple[Dynamic | None, NkiTensor | None]:
    """What the address adds at run time, and the tile that holds it, if one does.

    Numbers of run time are added up; nothing is left of ``i - i``. A tile ``(N, 1)`` along the first axis gives each
    row of the access an index of its own; one element alone moves all of the access.

    Raises:
        Beta1Error: two indices of run time, or one that varies along a free axis
            ("beta1.indirect_indices_free_dim"); one on the partitions of a tile on chip
            ("beta1.copy_dynamic_indirect_indices_not_natively_supported").
    """
    moved = {dim: axis.tile for dim, axis in enumerate(access.axes) if axis.tile is not None}
    if memory.partition in moved:
        raise _on_partitions(memory, memory.partition)
    if all(each.is_number for each in moved.values()):
        return _by_number(sum((each.value * memory.steps[dim] for dim, each in moved.items()), Scalar())), None
    if len(moved) > 1:
        raise _not_supported(memory, f"dimensions {list(moved)} have an index of run time", "add both to one tile")
    ((dim, tile),) = moved.items()
    index = tile.value
    if memory.partition is not None and dim <= memory.partition:
        raise _on_partitions(memory, dim)
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


def _by_number(moved: Scalar) -> Dynamic | None:
    """What a number of elements, which is known at run time, adds to an address."""
    moved.check()
    if moved.known:
        return None
    scale = gcd(*[factor for _, factor in moved.terms])
    number = Scalar([(root, factor // scale) for root, factor in moved.terms])
    return ScalarOffset(number.register().record, scale)


def _on_partitions(memory: Memory, dim: int) -> Exception:
    return refused(
        "copy_dynamic_indirect_indices_not_natively_supported",
        f"dimension {dim} of tensor `{memory.name}`{list(memory.sizes)} on chip has an index of run time",
        "index a free dimension, or keep the tensor in HBM",
        rule="the partitions of a tile on chip are known when the kernel is compiled",
    )


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
