"""The matrix product of microscaled operands, in the defined order."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from nki.native.primitives.abi import GATHER, LENGTH_BITS, RECORD_ARGUMENTS, SCRATCH, row_helper, slot
from nki.native.primitives.destination import Destination
from nki.native.primitives.matmul import ADD, FLOATS
from nki.native.primitives.scratch import LEFT, MOST_COLUMNS, MOST_ROWS, RESULT, RIGHT, ROW, ROWS
from nki.native.primitives.tile import LANES, call_tile, tile_functions
from nki.native.primitives.widen import PACKED, SCALE, Packed, first_lanes, load_raw, load_wide
from nki.native.primitives.writer import POINTER, SHARED_CODE, FunctionBuilder

QUADRANT = 32
GROUPS = 4
VALUES = 4
"""Partitions of a quadrant, groups of them that share a scale, and values of a packed element."""

OPERANDS = 4
"""Slots of a quadrant."""

_STEPS = QUADRANT * VALUES
_PACK = ("pack_stationary", "pack_moving")
_PACK_KINDS = (POINTER, POINTER, "i64", POINTER, "i64", "i64")
_PACK_ARGUMENTS = [
    *("%dst: !llvm.ptr", "%src: !llvm.ptr", "%stride: i64"),
    *("%scales: !llvm.ptr", "%scale_stride: i64", "%available: i64"),
]
_FLOATS = f"vector<{LANES}xf32>"
_ROOM = 4 * QUADRANT * MOST_COLUMNS
"""Bytes of the largest operand of a quadrant, for operands whose rows are not contiguous."""


class _ScaledProduct(NamedTuple):
    """What all quadrants share.

    Attributes:
        counts: M and N.
        scratch: pointer.
        sizes: bytes of an item of each operand of a quadrant.
    """

    counts: tuple[str, str]
    scratch: str
    sizes: tuple[int, int, int, int]

    def columns(self, operand: int) -> str:
        """Items in a row of it."""
        return self.counts[operand // 2]


class _RowOperand(NamedTuple):
    """An operand whose rows are contiguous."""

    pointer: str
    stride: str


def matmul_mx_text(name: str, stationary: str, moving: str, result: str = "float32") -> str:
    """A record function: slot 0 (M, N) becomes the sum over the quadrants of products, or that is added to it.

    Words: P = M, F = N. Then for each quadrant four slots: stationary (32, M), its scales (4, M),
    moving (32, N), its scales (4, N). Then the immediates: flags, as in `matmul_text`, and the number of quadrants.
    Partitions [first, last) are rows of the result.

    A value of an operand is its packed value times its scale. Within a quadrant sums ascend in k: all first values,
    partition by partition, then all second ones, and so on. Then quadrants are added, and their sum to slot 0. Returns
    1 if M is more than 128 or N more than 8192.

    Args:
        name: of the function.
        stationary, moving: names of dtypes in `PACKED`.
        result: name of slot 0's dtype, float32 or bfloat16.
    """
    w = FunctionBuilder()
    counts = w.word("%words", 2), w.word("%words", 3)
    sizes = PACKED[stationary].size, SCALE.size, PACKED[moving].size, SCALE.size
    job = _ScaledProduct(counts, w.word("%ctx", SCRATCH, POINTER), sizes)
    fits = w.both(w.is_("sle", counts[0], MOST_ROWS), w.is_("sle", counts[1], MOST_COLUMNS))
    with w.when(w.both(fits, w.is_("slt", "%first", "%last"))):
        _product(w, job, Destination(slot(w, 0), result, counts[1], job.scratch))
    w.done(w.select(fits, w.constant(0, "i32"), w.constant(1, "i32"), "i32"), "i32")
    packers = [
        _pack_function(packer, PACKED[dtype], columns)
        for packer, dtype, columns in zip(_PACK, (stationary, moving), (FLOATS.rows, FLOATS.columns), strict=True)
    ]
    return "".join([*packers, *tile_functions(FLOATS), w.function(name, RECORD_ARGUMENTS, "i32")])


def _product(w: FunctionBuilder, job: _ScaledProduct, dst: Destination) -> None:
    """What is not added goes to contiguous rows of float32 at once; all else by way of the scratch memory."""
    length = w.op("andi", w.word("%words", 1), w.constant((1 << LENGTH_BITS) - 1))
    immediates = w.at("%words", w.mul(w.sub(length, 2), 8))
    adds = w.is_("ne", w.op("andi", w.word(immediates, 0), w.constant(ADD)), 0)
    width = w.mul(job.counts[1], 4)
    result = w.at(job.scratch, RESULT)
    target, left = _RowOperand(result, width), "%first"
    if dst.dtype == "float32":
        at_once = w.select(adds, w.constant(0, "i1"), dst.slot.unit, "i1")
        pointer = w.select(at_once, dst.slot.pointer, result, POINTER)
        target, left = (
            _RowOperand(pointer, w.select(at_once, dst.slot.stride, width)),
            w.select(at_once, "%last", "%first"),
        )
    with w.loop(0, w.word(immediates, 1)) as quadrant:
        _quadrant(w, job, quadrant, target)
    with w.loop(left, "%last") as row:
        _put(w, dst, adds, row, w.at(result, w.mul(row, width)))


def _quadrant(w: FunctionBuilder, job: _ScaledProduct, quadrant: str, target: _RowOperand) -> None:
    """Pack the stationary operand, then panel by panel the moving one, and multiply."""
    operands = [_contiguous(w, job, quadrant, number) for number in range(OPERANDS)]
    left, right = w.at(job.scratch, LEFT), w.at(job.scratch, RIGHT)
    again = w.is_("ne", quadrant, 0)

    def packed(row: str) -> str:
        return w.at(left, w.mul(w.sub(row, "%first"), 4 * _STEPS))

    with w.loop("%first", "%last", FLOATS.rows) as row:
        _pack(w, job, 0, packed(row), operands, row, "%last")
    columns = job.counts[1]
    with w.loop(0, columns, FLOATS.columns) as column:
        _pack(w, job, 1, right, operands, column, columns)
        with w.loop("%first", "%last", FLOATS.rows) as row:
            dst = w.at(w.at(target.pointer, w.mul(row, target.stride)), w.mul(column, 4))
            extents = [w.constant(_STEPS), w.sub("%last", row), w.sub(columns, column)]
            call_tile(w, FLOATS, [dst, packed(row), right, *extents, target.stride, again])


def _pack(
    w: FunctionBuilder, job: _ScaledProduct, side: int, dst: str, operands: list[_RowOperand], start: str, end: str
) -> None:
    """The panel of columns from `start` on."""
    data, scales = operands[2 * side : 2 * side + 2]
    src = w.at(data.pointer, w.mul(start, job.sizes[2 * side]))
    factors = w.at(scales.pointer, w.mul(start, SCALE.size))
    w.call(_PACK[side], [dst, src, data.stride, factors, scales.stride, w.sub(end, start)], _PACK_KINDS)


def _contiguous(w: FunctionBuilder, job: _ScaledProduct, quadrant: str, number: int) -> _RowOperand:
    """An operand of a quadrant; its rows are gathered first if they are not contiguous."""
    operand = slot(w, w.add(w.mul(quadrant, OPERANDS), number + 1))
    size = job.sizes[number]
    gathered = w.at(job.scratch, ROWS + number * _ROOM)
    dense = w.mul(job.columns(number), size)
    with w.loop(0, w.select(operand.unit, 0, GROUPS if number % 2 else QUADRANT)) as row:
        src = w.at(operand.pointer, w.mul(row, operand.stride))
        row_helper(w, GATHER[size], (w.at(gathered, w.mul(row, dense)), src, operand.dims))
    pointer = w.select(operand.unit, operand.pointer, gathered, POINTER)
    return _RowOperand(pointer, w.select(operand.unit, operand.stride, dense))


def _put(w: FunctionBuilder, dst: Destination, adds: str, row: str, product: str) -> None:
    """A row of the product to the destination, or their sum."""
    before = w.at(dst.scratch, ROW)
    with w.when(adds):
        dst.read(w, row, before)
        with w.loop(0, dst.columns, LANES) as column:
            at = w.mul(column, 4)
            old, new = (w.load(_FLOATS, w.at(each, at), 4) for each in (before, product))
            w.store(w.op("addf", old, new, _FLOATS), _FLOATS, w.at(before, at), 4)
    dst.write(w, row, w.select(adds, before, product, POINTER))


def _pack_function(name: str, packed: Packed, columns: int) -> str:
    """``@name(dst, src, stride, scales, stride of scales, available)``: a panel of float32, in the order of k.

    The panel is filled with zeros where fewer than `columns` are available.
    """
    w = FunctionBuilder()
    width = min(columns, LANES)
    parts = columns // width
    vector = f"vector<{width}xf32>"

    def rows(masks: list[str]) -> None:
        load = partial(load_raw, w, packed)
        with w.loop(0, GROUPS) as group:
            row = w.at("%scales", w.mul(group, "%scale_stride"))
            factors = [load_wide(w, SCALE, w.at(row, i * width), width, mask) for i, mask in enumerate(masks)]
            with w.loop(0, QUADRANT // GROUPS) as member:
                partition = w.add(w.mul(group, QUADRANT // GROUPS), member)
                src = w.at("%src", w.mul(partition, "%stride"))
                dst = w.at("%dst", w.mul(partition, 4 * columns))
                for i, (mask, factor) in enumerate(zip(masks, factors, strict=True)):
                    raw = load(w.at(src, i * width * packed.size), width, mask)
                    for number, value in enumerate(packed.values(w, raw, width)):
                        place = w.at(dst, 4 * (number * QUADRANT * columns + i * width))
                        w.store(w.op("mulf", value, factor, vector), vector, place, 4)

    w.branch(
        w.is_("sge", "%available", columns),
        lambda: rows([""] * parts),
        lambda: rows([first_lanes(w, w.sub("%available", i * width), width) for i in range(parts)]),
    )
    w.done()
    return w.function(name, _PACK_ARGUMENTS, "", SHARED_CODE)
