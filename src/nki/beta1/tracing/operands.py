"""Tensors of the first NKI as operands of today's instructions: in the right memory, and where a mask leaves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import nki.isa as nisa
from nki.beta1.errors import Beta1TypeError, refused
from nki.beta1.tensors.access import Access
from nki.beta1.tensors.mask import Box, Region, region_of, whole_box
from nki.beta1.tensors.tensor import Tensor, without_ones
from nki.core.nki_tensor import NkiTensor
from nki.core.shown import shown
from nki.core.tensor import MemoryRegion
from nki.language.arguments import is_number
from nki.language.broadcasting import spread
from nki.language.combine import in_sbuf
from nki.language.memory import new_tile
from nki.spec.sink import current_target
from nki.spec.verify import merged_dims

Number = bool | int | float


def tile(value: Any, name: str, function: str, box: Box | None = None, *, sbuf: bool = False) -> NkiTensor:
    """A tile as an operand, all of it or a box.

    Args:
        sbuf: whether the instruction reaches no PSUM; a copy is made then.

    Raises:
        Beta1Error: no tensor on chip ("beta1.unsupported_memory", "beta1.argument").
    """
    checked = on_chip(value, name, function)
    wanted = whole_box(checked.access.shape) if box is None else box
    if checked.memory.exists is not None:
        seen = checked.visible()
        if seen is None:
            checked = _of_all(checked)
        elif any([low < a or high > b for (low, high), (a, b) in zip(wanted, seen, strict=True)]):
            checked, wanted = _filled_up(checked, seen, wanted), tuple((0, high - low) for low, high in wanted)
    found = checked.elements(wanted)
    partitions = wanted[0][1] - wanted[0][0] if wanted else 1
    found = reachable(found)
    if found.shape[0] != partitions:
        found = spread(found, partitions)
    return in_sbuf(found) if sbuf else found


def engines_reach(view: NkiTensor) -> bool:
    """Whether engines reach a part of SBUF or PSUM: they begin at certain partitions, and walk few free dimensions."""
    record, target = view.view_record, current_target()
    shape, access = record.shape, target.access
    at_start = record.buffer.address is None and record.offset < record.strides[0]
    if at_start and shape[0] <= target.partitions and len(shape) - 1 <= access.max_free_dims:
        return True  # as most do
    if len(record.shape) - 1 > access.max_free_dims and merged_dims(record) > access.max_free_dims:
        return False
    return record.start_partition in access.start_partitions(record.shape[0])


def reachable(view: NkiTensor) -> NkiTensor:
    """A part of a tile as it is, or a copy if no engine reaches it; a DMA brings it there."""
    if engines_reach(view):
        return view
    source, before = (view, 0) if view.buffer is MemoryRegion.sbuf else _with_rows_before(view)
    first = new_tile(view.shape, view.dtype)
    nisa.dma_copy(dst=first, src=in_sbuf(source)[before:])
    return first


def changed(view: NkiTensor, issue: Callable[[NkiTensor], Any]) -> None:
    """Change elements of a part of a tile, by way of a copy if no engine reaches it."""
    own = reachable(view)
    issue(own)
    if own is not view:
        brought(view, own)


def brought(view: NkiTensor, source: NkiTensor) -> None:
    """Copy to a part of a tile that no engine reaches."""
    if view.buffer is MemoryRegion.sbuf:
        nisa.dma_copy(dst=view, src=source)
        return
    wide, before = _with_rows_before(view)
    rows = in_sbuf(wide)
    nisa.dma_copy(dst=rows[before:], src=source)
    nisa.tensor_copy(dst=wide, src=rows)


def _with_rows_before(view: NkiTensor) -> tuple[NkiTensor, int]:
    """A part of PSUM with as many partitions before it as an engine needs, because no DMA reaches PSUM."""
    record, access = view.view_record, current_target().access
    start, count = record.start_partition, record.shape[0]
    more = next((more for more in range(start + 1) if start - more in access.start_partitions(count + more)), 0)
    wide = record._replace(shape=(count + more, *record.shape[1:]), offset=record.offset - more * record.row)
    return NkiTensor.of(wide, view.storage), more


def on_chip(value: Any, name: str, function: str) -> Tensor:
    """A tile of SBUF or PSUM."""
    if isinstance(value, Tensor) and value.memory.partition is not None:
        return value
    if isinstance(value, Tensor):
        raise refused(
            "unsupported_memory",
            f"expected operand '{name}' of '{function}' to be in address space 'sbuf|psum', "
            f"but got {value.describe()} instead",
            f"load it first: nl.load({value.name})",
        )
    raise not_a_tensor(value, name, function, "a tile")


def in_hbm(value: Any, name: str, function: str) -> Tensor:
    """A tensor of HBM."""
    if isinstance(value, Tensor) and not value.on_chip:
        return value
    if isinstance(value, Tensor):
        raise refused(
            "unsupported_memory",
            f"expected operand '{name}' of '{function}' to be in address space 'hbm', "
            f"but got {value.describe()} instead",
            "tiles on chip are assigned: tile[...] = value",
        )
    raise not_a_tensor(value, name, function, "a tensor in HBM")


def not_a_tensor(value: Any, name: str, function: str, wanted: str) -> Exception:
    """The error for an argument that is no tensor."""
    return refused(
        "argument",
        f"expected operand '{name}' of '{function}' to be {wanted}, but got {shown(value)} instead",
        "pass what nl.load, nl.ndarray or another instruction returned",
        kind=Beta1TypeError,
    )


def common_region(function: str, operands: Sequence[Any], mask: Any) -> tuple[tuple[int, ...], Region]:
    """The shape that tiles broadcast to, and where a result exists: where the mask is true and all operands exist."""
    tensors = [each for each in operands if isinstance(each, Tensor)]
    shapes = [each.access.shape for each in tensors]
    shape = shapes[0] if shapes.count(shapes[0]) == len(shapes) else broadcast(function, shapes)
    region = region_of(mask, shape)
    for each in tensors:
        if each.mask is not None:
            own = each.region()
            region = _clipped(Region(region.box, region.rest + own.rest), own.box, each.shape, shape)
        if each.memory.exists is not None:
            region = _clipped(region, each.visible(), each.shape, shape)
    return shape, region


def _clipped(region: Region, seen: Box | None, own: Sequence[int], shape: tuple[int, ...]) -> Region:
    """What of a region an operand of some shape has, of which a box is there."""
    if seen is None or len(own) != len(shape) or seen == region.box:
        return region
    box = [
        (max(low, a), min(high, b)) if mine == size else (low, high)
        for (low, high), (a, b), mine, size in zip(region.box, seen, own, shape, strict=True)
    ]
    return Region(tuple([(low, max(low, high)) for low, high in box]), region.rest)


def boxed(function: str, region: Region) -> Region:
    """A region that is a box.

    Raises:
        Beta1Error: a condition joins two axes ("beta1.unsupported_expression_in_mask").
    """
    if region.rest and not region.empty:
        raise refused(
            "unsupported_expression_in_mask",
            f"the mask of {function} joins two axes",
            "give it a mask for each axis, or choose with nl.where before",
            rule="the mask of an instruction that combines or moves elements leaves a rectangular part of them",
        )
    return region


def part_of(box: Box, operand: Tensor, shape: tuple[int, ...]) -> Box:
    """The box of an operand that meets a box of the shape that it broadcasts to.

    Of an operand with another rank, axes of size 1 are put in or left out; else partitions meet partitions, and free
    dimensions align at the end.
    """
    own = operand.access.shape
    if own == shape:
        return box
    if len(own) == len(shape):
        return tuple(part if size == total else (0, 1) for part, size, total in zip(box, own, shape, strict=True))
    if without_ones(own) == without_ones(shape):
        parts = iter([part for part, total in zip(box, shape, strict=True) if total != 1])
        return tuple(next(parts) if size != 1 else (0, 1) for size in own)
    more = len(shape) - len(own)
    aligned = zip((box[0], *box[1 + more :]), own, (shape[0], *shape[1 + more :]), strict=True)
    return tuple(part if size == total else (0, size) for part, size, total in aligned)


def broadcast(function: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Partitions meet partitions, free dimensions align at the end, and a size of 1 repeats."""
    rank = max(len(shape) for shape in shapes)
    padded = [(shape[0], *[1] * (rank - len(shape)), *shape[1:]) for shape in shapes]
    sizes = [{size for size in dim if size != 1} for dim in zip(*padded, strict=True)]
    if any(len(found) > 1 for found in sizes):
        raise refused(
            "failed_to_broadcast",
            f"{function}: shapes {' and '.join(str(list(shape)) for shape in shapes)} do not broadcast together",
            "index one of them so that the sizes agree, or put an axis in with None",
        )
    return tuple(found.pop() if found else 1 for found in sizes)


def plain(value: Any) -> Any:
    """A number of NumPy, or a program id, as a number of Python; anything else as it is."""
    if type(value) is float or type(value) is int:
        return value
    if is_number(value) and hasattr(value, "item"):
        return value.item()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _filled_up(value: Tensor, seen: Box, wanted: Box) -> Tensor:
    """A tile with what exists of a box; the rest is as undefined as on the device."""
    made = new_tile(tuple(high - low for low, high in wanted), value.dtype)
    both = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(seen, wanted, strict=True)]
    if all(low < high for low, high in both):
        key = tuple(slice(low - a, high - a) for (low, high), (a, _) in zip(both, wanted, strict=True))
        part, source = made[key], value.elements(tuple(both))
        move = nisa.tensor_copy if engines_reach(part) and engines_reach(source) else nisa.dma_copy
        move(dst=part, src=source)
    return Tensor.of(made)


def _of_all(value: Tensor) -> Tensor:
    """An access to a tile that exists in parts of it which are no box of the access: to a tile of all elements."""
    memory = value.memory
    if memory.exists is not None and (memory.whole is None or memory.whole.shape != memory.sizes):
        part = Tensor(memory, Access.of_whole(memory.sizes))
        everything = tuple((0, size) for size in memory.sizes)
        memory = _filled_up(part, memory.exists, everything).memory
    return Tensor(replace(memory, exists=None, blocks={}), value.access, value.mask)
