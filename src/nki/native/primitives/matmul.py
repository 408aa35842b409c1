"""The matrix product of the Tensor engine: by multiply-adds of float32, or by bfloat16 dot products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nki.native.operand_layout import BASES, DIMENSIONS, HEADER, PANELS, SLOT
from nki.native.primitives.abi import (
    EXPONENTS,
    GATHER,
    LENGTH_BITS,
    RECORD_ARGUMENTS,
    SCRATCH,
    dims_of,
    row_helper,
    slot,
)
from nki.native.primitives.destination import Destination
from nki.native.primitives.dots import limit
from nki.native.primitives.panels import TOGETHER, call_pack, pack_functions
from nki.native.primitives.scratch import (
    LEFT,
    LEFT_ROOM,
    MOST_COLUMNS,
    RESULT,
    RESULT_ROOM,
    RIGHT,
    RIGHT_ROOM,
    ROWS,
    ROWS_ROOM,
)
from nki.native.primitives.tile import Shape, call_tile, tile_functions
from nki.native.primitives.widen import STORED
from nki.native.primitives.writer import POINTER, FunctionBuilder

FLOATS = Shape(rows=8, vectors=2, dot=False)
PAIRS = Shape(rows=8, vectors=2, dot=True)
PAIRED = ("bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")
"""Dtypes of which every value is one of bfloat16."""

MOST_PAIRED_ROWS = 2
"""Rows in a partition for which pairs are made: a pair is in one partition then, or in two with a row each."""
MOST_ROWS = 255
ADD, KEEPS, FINDS, LOOSE = 1, 2, 4, 8
ROWS_SHIFT = 8
ROWS_MASK = MOST_ROWS << ROWS_SHIFT
PANELS_SHIFT = 16
"""Flags: the first link adds onto the destination; the packed moving operand stays where it is, or is there already;
pairs are multiplied by dot products whatever their bits; from these bits on, the rows in a partition, and the offset
from the base `PANELS` of the packed moving operand."""

_PACK = ("pack_stationary", "pack_moving")

_FIXED = HEADER + SLOT + 1
_LINK = 2 * SLOT + 1


class _ProductChain(NamedTuple):
    """What all links share.

    Attributes:
        shape: of the tile.
        counts: M and N.
        immediates: pointer to the flags.
        flags: their value.
        sizes: bytes of an item of the stationary and of the moving operand.
        scratch: pointer.
        least: for pairs, the sum of exponents from which dot products are taken.
    """

    shape: Shape
    counts: tuple[str, str]
    immediates: str
    flags: str
    sizes: tuple[int, int]
    scratch: str
    least: str


class _ColumnOperand(NamedTuple):
    """An operand whose columns are contiguous: row k is row ``k % rows`` of partition ``k // rows``."""

    pointer: str
    partitions: str
    stride: str
    rows: str
    row_stride: str


def matmul_text(name: str, stationary: str, moving: str, shape: Shape, result: str = "float32") -> str:
    """A record function: slot 0 (M, N) becomes the sum of products, or is added to.

    Words: P = M, F = N. Then for each link of a chain the slots of stationary (K, M) and of moving
    (K, N). Then the immediates: flags, and K of each link. Flags: bit 0 adds the first link onto slot 0 (later links
    always add); bits 8 to 15, if more than 1, are rows in a partition: dimension 0 of both operands' slots counts
    them, and K is partitions times rows. Partitions [first, last) are rows of the result. A product that keeps the
    packed moving operand, for others that find it, has one link, and packs also where it has no rows.

    Each link sums from 0 in ascending k and is then added, as one instruction would. Returns 1 if the scratch memory is
    too small for the operands, for pairs of more than `MOST_PAIRED_ROWS` rows in a partition, and for a chain with a
    bfloat16 result, which each link would round.

    Args:
        name: of the function.
        stationary, moving: names of dtypes in `STORED`; for `PAIRS` those in `PAIRED`.
        shape: `FLOATS` or `PAIRS`.
        result: name of slot 0's dtype, float32 or bfloat16.
    """
    w = FunctionBuilder()
    place = slot(w, 0)
    length = w.op("andi", w.word("%words", 1), w.constant((1 << LENGTH_BITS) - 1))
    links = w.op("divsi", w.sub(length, _FIXED), w.constant(_LINK))
    immediates = w.at("%words", w.add(w.mul(links, 2 * SLOT * 8), 8 * (HEADER + SLOT)))
    counts = w.word("%words", 2), w.word("%words", 3)
    sizes = STORED[stationary].size, STORED[moving].size
    scratch = w.word("%ctx", SCRATCH, POINTER)
    flags = w.word(immediates, 0)
    loose = w.is_("ne", w.op("andi", flags, w.constant(LOOSE)), 0)
    job = _ProductChain(
        shape, counts, immediates, flags, sizes, scratch, limit(w, loose, EXPONENTS) if shape.dot else ""
    )
    dst = Destination(place, result, counts[1], scratch)
    fits = _fits(w, job, dst, links)
    works = w.either(w.is_("slt", "%first", "%last"), w.is_("eq", _flag(w, job, KEEPS | FINDS), KEEPS))
    with w.when(w.both(fits, works)):
        _product(w, job, dst, links)
    w.done(w.select(fits, w.constant(0, "i32"), w.constant(1, "i32"), "i32"), "i32")
    packers = [
        function
        for packer, dtype, columns in zip(_PACK, (stationary, moving), (shape.rows, shape.columns), strict=True)
        for function in pack_functions(packer, dtype, columns, shape)
    ]
    return "".join([*packers, *tile_functions(shape), w.function(name, RECORD_ARGUMENTS, "i32")])


def _flag(w: FunctionBuilder, job: _ProductChain, mask: int) -> str:
    return w.op("andi", job.flags, w.constant(mask))


def _rows(w: FunctionBuilder, job: _ProductChain) -> str:
    """Rows in a partition."""
    given = w.op("andi", w.op("shrui", job.flags, w.constant(ROWS_SHIFT)), w.constant(MOST_ROWS))
    return w.op("maxsi", given, w.constant(1))


def _fits(w: FunctionBuilder, job: _ProductChain, dst: Destination, links: str) -> str:
    """i1: whether all links find room."""
    result_bytes = w.mul(w.mul(*job.counts), 4)
    kept = w.is_("sle", result_bytes, RESULT_ROOM)
    if dst.dtype == "float32":
        kept = w.either(dst.slot.unit, kept)
    else:
        kept = w.both(w.both(kept, w.is_("eq", links, 1)), w.is_("sle", job.counts[1], MOST_COLUMNS))
    if job.shape.dot:
        kept = w.both(kept, w.is_("sle", _rows(w, job), MOST_PAIRED_ROWS))
    initial = [w.value(f"arith.extui {kept} : i1 to i64")]
    return w.is_("ne", w.carry(links, initial, "i64", lambda link, so_far: [_room(w, job, link, so_far[0])])[0], 0)


def _room(w: FunctionBuilder, job: _ProductChain, link: str, so_far: str) -> str:
    """`so_far` if the link finds room, else 0."""
    count, columns = job.counts
    depth = w.add(w.word(job.immediates, w.add(link, 1)), 1)  # of pairs: half of one more, and the exponent
    padded = w.add(count, job.shape.rows)
    left = w.is_("sle", w.mul(w.mul(depth, padded), 4), LEFT_ROOM)
    fits = w.both(left, w.is_("sle", w.mul(depth, 4 * job.shape.columns), RIGHT_ROOM))
    for number, extent, size in ((1, count, job.sizes[0]), (2, columns, job.sizes[1])):
        unit = slot(w, w.add(w.mul(link, 2), number)).unit
        gathered = w.is_("sle", w.mul(w.mul(depth, extent), size), ROWS_ROOM)
        fits = w.both(fits, w.either(unit, gathered))
    return w.select(fits, so_far, 0)


def _product(w: FunctionBuilder, job: _ProductChain, dst: Destination, links: str) -> None:
    """Rows of float32 that are contiguous take the results at once; else these go by way of the scratch memory."""
    adds = _flag(w, job, ADD)
    width = w.mul(job.counts[1], 4)
    result = w.at(job.scratch, RESULT)
    target, strided = (result, width), "%first"
    if dst.dtype == "float32":
        unit = dst.slot.unit
        target = w.select(unit, dst.slot.pointer, result, POINTER), w.select(unit, dst.slot.stride, width)
        strided = w.select(unit, "%last", "%first")
    with w.loop(w.select(w.is_("ne", adds, 0), strided, "%last"), "%last") as row:
        dst.read(w, row, w.at(result, w.mul(row, width)))
    copied = w.value(f"llvm.alloca {w.constant(2 * DIMENSIONS)} x i64 : (i64) -> !llvm.ptr")
    with w.loop(0, links) as link:
        add = w.is_("ne", w.op("ori", adds, link), 0)
        _link(w, job, link, add, target, copied)
    with w.loop(strided, "%last") as row:
        dst.write(w, row, w.at(result, w.mul(row, width)))


def _link(w: FunctionBuilder, job: _ProductChain, link: str, add: str, target: tuple[str, str], copied: str) -> None:
    """Pack the stationary operand, then panel by panel the moving one unless that was done before, and multiply."""
    left = w.at(job.scratch, LEFT)
    depth = w.word(job.immediates, w.add(link, 1))
    steps = w.op("divsi", w.add(depth, 1), w.constant(2)) if job.shape.dot else depth
    panel = w.mul(job.shape.depth(w, steps), 4)

    def packed(row: str) -> str:
        return w.at(left, w.mul(w.sub(row, "%first"), panel))

    stationary = _contiguous(w, job, link, 0, depth, copied)
    _pack_stationary(w, job, packed, stationary, w.mul(panel, job.shape.rows))
    missing = w.is_("eq", _flag(w, job, FINDS), 0)
    moving = _contiguous(w, job, link, 1, depth, copied, missing)
    columns = job.counts[1]
    keeps = w.is_("ne", _flag(w, job, KEEPS), 0)
    kept = w.at(w.word("%ctx", BASES + PANELS, POINTER), w.op("shrui", job.flags, w.constant(PANELS_SHIFT)))
    start, distance = w.select(keeps, kept, w.at(job.scratch, RIGHT), POINTER), w.select(keeps, panel, 0)
    with w.loop(0, columns, job.shape.columns) as column:
        right = w.at(start, w.mul(column, distance))
        with w.when(missing):
            _pack(w, job, 1, right, moving, column, w.sub(columns, column))
        with w.loop("%first", "%last", job.shape.rows) as row:
            dst = w.at(w.at(target[0], w.mul(row, target[1])), w.mul(column, 4))
            extents = [steps, w.sub("%last", row), w.sub(columns, column)]
            call_tile(w, job.shape, [dst, packed(row), right, *extents, target[1], add], job.least)


def _pack_stationary(
    w: FunctionBuilder, job: _ProductChain, packed: Callable[[str], str], operand: _ColumnOperand, distance: str
) -> None:
    """All panels, several at once while there are so many."""
    rows = job.shape.rows
    with w.loop("%first", "%last", rows * TOGETHER) as row:
        left = w.sub("%last", row)

        def together() -> None:
            _pack(w, job, 0, packed(row), operand, row, left, distance)

        def one_by_one() -> None:
            with w.loop(row, "%last", rows) as single:
                _pack(w, job, 0, packed(single), operand, single, w.sub("%last", single))

        w.branch(w.is_("sge", left, rows * TOGETHER), together, one_by_one)


def _pack(
    w: FunctionBuilder,
    job: _ProductChain,
    side: int,
    dst: str,
    operand: _ColumnOperand,
    start: str,
    available: str,
    distance: str = "",
) -> None:
    """The panel of columns from `start` on; with a distance, several panels."""
    src = w.at(operand.pointer, w.mul(start, job.sizes[side]))
    arguments = [dst, src, *operand[1:], available, distance or w.constant(0)]
    call_pack(w, f"{_PACK[side]}_together" if distance else _PACK[side], arguments)


def _contiguous(
    w: FunctionBuilder, job: _ProductChain, link: str, side: int, depth: str, copied: str, missing: str | None = None
) -> _ColumnOperand:
    """An operand of a link; its rows are gathered first if they are not contiguous, and it is `missing`."""
    operand = slot(w, w.add(w.mul(link, 2), side + 1))
    size, columns = job.sizes[side], job.counts[side]
    rows = _rows(w, job)
    row_stride = w.word(operand.dims, 1)
    several = w.is_("sgt", rows, 1)
    for index, word in enumerate([each for pair in dims_of(w, operand.dims) for each in pair]):
        w.store(w.select(several, 1, word) if index == 0 else word, "i64", w.at(copied, 8 * index), 8)
    gathered = w.at(job.scratch, ROWS)
    dense = w.mul(columns, size)
    partitions = w.op("divsi", depth, rows)
    gathers = w.select(operand.unit, 0, partitions)
    if missing is not None:
        gathers = w.select(missing, gathers, 0)
    with w.loop(0, gathers) as partition, w.loop(0, rows) as row:
        src = w.at(w.at(operand.pointer, w.mul(partition, operand.stride)), w.mul(row, row_stride))
        k = w.add(w.mul(partition, rows), row)
        row_helper(w, GATHER[size], (w.at(gathered, w.mul(k, dense)), src, copied))
    return _ColumnOperand(
        w.select(operand.unit, operand.pointer, gathered, POINTER),
        w.select(operand.unit, partitions, depth),
        w.select(operand.unit, operand.stride, dense),
        w.select(operand.unit, rows, 1),
        w.select(operand.unit, row_stride, 0),
    )
