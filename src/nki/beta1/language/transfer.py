"""Data between HBM and the chip: load, store, copy, load_transpose2d."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki.beta1.errors import refused
from nki.beta1.language.arguments import hints_only, kind_of
from nki.beta1.language.memory import check_partitions
from nki.beta1.tensors.access import Access
from nki.beta1.tensors.dynamic import is_dynamic
from nki.beta1.tensors.mask import Mask, Region, region_of, whole_box
from nki.beta1.tensors.memory import Memory
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.assignment import assigned_region
from nki.beta1.tracing.elementwise import elementwise
from nki.beta1.tracing.operands import in_hbm, on_chip, part_of, tile
from nki.beta1.tracing.pending import issued_where_assigned
from nki.beta1.tracing.results import placed
from nki.beta1.tracing.scalars import as_tile
from nki.beta1.tracing.session import current
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, VectorOffset
from nki.language.arguments import is_number
from nki.language.assignment import assign as assign_today
from nki.language.broadcasting import fit
from nki.language.combine import copied, in_sbuf
from nki.language.memory import new_tile
from nki.spec.engine import oob_mode as OobMode


def load(src: Any, *, mask: Any = None, dtype: Any = None, mode: OobMode = OobMode.error, **kwargs: Any) -> Tensor:
    """A new SBUF tile with the elements of an HBM tensor; its first axis becomes the partitions, a vector one column.

    Where the mask is false nothing is read, and the tile is undefined. A tile of indices chooses rows at run time:
    ``nl.load(tensor[idx[i_p, 0], i_f])``.

    Args:
        mode: whether indices of run time that are outside raise, or leave their rows of the tile as they are.
    """
    hints_only("nl.load", kwargs)
    source = in_hbm(src, "src", "load")
    kind = kind_of(dtype, source.dtype)
    region = _masked(source, mask)
    shape = source.shape if source.ndim > 1 else (*source.shape, 1) if source.shape else (1, 1)
    check_partitions(shape)
    if not region.rest and region.box == whole_box(source.access.shape):
        elements = source.elements()
        return issued_where_assigned(
            "nl.load", nisa.dma_copy, shape, kind, MemoryRegion.sbuf, src=elements, oob_mode=mode
        )
    current("nl.load")
    made = new_tile(shape, kind)
    for box in () if region.empty else region.boxes():
        key = tuple(slice(low, high) for low, high in box)
        nisa.dma_copy(dst=made[key], src=source.elements(box), oob_mode=mode)
    return _existing(made, region)


def store(dst: Any, value: Any, *, mask: Any = None, mode: OobMode = OobMode.error, **kwargs: Any) -> None:
    """Write a tile or a number to an HBM tensor, where the mask is true.

    A tile of indices chooses rows at run time: ``nl.store(tensor[idx[i_p, 0], i_f], tile)``.

    Args:
        mode: whether indices of run time that are outside raise, or are skipped.
    """
    hints_only("nl.store", kwargs)
    target = in_hbm(dst, "dst", "store")
    target, value = Tensor(target.memory, target.access, target.joined(mask)), as_tile(value)
    if is_number(value):
        if mode is not OobMode.error:
            raise refused("argument", f"nl.store of {value!r} with mode={mode.name}", "store a tile of nl.full")
        for box in target.region().boxes():
            _store_number(target.elements(box), value)
        return
    source = on_chip(value, "value", "store")
    region = assigned_region(target, source)
    if region.empty:
        return
    for box in region.boxes():
        nisa.dma_copy(dst=target.elements(box), src=_source(source, box, target), oob_mode=mode)


def _source(source: Tensor, box: Any, target: Tensor) -> NkiTensor:
    found = in_sbuf(tile(source, "value", "store", part_of(box, source, target.shape)))
    wanted = tuple(high - low for low, high in box)
    if found.shape != wanted and found.size != _size(wanted):
        return fit(found, wanted)
    return found


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for each in shape:
        size *= each
    return size


def _store_number(target: NkiTensor, value: Any) -> None:
    plain = value.item() if hasattr(value, "item") else value
    assign_today(target, plain)


def copy(src: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """A new tile with the elements of another one."""
    hints_only("nl.copy", kwargs)
    kind = kind_of(dtype, on_chip(src, "src", "copy").dtype)
    return elementwise("nl.copy", [src], mask, lambda value: copied(value, kind), explicit=dtype is not None)


def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """A new SBUF tile ``(columns, rows)`` with the transpose of a tensor ``(rows, columns)`` in HBM.

    The mask counts in the axes of `src`. A number of run time may move the access.
    """
    hints_only("nl.load_transpose2d", kwargs)
    source = in_hbm(src, "src", "load_transpose2d")
    if is_dynamic(source.access) and isinstance(source.elements().view_record.dynamic, VectorOffset):
        raise refused(
            "indirect_indices_are_not_supported_with_nki_api",
            f"'load_transpose2d' of {source.describe()} by indices of run time",
            "load the rows first: nl.load(tensor[idx[i_p, 0], i_f]), and transpose the tile",
        )
    kind, region = kind_of(dtype, source.dtype), _masked(source, mask)
    if region.empty:
        return _existing(new_tile(source.shape[::-1], kind), Region(tuple((0, 0) for _ in source.shape)))
    return placed(
        "nl.load_transpose2d",
        lambda: nl.load_transpose2d(source.elements(region.box), dtype=kind),
        source.shape[::-1],
        region.transposed(source.shape),
    )


def _masked(source: Tensor, mask: Any) -> Region:
    return source.region() if mask is None else region_of(source.joined(mask), source.access.shape)


def _existing(made: NkiTensor, region: Region) -> Tensor:
    """A tile of which a mask left out a part."""
    memory = Memory.of(made)
    box = region.box if len(region.box) == made.ndim else (*region.box, (0, 1))[: made.ndim]
    whole = all(low == 0 and high == size for (low, high), size in zip(box, made.shape, strict=True))
    mask = Mask(region.rest) if region.rest else None
    memory.exists = None if whole else box
    return Tensor(memory, Access.of_whole(made.shape), mask)


Tensor.functions["copy"] = copy
