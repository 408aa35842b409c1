"""Copies of items of 1, 2 and 4 bytes between any two strided operands."""

from __future__ import annotations

from nki.native.primitives.abi import RECORD_ARGUMENTS, SlotValues, dims_of, is_streamed, slot
from nki.native.primitives.nest import nest
from nki.native.primitives.rows import row, row_functions, stream
from nki.native.primitives.transpose import plane, plane_function
from nki.native.primitives.writer import FunctionBuilder

_SMALLEST = 4
"""Shorter dimensions are not worth a transpose."""


def copy_text(name: str, size: int) -> str:
    """A record function: slot 0 becomes slot 1, element by element; both have the same counts in all dimensions.

    Where one operand is contiguous in one dimension and the other in another one, squares of the two are transposed in
    registers. The operands are the same bytes in the same order, or do not overlap. A streamed destination has
    contiguous rows, and so has the source then.
    """
    w = FunctionBuilder()
    dst, src = slot(w, 0), slot(w, 1)
    axes = _axes(w, dst, src)
    along_dst, along_src = _contiguous(w, axes, 1, size), _contiguous(w, axes, 2, size)
    crossed = w.both(w.both(w.is_("sge", along_dst, 0), w.is_("sge", along_src, 0)), w.is_("ne", along_dst, along_src))

    def in_caches() -> None:
        w.branch(
            crossed,
            lambda: _planes(w, size, axes, (dst, src), (along_dst, along_src)),
            lambda: _rows(w, size, axes, dst, src),
        )

    w.branch(is_streamed(w, dst.dims), lambda: _streams(w, size, axes, dst, src), in_caches)
    w.done(w.constant(0, "i32"), "i32")
    return row_functions(size) + plane_function(size) + w.function(name, RECORD_ARGUMENTS, "i32")


Axis = tuple[str, str, str]
"""Count, and stride of the destination and of the source."""


def _axes(w: FunctionBuilder, dst: SlotValues, src: SlotValues) -> list[Axis]:
    """The partitions [first, last) and the dimensions of a partition."""
    there, here = dims_of(w, dst.dims), dims_of(w, src.dims)
    outer = (w.sub("%last", "%first"), dst.stride, src.stride)
    return [outer, *[(count, s, t) for (count, s), (_, t) in zip(there, here, strict=True)]]


def _contiguous(w: FunctionBuilder, axes: list[Axis], side: int, size: int) -> str:
    """The number of the last axis along which an operand is contiguous, -1 if there is none worth a transpose."""
    found = w.constant(-1)
    for number, axis in enumerate(axes):
        usable = w.both(w.is_("eq", axis[side], size), w.is_("sge", axis[0], _SMALLEST))
        found = w.select(usable, number, found)
    return found


def _starts(w: FunctionBuilder, dst: SlotValues, src: SlotValues) -> tuple[str, str]:
    return w.at(dst.pointer, w.mul("%first", dst.stride)), w.at(src.pointer, w.mul("%first", src.stride))


def _rows(w: FunctionBuilder, size: int, axes: list[Axis], dst: SlotValues, src: SlotValues) -> None:
    counts, there, here = zip(*axes, strict=True)
    to, start = _starts(w, dst, src)
    with nest(w, counts[:-1], [(to, there[:-1]), (start, here[:-1])]) as (place, source):
        row(w, size, place, source, counts[-1], (there[-1], here[-1]))


def _streams(w: FunctionBuilder, size: int, axes: list[Axis], dst: SlotValues, src: SlotValues) -> None:
    counts, there, here = zip(*axes, strict=True)
    to, start = _starts(w, dst, src)
    with nest(w, counts[:-1], [(to, there[:-1]), (start, here[:-1])]) as (place, source):
        stream(w, place, source, w.mul(counts[-1], size))


def _planes(
    w: FunctionBuilder, size: int, axes: list[Axis], slots: tuple[SlotValues, SlotValues], along: tuple[str, str]
) -> None:
    """Loops over the other axes, and a transpose of the two along which the operands are contiguous."""
    one = w.constant(1)
    counts = []
    rows, columns, dst_stride, src_stride = one, one, one, one
    for number, (count, there, here) in enumerate(axes):
        is_column, is_row = (w.is_("eq", each, number) for each in along)
        rows, dst_stride = w.select(is_row, count, rows), w.select(is_row, there, dst_stride)
        columns, src_stride = w.select(is_column, count, columns), w.select(is_column, here, src_stride)
        counts.append(w.select(w.either(is_row, is_column), one, count))
    to, start = _starts(w, *slots)
    walkers = [(to, [axis[1] for axis in axes]), (start, [axis[2] for axis in axes])]
    with nest(w, counts, walkers) as (dst, src):
        plane(w, size, (dst, src), (rows, columns), (dst_stride, src_stride))
