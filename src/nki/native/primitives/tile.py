"""The innermost part of a matrix product: a tile of the result in registers, from packed panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nki.native.primitives.widen import first_lanes, masked_load
from nki.native.primitives.writer import POINTER, SHARED_CODE, Writer

LANES = 16
_FLOATS = f"vector<{LANES}xf32>"
_FEW_ROWS = 2
_TILE_KINDS = (POINTER, POINTER, POINTER, "i64", "i64", "i64", "i64", "i1")


@dataclass(frozen=True, slots=True)
class Shape:
    """Tile of `rows` x (16 `vectors`) results; a panel is as many columns of an operand, one step of k after another.

    Attributes:
        dot: a step is a pair of rows k, multiplied by bfloat16 dot products; else one row in float32.
    """

    rows: int
    vectors: int
    dot: bool

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.vectors * LANES


def tile_functions(shape: Shape) -> list[str]:
    """What `call_tile` calls."""
    return [_tile_function(name, shape, rows, vectors) for name, rows, vectors in _tiles(shape)]


def _tiles(shape: Shape) -> list[tuple[str, int, int]]:
    """Functions for a whole tile, for few rows, and for columns that fit one vector: names, rows, vectors."""
    return [
        ("tile", shape.rows, shape.vectors),
        ("tile_of_few_rows", _FEW_ROWS, shape.vectors),
        ("tile_of_few_columns", shape.rows, 1),
    ]


def call_tile(w: Writer, shape: Shape, arguments: list[str]) -> None:
    """Call the function of `tile_functions` that suits the rows and columns that there are."""
    (whole, *_), (few_rows, *_), (few_columns, *_) = _tiles(shape)
    rows, columns = arguments[4:6]

    def narrower() -> None:
        w.branch(
            w.is_("sle", columns, LANES),
            lambda: w.call(few_columns, arguments, _TILE_KINDS),
            lambda: w.call(whole, arguments, _TILE_KINDS),
        )

    w.branch(w.is_("sle", rows, _FEW_ROWS), lambda: w.call(few_rows, arguments, _TILE_KINDS), narrower)


def _tile_function(name: str, shape: Shape, rows: int, vectors: int) -> str:
    """``@name(dst, left, right, steps, rows, columns, dst stride, add)``: a tile; so many rows and columns of it exist.

    Sums start from 0 and ascend in k; with `add`, they are then added onto dst.

    Args:
        name: of the function.
        shape: of the panels.
        rows, vectors: how many of the shape's are computed.
    """
    w = Writer()
    places = [w.at("%dst", w.mul("%ds", r)) for r in range(rows)]
    if rows == shape.rows:
        for place in places:
            for v in range(vectors):
                w.line(f'"llvm.intr.prefetch"({w.at(place, 64 * v)}) {_PREFETCH} : (!llvm.ptr) -> ()')

    def body(k: str, sums: Sequence[str]) -> list[str]:
        right = w.at("%right", w.mul(k, 4 * shape.columns))
        left = w.at("%left", w.mul(k, 4 * shape.rows))
        factors = [_right(w, shape, w.at(right, 64 * v)) for v in range(vectors)]
        result = []
        for r in range(rows):
            spread = _left(w, shape, w.at(left, 4 * r))
            for v, factor in enumerate(factors):
                result.append(_multiply_add(w, shape, spread, factor, sums[r * vectors + v]))
        return result

    sums = w.carry("%steps", [w.constant("0.0", _FLOATS)] * (rows * vectors), _FLOATS, body)
    whole = w.both(w.is_("sge", "%rows", rows), w.is_("sge", "%columns", LANES * vectors))
    w.branch(whole, lambda: _store_whole(w, places, sums), lambda: _store_edge(w, places, sums))
    w.done()
    pointers = ["%dst: !llvm.ptr", "%left: !llvm.ptr", "%right: !llvm.ptr"]
    extents = ["%steps: i64", "%rows: i64", "%columns: i64", "%ds: i64", "%add: i1"]
    return w.function(name, [*pointers, *extents], "", SHARED_CODE)


_PREFETCH = "<{cache = 1 : i32, hint = 3 : i32, rw = 1 : i32}>"


def _store_whole(w: Writer, places: Sequence[str], sums: Sequence[str]) -> None:
    vectors = len(sums) // len(places)
    cells = [(w.at(place, 64 * v), sums[r * vectors + v]) for r, place in enumerate(places) for v in range(vectors)]

    def added() -> None:
        for cell, product in cells:
            w.store(w.op("addf", w.load(_FLOATS, cell, 4), product, _FLOATS), _FLOATS, cell, 4)

    def overwritten() -> None:
        for cell, product in cells:
            w.store(product, _FLOATS, cell, 4)

    w.branch("%add", added, overwritten)


def _store_edge(w: Writer, places: Sequence[str], sums: Sequence[str]) -> None:
    """Only what exists is read and written; nothing is read if nothing is added."""
    vectors = len(sums) // len(places)
    mask_kind = f"vector<{LANES}xi1>"
    exist = [first_lanes(w, w.sub("%columns", LANES * v), LANES) for v in range(vectors)]
    adding = w.value(f"vector.broadcast %add : i1 to {mask_kind}")
    old_lanes = [w.op("andi", mask, adding, mask_kind) for mask in exist]
    for r, place in enumerate(places):
        with w.when(w.is_("sgt", "%rows", r)):
            for v, mask in enumerate(exist):
                cell = w.at(place, 64 * v)
                product = sums[r * vectors + v]
                total = w.op("addf", masked_load(w, _FLOATS, cell, 4, old_lanes[v], LANES), product, _FLOATS)
                value = w.select("%add", total, product, _FLOATS)
                kinds = f"{_FLOATS}, {mask_kind} into !llvm.ptr"
                w.line(f"llvm.intr.masked.store {value}, {cell}, {mask} {{alignment = 4 : i32}} : {kinds}")


def _right(w: Writer, shape: Shape, place: str) -> str:
    return w.load("vector<32xbf16>", place, 4) if shape.dot else w.load(_FLOATS, place, 4)


def _left(w: Writer, shape: Shape, place: str) -> str:
    """One word in all lanes."""
    if not shape.dot:
        return w.value(f"vector.broadcast {w.load('f32', place, 4)} : f32 to {_FLOATS}")
    words = f"vector<{LANES}xi32>"
    spread = w.value(f"vector.broadcast {w.load('i32', place, 4)} : i32 to {words}")
    return w.value(f"vector.bitcast {spread} : {words} to vector<32xbf16>")


def _multiply_add(w: Writer, shape: Shape, left: str, right: str, total: str) -> str:
    if not shape.dot:
        return w.value(f"math.fma {left}, {right}, {total} : {_FLOATS}")
    call = f'llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"({total}, {left}, {right})'
    return w.value(f"{call} : ({_FLOATS}, vector<32xbf16>, vector<32xbf16>) -> {_FLOATS}")
