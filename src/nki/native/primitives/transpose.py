"""Transposes of items of 1, 2 and 4 bytes, in squares that fit the registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nki.native.primitives.abi import GATHER, RECORD_ARGUMENTS, SCATTER, SCRATCH, row_helper, slot
from nki.native.primitives.writer import POINTER, SHARED_CODE, FunctionBuilder

Value = Callable[[str], str]
"""Makes the result of an operation, which has this text."""

SIDE = 16
_LANE = 16
"""Bytes of a vector within which processors move items most cheaply."""
_PLANE_KINDS = (POINTER, POINTER, "i64", "i64", "i64", "i64")
_ROOM = 1 << 20
"""Bytes of scratch for a gathered source, and as many for a destination before it is scattered."""


def plane(
    w: FunctionBuilder, size: int, places: tuple[str, str], extents: tuple[str, str], strides: tuple[str, str]
) -> None:
    """dst[r, c] = src[c, r] for items of `size` bytes.

    Args:
        places: destination and source; they do not overlap.
        extents: rows and columns of the destination.
        strides: bytes from row to row of each; the items of a row are contiguous.
    """
    w.call(f"plane_{size}", [*places, *extents, *strides], _PLANE_KINDS)


def plane_function(size: int) -> str:
    """What `plane` calls."""
    w = FunctionBuilder()
    with w.loop(0, "%columns", SIDE) as column, w.loop(0, "%rows", SIDE) as row:
        src = w.at(w.at("%src", w.mul(column, "%ss")), w.mul(row, size))
        dst = w.at(w.at("%dst", w.mul(row, "%ds")), w.mul(column, size))
        rows, columns = w.sub("%rows", row), w.sub("%columns", column)
        whole = w.both(w.is_("sge", rows, SIDE), w.is_("sge", columns, SIDE))
        w.branch(whole, lambda: _square(w, size, dst, src), lambda: _edge(w, size, (dst, src), (rows, columns)))
    w.done()
    arguments = ["%dst: !llvm.ptr", "%src: !llvm.ptr", "%rows: i64", "%columns: i64", "%ds: i64", "%ss: i64"]
    return w.function(f"plane_{size}", arguments, "", SHARED_CODE)


def _square(w: FunctionBuilder, size: int, dst: str, src: str) -> None:
    def load(kind: str, row: int, first: int) -> str:
        return w.load(kind, w.at(w.at(src, w.mul("%ss", row)), first * size))

    for i, column in enumerate(square(w.value, load, size)):
        w.store(column, f"vector<{SIDE}xi{8 * size}>", w.at(dst, w.mul("%ds", i)))


def square(value: Value, load: Callable[[str, int, int], str], size: int) -> Iterator[str]:
    """The columns of a square of items of `size` bytes, as vectors of integers.

    Rows are read in pieces, which are put together with those of rows that are as far apart as a lane has items, so
    that each lane is a square of its own. `load` gets the kind of a piece, its row, and the first column.
    """
    lane = _LANE // size
    for first in range(0, SIDE, lane):
        rows = []
        for i in range(lane):
            pieces = [load(f"vector<{lane}xi{8 * size}>", row, first) for row in range(i, SIDE, lane)]
            rows.append(_joined(value, pieces, lane, size))
        yield from transposed(value, rows, f"vector<{SIDE}xi{8 * size}>")


def _joined(value: Value, pieces: list[str], items: int, size: int) -> str:
    """Vectors of so many items one behind the other."""
    while len(pieces) > 1:
        kind, lanes = f"vector<{items}xi{8 * size}>", list(range(2 * items))
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        pieces = [value(f"vector.shuffle {one}, {two} {lanes} : {kind}, {kind}") for one, two in pairs]
        items *= 2
    return pieces[0]


def transposed(value: Value, rows: list[str], kind: str) -> list[str]:
    """The columns of the squares that lie side by side in rows; `value` makes the result of an operation.

    The halves are interleaved as often as the side of a square is a power of two. Items stay in their lane of the
    vector, which processors can do without a table of indices.
    """
    side = len(rows)
    half = side // 2
    order = [item // 2 + (item % 2) * SIDE for item in range(side)]
    low = [first + item for first in range(0, SIDE, side) for item in order]
    high = [item + half for item in low]
    for _ in range(half.bit_length()):
        rows = [
            value(f"vector.shuffle {rows[i]}, {rows[i + half]} {mask} : {kind}, {kind}")
            for i in range(half)
            for mask in (low, high)
        ]
    return rows


def _edge(w: FunctionBuilder, size: int, places: tuple[str, str], extents: tuple[str, str]) -> None:
    kind = f"i{8 * size}"
    (dst, src), (rows, columns) = places, extents
    last_row = w.op("minsi", rows, w.constant(SIDE))
    last_column = w.op("minsi", columns, w.constant(SIDE))
    with w.loop(0, last_row) as row, w.loop(0, last_column) as column:
        item = w.load(kind, w.at(w.at(src, w.mul(column, "%ss")), w.mul(row, size)))
        w.store(item, kind, w.at(w.at(dst, w.mul(row, "%ds")), w.mul(column, size)))


def transpose_text(name: str, size: int) -> str:
    """A record function: slot 0 (P partitions of F elements) becomes slot 1 (F partitions of P elements) transposed.

    Returns 1 if an operand that is not contiguous within partitions exceeds the scratch memory.
    """
    w = FunctionBuilder()
    dst, src = slot(w, 0), slot(w, 1)
    rows, columns = w.word("%words", 2), w.word("%words", 3)
    room = w.is_("sle", w.mul(w.mul(rows, columns), size), _ROOM)
    fits = w.either(w.both(dst.unit, src.unit), room)
    with w.when(w.both(fits, w.is_("slt", "%first", "%last"))):
        scratch = w.word("%ctx", SCRATCH, POINTER)
        dense = w.mul(rows, size)
        with w.loop(0, w.select(src.unit, 0, columns)) as row:
            start = w.at(src.pointer, w.mul(row, src.stride))
            row_helper(w, GATHER[size], (w.at(scratch, w.mul(row, dense)), start, src.dims))
        source = w.select(src.unit, src.pointer, scratch, POINTER)
        source_stride = w.select(src.unit, src.stride, dense)
        buffer = w.at(scratch, _ROOM)
        target = w.select(dst.unit, dst.pointer, buffer, POINTER)
        target_stride = w.select(dst.unit, dst.stride, w.mul(columns, size))
        places = (w.at(target, w.mul("%first", target_stride)), w.at(source, w.mul("%first", size)))
        plane(w, size, places, (w.sub("%last", "%first"), columns), (target_stride, source_stride))
        with w.loop(w.select(dst.unit, "%last", "%first"), "%last") as row:
            start = w.at(dst.pointer, w.mul(row, dst.stride))
            row_helper(w, SCATTER[size], (start, w.at(buffer, w.mul(row, target_stride)), dst.dims))
    failed = w.select(fits, w.constant(0, "i32"), w.constant(1, "i32"), "i32")
    w.done(failed, "i32")
    return plane_function(size) + w.function(name, RECORD_ARGUMENTS, "i32")
