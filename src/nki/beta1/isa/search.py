"""Searches on Vector, eight values at a time, gathers, and runs of equal ids."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
from nki.beta1.errors import refused
from nki.beta1.isa.shared import copied_to_sbuf, region_of_input, tiles
from nki.beta1.language.arguments import hints_only, kind_of
from nki.beta1.tensors.mask import Region
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.operands import plain, tile
from nki.beta1.tracing.results import placed, undefined
from nki.core.dtypes import uint32
from nki.core.nki_tensor import NkiTensor
from nki.language.combine import cast, in_sbuf
from nki.language.memory import new_tile

_SLOTS = 8
_MOST_DIMENSIONS = 3
_CORE_PARTITIONS = 16


def max8(*, src: Any, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """The eight largest values of each partition in falling order: a tile ``(P, 8)``."""
    name = "max8"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, src=src)
    kind, region = kind_of(dtype, source.dtype), region_of_input(name, source, mask)
    if region.empty:
        return undefined(name, [source], (source.shape[0], _SLOTS))
    value = flat(tile(source, "src", name, region.box))

    def compute() -> NkiTensor:
        made = new_tile((value.shape[0], _SLOTS), kind)
        nisa.max8(dst=made, src=value)
        return made

    return _eight(name, compute, source, region, dtype)


def nc_find_index8(*, data: Any, vals: Any, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """Where each of eight values is in its partition first: a tile ``(P, 8)`` of uint32, or uint16.

    The mask counts in the axes of `data`.
    """
    name = "nc_find_index8"
    hints_only(f"nisa.{name}", kwargs)
    source, wanted = tiles(name, data=data, vals=vals)
    kind, region = kind_of(dtype, uint32), region_of_input(name, source, mask)
    if region.empty:
        return undefined(name, [source], (source.shape[0], _SLOTS))
    value, eight = flat(tile(source, "data", name, region.box)), _rows(wanted, "vals", name, region)

    def compute() -> NkiTensor:
        made = new_tile((value.shape[0], _SLOTS), kind)
        nisa.nc_find_index8(dst=made, data=value, vals=eight)
        return made

    return _eight(name, compute, source, region, dtype)


def nc_match_replace8(
    *, data: Any, vals: Any, imm: Any, dst_idx: Any = None, mask: Any = None, dtype: Any = None, **kwargs: Any
) -> Tensor:
    """`data` with the first occurrence of each of eight values replaced by `imm`; their places in `dst_idx`.

    The mask counts in the axes of `data`: elsewhere the result is undefined.
    """
    name = "nc_match_replace8"
    hints_only(f"nisa.{name}", kwargs)
    source, wanted = tiles(name, data=data, vals=vals)
    kind, region = kind_of(dtype, source.dtype), region_of_input(name, source, mask)
    if region.empty:
        return undefined(name, [source], source.shape)
    value, eight = tile(source, "data", name, region.box), _rows(wanted, "vals", name, region)
    places = None
    if dst_idx is not None:
        (result,) = tiles(name, dst_idx=dst_idx)
        places = result.elements(_row_box(result, region))

    def compute() -> NkiTensor:
        made = new_tile(value.shape, kind)
        wide, whole = flat(value), flat(made)
        nisa.nc_match_replace8(dst=whole, data=wide, vals=eight, imm=float(plain(imm)), dst_idx=places)
        return made

    return placed(name, compute, source.shape, region, explicit=dtype is not None)


def _rows(value: Tensor, role: str, name: str, region: Region) -> NkiTensor:
    return tile(value, role, name, _row_box(value, region))


def _row_box(value: Tensor, region: Region) -> tuple[tuple[int, int], ...]:
    return (region.box[0], *((0, size) for size in value.shape[1:]))


def _eight(name: str, compute: Any, source: Tensor, region: Region, dtype: Any) -> Tensor:
    box = Region((region.box[0], (0, _SLOTS)))
    return placed(name, compute, (source.shape[0], _SLOTS), box, explicit=dtype is not None)


def flat(value: NkiTensor) -> NkiTensor:
    """A tile with at most three dimensions, as searches take it."""
    if value.ndim <= _MOST_DIMENSIONS:
        return value
    whole = value if value.is_contiguous() else copied_to_sbuf(value)
    return whole.reshape((value.shape[0], value.view_record.free_size))


def local_gather(
    src_buffer: Any, index: Any, num_elem_per_idx: int = 1, num_valid_indices: int | None = None, *, mask: Any = None
) -> Tensor:
    """Elements of each partition by the indices of its 16 partitions: a tile ``(P, K, 16, elements)`` for ``(P, K)``.

    Args:
        index: uint16; the 16 partitions of a core are read down the partitions first.
        num_elem_per_idx: elements from each index on: 1, 2, 4, 8, 16 or 32.
        num_valid_indices: how many indices of a core count; all by default.
        mask: leaves out whole groups of 16 partitions.
    """
    name = "local_gather"
    source, places = tiles(name, src_buffer=src_buffer, index=index)
    region, count = region_of_input(name, places, mask), int(num_elem_per_idx)
    rows, each = region.box[0], places.elements().view_record.free_size
    shape = (places.shape[0], each, _CORE_PARTITIONS, count)
    if region.empty:
        return undefined(name, [source], shape)
    if any((low, high) != (0, size) for (low, high), size in zip(region.box[1:], places.shape[1:], strict=True)):
        raise refused(
            "unsupported_expression_in_mask",
            f"the mask of '{name}' leaves out a part of the indices of a partition",
            "pass num_valid_indices, or a slice of the index tile",
        )
    value, found = _of_rows(source, rows, "src_buffer"), _of_rows(places, rows, "index")

    def compute() -> NkiTensor:
        made = new_tile((value.shape[0], each, _CORE_PARTITIONS, count), value.dtype)
        valid = each * _CORE_PARTITIONS if num_valid_indices is None else int(num_valid_indices)
        nisa.local_gather(
            dst=made.reshape((value.shape[0], each * _CORE_PARTITIONS * count))[:, : valid * count],
            src_buffer=value,
            index=found,
            num_elem_per_idx=count,
            num_valid_indices=valid,
        )
        return made

    return placed(name, compute, shape, Region((rows, *((0, size) for size in shape[1:]))))


def _of_rows(value: Tensor, rows: tuple[int, int], role: str) -> NkiTensor:
    return tile(value, role, "local_gather", (rows, *((0, size) for size in value.shape[1:])), sbuf=True)


def sequence_bounds(*, segment_ids: Any, dtype: Any = None) -> Tensor:
    """Where the run of equal ids around each element begins and ends: a tile ``(1, 2, n)`` for ``(1, n)``."""
    name = "sequence_bounds"
    (source,) = tiles(name, segment_ids=segment_ids)
    kind, value = kind_of(dtype, source.dtype), in_sbuf(tile(source, "segment_ids", name))

    def compute() -> NkiTensor:
        made = new_tile((value.shape[0], 2, value.view_record.free_size), value.dtype)
        nisa.sequence_bounds(dst=made, segment_ids=value)
        return cast(made, kind)

    return placed(name, compute, explicit=dtype is not None)
