"""Packing the operands of a matrix product into panels: as many columns as a tile has, one step of k after another."""

from __future__ import annotations

from collections.abc import Callable

from nki.native.primitives.tile import LANES, Shape
from nki.native.primitives.widen import STORED, Stored, first_lanes, load_wide, masked_load
from nki.native.primitives.writer import POINTER, SHARED_CODE, Writer

TOGETHER = 4
"""Panels of the stationary operand that are packed in one go over its rows: the part of a row that one panel has is
less than a cache line."""

_ARGUMENTS = [
    *("%dst: !llvm.ptr", "%src: !llvm.ptr", "%partitions: i64", "%stride: i64"),
    *("%rows: i64", "%row_stride: i64", "%available: i64", "%distance: i64"),
]
_KINDS = (POINTER, POINTER, *("i64" for _ in _ARGUMENTS[2:]))


def call_pack(w: Writer, name: str, arguments: list[str]) -> None:
    """Call a function of `pack_functions`."""
    w.call(name, arguments, _KINDS)


def pack_functions(name: str, dtype: str, columns: int, shape: Shape) -> list[str]:
    """``@name(dst, src, partitions, stride, rows, row stride, available, distance)`` and ``@name_together``.

    The first packs a panel, which it fills with zeros where fewer than `columns` are available; the second packs
    `TOGETHER` panels that are all there, `distance` bytes apart. Row k of the operand is row ``k % rows`` of partition
    ``k // rows``. Items become float32, or for dot products words with the bfloat16 items of rows 2k and 2k + 1, with
    zeros for the last of an odd number; the rows are then one to a partition.
    """
    write = _pairs if shape.dot else _floats
    return [write(name, STORED[dtype], columns, 1), write(f"{name}_together", STORED[dtype], columns, TOGETHER)]


def _floats(name: str, stored: Stored, columns: int, panels: int) -> str:
    w = Writer()
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


def _each_partition(w: Writer, row: Callable[[str, str], None]) -> None:
    with w.loop(0, "%partitions") as k:
        row(k, w.at("%src", w.mul(k, "%stride")))


def _each_row(w: Writer, row: Callable[[str, str], None]) -> None:
    with w.loop(0, "%partitions") as partition, w.loop(0, "%rows") as inner:
        start = w.at("%src", w.mul(partition, "%stride"))
        row(w.add(w.mul(partition, "%rows"), inner), w.at(start, w.mul(inner, "%row_stride")))


def _whole_or_part(w: Writer, pack: Callable[[list[str]], None], columns: int, width: int, panels: int) -> None:
    """Pack vectors without masks; if it is one panel, with masks if columns are missing."""
    parts = columns // width * panels

    def part() -> None:
        pack([first_lanes(w, w.sub("%available", i * width), width) for i in range(parts)])

    if panels > 1:
        pack([""] * parts)
    else:
        w.branch(w.is_("sge", "%available", columns), lambda: pack([""] * parts), part)
    w.done()


def _pairs(name: str, stored: Stored, columns: int, panels: int) -> str:
    w = Writer()
    width = min(columns, 2 * LANES)
    parts = columns // width
    kind = f"vector<{width}xi16>"
    pairs = w.op("divsi", w.add("%partitions", 1), w.constant(2))
    both = w.op("divsi", "%partitions", w.constant(2))
    order = [lane // 2 + (lane % 2) * width for lane in range(2 * width)]

    def step(k: str, masks: list[str], second: bool) -> None:
        src = w.at("%src", w.mul(w.mul(k, 2), "%stride"))
        for number, mask in enumerate(masks):
            panel, part = divmod(number, parts)
            dst = w.at(w.at("%dst", w.mul("%distance", panel)), w.mul(k, 4 * columns))
            start = w.at(src, number * width * stored.size)
            one = _items(w, kind, start, mask, width)
            two = _items(w, kind, w.at(start, "%stride"), mask, width) if second else w.constant(0, kind)
            for half in (0, 1):
                lanes = order[half * width : (half + 1) * width]
                mixed = w.value(f"vector.shuffle {one}, {two} {lanes} : {kind}, {kind}")
                w.store(mixed, kind, w.at(dst, (part * 2 + half) * width * 2), 4)

    def pack(masks: list[str]) -> None:
        with w.loop(0, both) as k:
            step(k, masks, True)
        with w.loop(both, pairs) as k:
            step(k, masks, False)

    _whole_or_part(w, pack, columns, width, panels)
    return w.function(name, _ARGUMENTS, "", SHARED_CODE)


def _items(w: Writer, kind: str, pointer: str, mask: str, lanes: int) -> str:
    return masked_load(w, kind, pointer, 2, mask, lanes) if mask else w.load(kind, pointer, 2)
