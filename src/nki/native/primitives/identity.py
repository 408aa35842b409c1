"""Products with the identity matrix: transposes of an array that can only multiply."""

from __future__ import annotations

from nki.native.primitives.abi import GATHER, RECORD_ARGUMENTS, SCRATCH, SlotValues, row_helper, slot
from nki.native.primitives.destination import Destination
from nki.native.primitives.scratch import LEFT, LEFT_ROOM, RESULT, RIGHT, ROWS
from nki.native.primitives.tile import LANES
from nki.native.primitives.transpose import plane, plane_function
from nki.native.primitives.widen import STORED, first_lanes, load_wide, masked_load
from nki.native.primitives.writer import POINTER, FunctionBuilder

_FLOATS, _WORDS = f"vector<{LANES}xf32>", f"vector<{LANES}xi32>"
_MAGNITUDE, _INFINITY = 0x7FFF_FFFF, 0x7F80_0000


def identity_text(name: str, dtype: str, result: str) -> str:
    """A record function: slot 0 (M partitions, N elements) becomes ``slot1.T @ identity`` for slot 1 (N, M).

    The sums are those of a product, from 0.0 on in ascending k with one fused multiply-add each. A row of finite
    numbers is therefore the transposed one with 0.0 added, which is -0.0 no more, and only rows that hold something
    else are multiplied. Returns 1 if the scratch memory is too small.

    Args:
        name: of the function.
        dtype: of slot 1, one of `STORED`.
        result: of slot 0, float32 or bfloat16.
    """
    w = FunctionBuilder()
    src = slot(w, 1)
    rows, columns = w.word("%words", 2), w.word("%words", 3)
    scratch = w.word("%ctx", SCRATCH, POINTER)
    dst = Destination(slot(w, 0), result, columns, scratch)
    pitch = _padded(w, columns)
    fits = w.both(*(w.is_("sle", w.mul(_padded(w, n), m), LEFT_ROOM) for n, m in ((rows, columns), (columns, rows))))
    with w.when(w.both(fits, w.is_("slt", "%first", "%last"))):
        width = w.sub("%last", "%first")
        _widen(w, dtype, src, (columns, width), scratch)
        values = w.at(scratch, RIGHT)
        plane(w, 4, (values, w.at(scratch, LEFT)), (width, columns), (pitch, _padded(w, width)))
        with w.loop("%first", "%last") as row:
            taken, made = w.at(values, w.mul(w.sub(row, "%first"), pitch)), w.at(scratch, RESULT)
            finite = _is_finite(w, taken, columns)
            w.branch(finite, lambda: _copied(w, taken, made, columns), lambda: _multiplied(w, taken, made, columns))
            dst.write(w, row, made)
    w.done(w.select(fits, w.constant(0, "i32"), w.constant(1, "i32"), "i32"), "i32")
    return plane_function(4) + w.function(name, RECORD_ARGUMENTS, "i32")


def _padded(w: FunctionBuilder, count: str) -> str:
    """Bytes of a row of so many float32, which ends with a whole vector."""
    return w.mul(w.op("andi", w.add(count, LANES - 1), w.constant(-LANES)), 4)


def _widen(w: FunctionBuilder, dtype: str, src: SlotValues, extents: tuple[str, str], scratch: str) -> None:
    """The part of each row of the source that becomes rows [first, last), as float32."""
    stored, (count, width) = STORED[dtype], extents
    pitch = _padded(w, width)
    with w.loop(0, count) as k:
        start, gathered = w.at(src.pointer, w.mul(k, src.stride)), w.at(scratch, ROWS)
        with w.loop(w.select(src.unit, 1, 0), 1):
            row_helper(w, GATHER[stored.size], (gathered, start, src.dims))
        row = w.at(w.select(src.unit, start, gathered, POINTER), w.mul("%first", stored.size))
        made = w.at(w.at(scratch, LEFT), w.mul(k, pitch))
        with w.loop(0, width, LANES) as column:
            mask = first_lanes(w, w.sub(width, column), LANES)
            wide = load_wide(w, stored, w.at(row, w.mul(column, stored.size)), LANES, mask)
            w.store(wide, _FLOATS, w.at(made, w.mul(column, 4)), 4)


def _is_finite(w: FunctionBuilder, row: str, count: str) -> str:
    """i1: whether so many float32 are neither infinite nor NaN."""

    def step(vector: str, so_far: str) -> str:
        column = w.mul(vector, LANES)
        mask = first_lanes(w, w.sub(count, column), LANES)
        bits = masked_load(w, _WORDS, w.at(row, w.mul(column, 4)), 4, mask, LANES)
        magnitude = w.op("andi", bits, w.constant(_MAGNITUDE, _WORDS), _WORDS)
        return w.op("maxsi", so_far, magnitude, _WORDS)

    vectors = w.op("divsi", w.add(count, LANES - 1), w.constant(LANES))
    (largest,) = w.carry(vectors, [w.constant(0, _WORDS)], _WORDS, lambda at, so_far: [step(at, so_far[0])])
    most = w.value(f"vector.reduction <maxsi>, {largest} : {_WORDS} into i32")
    return w.value(f"arith.cmpi slt, {most}, {w.constant(_INFINITY, 'i32')} : i32")


def _copied(w: FunctionBuilder, row: str, made: str, count: str) -> None:
    with w.loop(0, count, LANES) as column:
        offset = w.mul(column, 4)
        value = w.op("addf", w.load(_FLOATS, w.at(row, offset), 4), w.constant("0.0", _FLOATS), _FLOATS)
        w.store(value, _FLOATS, w.at(made, offset), 4)


def _multiplied(w: FunctionBuilder, row: str, made: str, count: str) -> None:
    numbers = w.constant(str(list(range(LANES))), _WORDS)
    zeros, ones = w.constant("0.0", _FLOATS), w.constant("1.0", _FLOATS)
    with w.loop(0, count, LANES) as column:

        def step(k: str, total: str, column: str = column) -> str:
            lane = w.value(f"arith.trunci {w.sub(k, column)} : i64 to i32")
            lanes = w.value(f"vector.broadcast {lane} : i32 to {_WORDS}")
            there = w.value(f"arith.cmpi eq, {lanes}, {numbers} : {_WORDS}")
            one = w.value(f"arith.select {there}, {ones}, {zeros} : vector<{LANES}xi1>, {_FLOATS}")
            single = w.load("f32", w.at(row, w.mul(k, 4)), 4)
            spread = w.value(f"vector.broadcast {single} : f32 to {_FLOATS}")
            return w.value(f"math.fma {spread}, {one}, {total} : {_FLOATS}")

        (total,) = w.carry(count, [zeros], _FLOATS, lambda k, so_far: [step(k, so_far[0])])
        w.store(total, _FLOATS, w.at(made, w.mul(column, 4)), 4)
