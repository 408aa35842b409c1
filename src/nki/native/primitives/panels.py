"""Packing the operands of a matrix product into panels: as many columns as a tile has, one step of k after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from nki.native.primitives.dots import magnitudes, store_exponent
from nki.native.primitives.tile import LANES, Shape
from nki.native.primitives.widen import STORED, Stored, first_lanes, load_raw, load_wide
from nki.native.primitives.writer import POINTER, SHARED_CODE, FunctionBuilder

TOGETHER = 4
"""Panels of the stationary operand that are packed in one go over its rows: the part of a row that one panel has is
less than a cache line."""

_NEGATIVE_ZERO = -(1 << 15)
_ARGUMENTS = [
    *("%dst: !llvm.ptr", "%src: !llvm.ptr", "%partitions: i64", "%stride: i64"),
    *("%rows: i64", "%row_stride: i64", "%available: i64", "%distance: i64"),
]
_KINDS = (POINTER, POINTER, *("i64" for _ in _ARGUMENTS[2:]))


def call_pack(w: FunctionBuilder, name: str, arguments: list[str]) -> None:
    """Call a function of `pack_functions`."""
    w.call(name, arguments, _KINDS)


def pack_functions(name: str, dtype: str, columns: int, shape: Shape) -> list[str]:
    """``@name(dst, src, partitions, stride, rows, row stride, available, distance)`` and ``@name_together``.

    The first packs a panel, which it fills with zeros where fewer than `columns` are available; the second packs
    `TOGETHER` panels that are all there, `distance` bytes apart. Row k of the operand is row ``k % rows`` of partition
    ``k // rows``. Items become float32, or for dot products words with a pair of bfloat16, those of row 2k in the upper
    halves and those of row 2k + 1 in the lower ones; there are then one or two rows to a partition, and the exponent of
    the panel's least magnitude stands behind its pairs. The last pair of an odd number has 0 for the row that is
    missing, in the stationary operand -0, so that the product, -0, changes no sum.
    """
    missing = _NEGATIVE_ZERO if columns == shape.rows else 0
    write: Callable[[str, Stored, int, int], str] = partial(_pairs, missing=missing) if shape.dot else _floats
    return [write(name, STORED[dtype], columns, 1), write(f"{name}_together", STORED[dtype], columns, TOGETHER)]


def _floats(name: str, stored: Stored, columns: int, panels: int) -> str:
    w = FunctionBuilder()
    width = min(columns, LANES)
    parts = columns // width

    def pack(masks: list[str]) -> None:
        def row(k: str, src: str) -> None:
            for number, mask in enumerate(masks):
                panel, part = divmod(number, parts)
                wide = load_wide(w, stored, w.at(src, number * width * stored.size), width, mask)
                dst = w.at(w.at("%dst", w.mul("%distance", panel)), w.mul(k, 4 * columns))
                w.store(wide, f"vector<{width}xf32>", w.at(dst, part * width * 4), 4)

        w.branch(w.is_("eq", "%rows", 1), lambda: _each_partition(w, row), lambda: _each_row(w, row))

    _whole_or_part(w, pack, columns, width, panels)
    return w.function(name, _ARGUMENTS, "", SHARED_CODE)


def _each_partition(w: FunctionBuilder, row: Callable[[str, str], None]) -> None:
    with w.loop(0, "%partitions") as k:
        row(k, w.at("%src", w.mul(k, "%stride")))


def _each_row(w: FunctionBuilder, row: Callable[[str, str], None]) -> None:
    with w.loop(0, "%partitions") as partition, w.loop(0, "%rows") as inner:
        start = w.at("%src", w.mul(partition, "%stride"))
        row(w.add(w.mul(partition, "%rows"), inner), w.at(start, w.mul(inner, "%row_stride")))


def _whole_or_part(
    w: FunctionBuilder, pack: Callable[[list[str]], None], columns: int, width: int, panels: int
) -> None:
    """Pack vectors without masks; if it is one panel, with masks if columns are missing."""
    parts = columns // width * panels

    def part() -> None:
        pack([first_lanes(w, w.sub("%available", i * width), width) for i in range(parts)])

    if panels > 1:
        pack([""] * parts)
    else:
        w.branch(w.is_("sge", "%available", columns), lambda: pack([""] * parts), part)
    w.done()


def _pairs(name: str, stored: Stored, columns: int, panels: int, missing: int) -> str:
    w = FunctionBuilder()
    width = min(columns, 2 * LANES)
    parts = columns // width
    kind = f"vector<{width}xi16>"
    rows = w.mul("%partitions", "%rows")
    pairs = w.op("divsi", w.add(rows, 1), w.constant(2))
    both = w.op("divsi", rows, w.constant(2))
    apart = w.is_("eq", "%rows", 1)
    to_next = w.select(apart, w.mul("%stride", 2), "%stride")
    to_second = w.select(apart, "%stride", "%row_stride")

    def place(number: int, k: str) -> str:
        panel, part = divmod(number, parts)
        return w.at(w.at("%dst", w.mul("%distance", panel)), w.add(w.mul(k, 4 * columns), part * 4 * width))

    def step(k: str, masks: list[str], least: Sequence[str], second: bool) -> list[str]:
        src = w.at("%src", w.mul(k, to_next))
        result = []
        for number, mask in enumerate(masks):
            start = w.at(src, number * width * stored.size)
            one = _bits(w, stored, start, mask, width)
            two = _bits(w, stored, w.at(start, to_second), mask, width) if second else w.constant(missing, kind)
            _store_mixed(w, kind, (two, one), place(number, k), width)
            smaller = w.op("minui", least[number], magnitudes(w, one, kind), kind)
            result.append(w.op("minui", smaller, magnitudes(w, two, kind), kind) if second else smaller)
        return result

    def pack(masks: list[str]) -> None:
        nothing = [w.constant(-1, kind)] * len(masks)
        least = w.carry(both, nothing, kind, lambda k, so_far: step(k, masks, so_far, True))
        least = w.carry(w.sub(pairs, both), least, kind, lambda _, so_far: step(both, masks, so_far, False))
        for panel in range(panels):
            smallest = least[panel * parts]
            for other in least[panel * parts + 1 : (panel + 1) * parts]:
                smallest = w.op("minui", smallest, other, kind)
            store_exponent(w, smallest, kind, place(panel * parts, pairs))

    _whole_or_part(w, pack, columns, width, panels)
    return w.function(name, _ARGUMENTS, "", SHARED_CODE)


def _store_mixed(w: FunctionBuilder, kind: str, items: tuple[str, str], place: str, width: int) -> None:
    """Words with an item of the first vector in the lower half, and one of the second in the upper half."""
    order = [lane // 2 + (lane % 2) * width for lane in range(2 * width)]
    for half in (0, 1):
        lanes = order[half * width : (half + 1) * width]
        mixed = w.value(f"vector.shuffle {', '.join(items)} {lanes} : {kind}, {kind}")
        w.store(mixed, kind, w.at(place, half * width * 2), 4)


def _bits(w: FunctionBuilder, stored: Stored, pointer: str, mask: str, lanes: int) -> str:
    """Items as the bits of bfloat16, which has all of their values."""
    if stored is STORED["bfloat16"]:
        return load_raw(w, stored, pointer, lanes, mask)
    words = f"vector<{lanes}xi32>"
    wide = w.value(f"arith.bitcast {load_wide(w, stored, pointer, lanes, mask)} : vector<{lanes}xf32> to {words}")
    return w.value(f"arith.trunci {w.op('shrui', wide, w.constant(16, words), words)} : {words} to vector<{lanes}xi16>")
