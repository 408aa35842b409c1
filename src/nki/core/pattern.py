"""Explicit access patterns: the form in which the hardware addresses memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki.core.dims import check_one_element, dim_of
from nki.core.dtypes import DType, as_dtype
from nki.core.errors import FrontendError, TensorError
from nki.core.register import VirtualRegister
from nki.core.tensor import ScalarOffset, VectorOffset, View, contiguous_strides

MAX_DIMS = 5


def pattern(
    view: View,
    pairs: Sequence[Sequence[int]],
    offset: int | None = None,
    scalar_offset: View | VirtualRegister | None = None,
    vector_offset: View | None = None,
    indirect_dim: int = 0,
    dtype: Any = None,
    of_view: bool = False,
) -> View:
    """An explicit ``[[stride, count], ...]`` pattern over the storage of `view` (the hardware's own form).

    `offset` counts from the start of the view's storage offset; the pattern replaces shape and strides. Dynamic offsets
    are scaled by the shape of the base tensor, and the leading stride is ignored under `vector_offset`
    (nki/deep-dives/nki-aps.rst). Whether the pattern stays inside the storage is a separate question: `check_inside`.
    With `of_view`, a pattern whose first stride is one partition of the view, and not of the tile, counts in the view.
    """
    base = view._replace(dtype=as_dtype(dtype)) if dtype is not None else view
    shape, strides = _pairs(pairs)
    start = _base_offset(view, base.dtype) + (0 if offset is None else int(offset))
    result = base._replace(shape=shape, strides=strides, offset=start, dynamic=None)
    if scalar_offset is not None and vector_offset is not None:
        raise TensorError("access.two-offsets", "scalar_offset and vector_offset exclude each other", fix="give one")
    if view.on_chip:
        result = (_pattern_of_view(result, view) if of_view else None) or _partition_pair(result, view)
    if scalar_offset is not None:
        check_one_element(scalar_offset)
        result = result._replace(dynamic=ScalarOffset(scalar_offset, _scale(view, base.dtype, indirect_dim)))
    if vector_offset is not None:
        _vector_pattern(result, vector_offset, indirect_dim)
        result = result._replace(dynamic=VectorOffset(vector_offset, _scale(view, base.dtype, 0)))
    return result


def _pairs(pairs: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    try:
        steps = tuple(int(step.__index__()) for step, _ in pairs)
        counts = tuple(int(count.__index__()) for _, count in pairs)
    except FrontendError:
        raise
    except (TypeError, ValueError, AttributeError):
        raise TensorError(
            "access.pattern",
            f"{pairs!r} is not a list of [stride, count] pairs of ints",
            fix="write it as [[stride, count], ...], outermost first",
        ) from None
    if not 0 < len(counts) <= MAX_DIMS:
        raise TensorError(
            "access.pattern-rank",
            f"the pattern has {len(counts)} dimensions",
            fix="merge dimensions",
            rule=f"a pattern has 1 to {MAX_DIMS} dimensions",
            source="nki/deep-dives/nki-aps.rst",
        )
    if any(count < 1 for count in counts):
        raise TensorError(
            "access.empty", f"the pattern {[list(p) for p in pairs]} holds no element", fix="use counts of at least 1"
        )
    return counts, steps


def _base_offset(view: View, dtype: DType) -> int:
    offset_bytes = view.offset * view.dtype.itemsize
    if offset_bytes % dtype.itemsize:
        raise TensorError(
            "access.view",
            f"byte offset {offset_bytes} is not a whole number of {dtype}",
            fix="start the view at a multiple of the new size",
        )
    return offset_bytes // dtype.itemsize


def _partition_pair(result: View, view: View) -> View:
    if len(result.shape) == 1:
        raise TensorError(
            "access.pattern-rank",
            "an on-chip pattern needs a partition pair and a free pair",
            fix=f"write [[{result.row}, partitions], [1, count]]",
        )
    if result.strides[0] != result.row and result.shape[0] != 1:
        if view.free_size != view.row:
            raise _stride_of_part(result, view)
        raise TensorError(
            "access.partition-stride",
            f"the first pair has stride {result.strides[0]}, but one partition of "
            f"{view.describe()} holds {result.row} elements of {result.dtype}",
            rule="the first stride of an on-chip pattern steps by one partition",
            source="nki/deep-dives/nki-aps.rst",
            fix=f"use stride {result.row} in the first pair",
        )
    return result._replace(strides=(result.row, *result.strides[1:]))


def _pattern_of_view(result: View, view: View) -> View | None:
    """The pattern over the flattened view, as nki-aps.rst has it up to Neuron 2.29, if its first stride says so.

    None if it does not, if the view's free dimensions are no sequence of equal steps, or if the pattern would leave a
    partition or the view.
    """
    if len(result.shape) == 1 or result.shape[0] == 1:
        return None  # no step from partition to partition
    sizes, steps = view.shape[1:], view.strides[1:]
    free, remainder = divmod(view.free_size * view.dtype.itemsize, result.dtype.itemsize)
    if view.free_size == view.row or remainder or result.strides[0] != free:
        return None
    long = [stride for size, stride in zip(sizes, steps, strict=True) if size > 1] if view.dtype == result.dtype else []
    step = long[-1] if long else 1
    flat = contiguous_strides(sizes)
    if any(size > 1 and stride != step * unit for size, stride, unit in zip(sizes, steps, flat, strict=True)):
        return None
    start = _base_offset(view, result.dtype)
    partition, first = divmod(result.offset - start, free)
    spans = [stride * (count - 1) for stride, count in zip(result.strides[1:], result.shape[1:], strict=True)]
    low, high = (first + sum(bound(0, span) for span in spans) for bound in (min, max))
    if low < 0 or high >= free or partition < 0 or partition + result.shape[0] > view.shape[0]:
        return None
    strides = (result.row, *(stride * step for stride in result.strides[1:]))
    return result._replace(strides=strides, offset=start + partition * result.row + first * step)


def _stride_of_part(result: View, view: View) -> TensorError:
    """The error for a pattern that takes the strides of a slice for those of its own; the slice's are in the fix."""
    free = view.strides if result.shape == view.shape and result.dtype == view.dtype else result.strides
    pairs = [list(pair) for pair in zip((result.row, *free[1:]), result.shape, strict=True)]
    cast = "" if result.dtype == view.buffer.dtype else f", dtype=nl.{result.dtype}"
    cured = _pattern_of_view(result, view) is not None
    older = ', or set NKI_API_VERSION=0.4, or write @nki.jit(api="0.4"): there the pattern counts elements of the view'
    return TensorError(
        "access.partition-stride",
        f"the first pair has stride {result.strides[0]}, but {view.describe()} is a part of {view.buffer.name}, "
        f"one partition of which holds {result.row} elements of {result.dtype}",
        rule="a pattern counts elements of the whole tile, whichever view of it .ap is called on, "
        "and its first stride steps by one partition",
        source="nki/deep-dives/nki-aps.rst, Composition and .ap on a view",
        fix=f"call it on the whole tile: tile.ap({pairs}, offset={result.offset}{cast}){older if cured else ''}",
    )


def _scale(view: View, dtype: DType, dim: int) -> int:
    """Elements that one step of a dynamic index moves: the stride of the base view's dimension, not the pattern's."""
    return view.strides[dim_of(view, dim)] * view.dtype.itemsize // dtype.itemsize


def _vector_pattern(result: View, index_view: View, indirect_dim: int) -> None:
    if result.on_chip or indirect_dim != 0:
        raise TensorError(
            "access.vector-offset",
            f"vector_offset on {result.describe()} with indirect_dim={indirect_dim}",
            rule="vector_offset indexes dimension 0 of an HBM tensor",
            source="nki/deep-dives/nki-aps.rst",
            fix="index an HBM tensor with indirect_dim=0",
        )
    if not index_view.on_chip:
        raise TensorError(
            "access.index-region",
            f"the index tensor is {index_view.describe()}",
            rule="indices are read from SBUF",
            fix="load the indices into SBUF first",
        )


def check_inside(view: View) -> None:
    """Static patterns must stay inside the buffer, on chip inside the partition; dynamic ones wait until they run."""
    if view.dynamic is not None:
        return
    dims = list(zip(view.shape, view.strides, strict=True))
    start, total, unit = view.offset, view.buffer.nbytes // view.dtype.itemsize, "the tensor"
    if view.on_chip and 0 <= start < total:
        last = start // view.row + view.shape[0] - 1
        if last >= view.buffer.partitions:
            raise TensorError(
                "access.out-of-bounds",
                f"the pattern reaches partition {last} of {view.buffer.name}, which has {view.buffer.partitions}",
                fix="shorten the first pair",
            )
        dims, start, total, unit = dims[1:], start % view.row, view.row, "one partition"
    low = start + sum(min(0, s * (n - 1)) for n, s in dims)
    high = start + sum(max(0, s * (n - 1)) for n, s in dims)
    if low < 0 or high >= total:
        pairs = [list(p) for p in zip(view.strides, view.shape, strict=True)]
        raise TensorError(
            "access.out-of-bounds",
            f"pattern {pairs} at offset {view.offset} touches elements {low} to "
            f"{high}, but {unit} of {view.buffer.name} holds {total} of {view.dtype}",
            facts={"low": low, "high": high, "elements": total},
            fix="shorten the pattern",
        )
