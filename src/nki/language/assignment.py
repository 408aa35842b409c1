"""``tensor[key] = value``: the transfer that it stands for."""

from __future__ import annotations

from math import prod
from typing import Any

import nki.isa as nisa
from nki.core.errors import FrontendError
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.tensor import MemoryRegion
from nki.language.arguments import is_number, number
from nki.language.combine import in_sbuf
from nki.language.memory import FILL_BYTES, fill_hbm, filled_tile, new_tile
from nki.spec.instruction import NkiInstruction
from nki.spec.sink import current_sink


def assign(dst: NkiTensor, value: Any) -> None:
    """Write `value` into all of `dst`: by DMA if one of them is in HBM, else by nisa.tensor_copy or nisa.memset.

    Args:
        dst: a tensor or a view in any memory region.
        value: a tensor of any memory region with as many elements, on chip also as many per partition; or a number.

    Raises:
        FrontendError: `value` is neither (``tensor.assignment``).
        NkiError: what the instruction does not take.
    """
    if isinstance(value, NkiTensor):
        _move(dst, value)
    elif is_number(value):
        _fill(dst, number(value, "value", "full"))
    else:
        raise FrontendError(
            "tensor.assignment",
            f"{dst.describe()} is assigned {shown(value)}",
            rule="tensors and numbers can be assigned to a tensor",
            fix=_fix(dst, value),
        )


def _move(dst: NkiTensor, value: NkiTensor) -> None:
    """DMA does not reach PSUM: an SBUF tile is between PSUM and HBM (nki/api/nki/isa dma_copy)."""
    if dst.buffer.is_hbm:
        nisa.dma_copy(dst=dst, src=in_sbuf(value) if value.buffer.on_chip else value)
    elif value.buffer.on_chip:
        _check_block(dst, value)
        nisa.tensor_copy(dst=dst, src=value)
    elif dst.buffer is MemoryRegion.psum:
        tile = new_tile(dst.shape, value.dtype)
        nisa.dma_copy(dst=tile, src=value)
        nisa.tensor_copy(dst=dst, src=tile)
    else:
        nisa.dma_copy(dst=dst, src=value)


def _check_block(dst: NkiTensor, value: NkiTensor) -> None:
    """A block of a tensor was a tile once; the first dimension is the partition since."""
    if dst.shape[0] == 1 and dst.shape[1:] == value.shape:
        raise FrontendError(
            "tensor.assignment",
            f"{dst.describe()} is assigned {value.describe()}",
            rule="on chip dimension 0 is the partition: NKI 0.2 removed block dimensions",
            source="nki/migration/index.rst",
            fix="keep the blocks as a Python list of tiles, or put the partitions first and write tensor[:, block]",
        )


def _fill(dst: NkiTensor, value: float) -> None:
    if dst.buffer.on_chip:
        nisa.memset(dst=dst, value=value)
    elif dst.is_contiguous() and not dst.is_indirect():
        fill_hbm(dst, value)
    else:
        tile = filled_tile((_rows(dst), _columns(dst)), dst.dtype, value)
        _spread(dst, tile)


def _spread(dst: NkiTensor, tile: NkiTensor) -> None:
    """Write the one value of a tile into a view with gaps, of which each row is small enough or is split again."""
    rows, columns = tile.shape
    if dst.ndim == 1:
        for start in range(0, dst.shape[0], columns):
            stop = min(start + columns, dst.shape[0])
            nisa.dma_copy(dst=_part(dst, start, stop), src=tile[0:1, 0 : stop - start])
    elif prod(dst.shape[1:]) <= columns:
        for start in range(0, dst.shape[0], rows):
            stop = min(start + rows, dst.shape[0])
            nisa.dma_copy(dst=_part(dst, start, stop), src=tile[0 : stop - start, 0 : prod(dst.shape[1:])])
    else:
        for row in range(dst.shape[0]):
            _spread(dst[row], tile)


def _part(dst: NkiTensor, start: int, stop: int) -> NkiTensor:
    """All of a view is the view itself: a dimension with an index of run time cannot be sliced."""
    return dst if stop - start == dst.shape[0] else dst[start:stop]


def _rows(dst: NkiTensor) -> int:
    return 1 if dst.ndim == 1 else min(dst.shape[0], current_sink("tensor[...] = number").target.partitions)


def _columns(dst: NkiTensor) -> int:
    row = dst.shape[0] if dst.ndim == 1 else prod(dst.shape[1:])
    return min(row, FILL_BYTES // dst.dtype.itemsize)


def _fix(dst: NkiTensor, value: Any) -> str:
    if isinstance(value, NkiInstruction):
        return "pass dst=tensor[...] to the instruction: it writes there, and returns no tensor"
    if isinstance(value, VirtualRegister):
        store = "nisa.scalar_store(tensor[...], register)"
        return f"write {store}" if dst.dtype.is_integer else f"write {store} for an int32 tensor, and assign that one"
    if hasattr(value, "__array__"):
        return "pass the array as an argument of the kernel"
    return "assign a tensor of this kernel, or a number"
