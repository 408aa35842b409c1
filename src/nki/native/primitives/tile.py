"""The innermost part of a matrix product: a tile of the result in registers, from packed panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nki.native.primitives.dots import dot, halves, in_order, multiply_add
from nki.native.primitives.widen import first_lanes, masked_load
from nki.native.primitives.writer import POINTER, SHARED_CODE, FunctionBuilder

LANES = 16
_FLOATS = f"vector<{LANES}xf32>"
_WORDS = f"vector<{LANES}xi32>"
_FEW_ROWS = 2
_SMALL = "tile_of_small_numbers"
_TILE_KINDS = (POINTER, POINTER, POINTER, "i64", "i64", "i64", "i64", "i1")
_Multiply = Callable[[FunctionBuilder, Sequence[str], Sequence[str], Sequence[str]], list[str]]
"""Writes a step: places of the words of the rows, places of the vectors of the columns, and sums before; sums after."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Tile of `rows` x (16 `vectors`) results; a panel is as many columns of an operand, one step of k after another.

    Attributes:
        dot: a step is a pair of rows k in bfloat16, multiplied by dot products if these are in order (`dots`), else by
            multiply-adds; else a step is one row in float32.
    """

    rows: int
    vectors: int
    dot: bool

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.vectors * LANES

    def depth(self, w: FunctionBuilder, steps: str) -> str:
        """Steps that a panel has room for: behind its pairs a panel has its exponent."""
        return w.add(steps, 1) if self.dot else steps


def tile_functions(shape: Shape) -> list[str]:
    """What `call_tile` calls."""
    functions = [_tile_function(name, shape, rows, vectors, _step(shape)) for name, rows, vectors in _tiles(shape)]
    if shape.dot:
        functions.append(_tile_function(_SMALL, shape, shape.rows, shape.vectors, _step_of_halves))
    return functions


def _tiles(shape: Shape) -> list[tuple[str, int, int]]:
    """Functions for a whole tile, for few rows, and for columns that fit one vector: names, rows, vectors."""
    return [
        ("tile", shape.rows, shape.vectors),
        ("tile_of_few_rows", _FEW_ROWS, shape.vectors),
        ("tile_of_few_columns", shape.rows, 1),
    ]


def call_tile(w: FunctionBuilder, shape: Shape, arguments: list[str], least: str = "") -> None:
    """Call the function of `tile_functions` that suits the rows and columns that there are.

    Args:
        shape: of the tile.
        arguments: as `_tile_function` has them.
        least: for pairs, the sum of the panels' exponents from which dot products are taken.
    """
    if not shape.dot:
        _call_suitable(w, shape, arguments)
        return
    left, right, steps = arguments[1:4]
    behind = w.at(left, w.mul(steps, 4 * shape.rows)), w.at(right, w.mul(steps, 4 * shape.columns))
    w.branch(
        in_order(w, behind, least),
        lambda: _call_suitable(w, shape, arguments),
        lambda: w.call(_SMALL, arguments, _TILE_KINDS),
    )


def _call_suitable(w: FunctionBuilder, shape: Shape, arguments: list[str]) -> None:
    (whole, *_), (few_rows, *_), (few_columns, *_) = _tiles(shape)
    rows, columns = arguments[4:6]

    def narrower() -> None:
        w.branch(
            w.is_("sle", columns, LANES),
            lambda: w.call(few_columns, arguments, _TILE_KINDS),
            lambda: w.call(whole, arguments, _TILE_KINDS),
        )

    w.branch(w.is_("sle", rows, _FEW_ROWS), lambda: w.call(few_rows, arguments, _TILE_KINDS), narrower)


def _tile_function(name: str, shape: Shape, rows: int, vectors: int, multiply: _Multiply) -> str:
    """``@name(dst, left, right, steps, rows, columns, dst stride, add)``: a tile; so many rows and columns of it exist.

    Sums start from 0 and ascend in k; with `add`, they are then added onto dst.

    Args:
        name: of the function.
        shape: of the panels.
        rows, vectors: how many of the shape's are computed.
        multiply: a step.
    """
    w = FunctionBuilder()
    places = [w.at("%dst", w.mul("%ds", r)) for r in range(rows)]
    if rows == shape.rows:
        for place in places:
            for v in range(vectors):
                w.line(f'"llvm.intr.prefetch"({w.at(place, 64 * v)}) {_PREFETCH} : (!llvm.ptr) -> ()')

    def body(k: str, sums: Sequence[str]) -> list[str]:
        right = w.at("%right", w.mul(k, 4 * shape.columns))
        left = w.at("%left", w.mul(k, 4 * shape.rows))
        words, lines = [w.at(left, 4 * r) for r in range(rows)], [w.at(right, 64 * v) for v in range(vectors)]
        return multiply(w, words, lines, sums)

    sums = w.carry("%steps", [w.constant("0.0", _FLOATS)] * (rows * vectors), _FLOATS, body)
    whole = w.both(w.is_("sge", "%rows", rows), w.is_("sge", "%columns", LANES * vectors))
    w.branch(whole, lambda: _store_whole(w, places, sums), lambda: _store_edge(w, places, sums))
    w.done()
    pointers = ["%dst: !llvm.ptr", "%left: !llvm.ptr", "%right: !llvm.ptr"]
    extents = ["%steps: i64", "%rows: i64", "%columns: i64", "%ds: i64", "%add: i1"]
    return w.function(name, [*pointers, *extents], "", SHARED_CODE)


_PREFETCH = "<{cache = 1 : i32, hint = 3 : i32, rw = 1 : i32}>"


def _store_whole(w: FunctionBuilder, places: Sequence[str], sums: Sequence[str]) -> None:
    vectors = len(sums) // len(places)
    cells = [(w.at(place, 64 * v), sums[r * vectors + v]) for r, place in enumerate(places) for v in range(vectors)]

    def added() -> None:
        for cell, product in cells:
            w.store(w.op("addf", w.load(_FLOATS, cell, 4), product, _FLOATS), _FLOATS, cell, 4)

    def overwritten() -> None:
        for cell, product in cells:
            w.store(product, _FLOATS, cell, 4)

    w.branch("%add", added, overwritten)


def _store_edge(w: FunctionBuilder, places: Sequence[str], sums: Sequence[str]) -> None:
    """Store an edge of a tile: only what exists is read and written, and nothing is read if nothing is added."""
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


def _step(shape: Shape) -> _Multiply:
    return _step_of_pairs if shape.dot else _step_of_floats


def _step_of_floats(w: FunctionBuilder, left: Sequence[str], right: Sequence[str], sums: Sequence[str]) -> list[str]:
    factors = [w.load(_FLOATS, place, 4) for place in right]
    result = []
    for r, place in enumerate(left):
        spread = w.value(f"vector.broadcast {w.load('f32', place, 4)} : f32 to {_FLOATS}")
        for v, factor in enumerate(factors):
            result.append(w.value(f"math.fma {spread}, {factor}, {sums[r * len(right) + v]} : {_FLOATS}"))
    return result


def _step_of_pairs(w: FunctionBuilder, left: Sequence[str], right: Sequence[str], sums: Sequence[str]) -> list[str]:
    factors = [w.load(_WORDS, place, 4) for place in right]
    result = []
    for r, place in enumerate(left):
        spread = _spread(w, place)
        result += [dot(w, sums[r * len(right) + v], spread, factor) for v, factor in enumerate(factors)]
    return result


def _step_of_halves(w: FunctionBuilder, left: Sequence[str], right: Sequence[str], sums: Sequence[str]) -> list[str]:
    factors = [halves(w, w.load(_WORDS, place, 4)) for place in right]
    result = []
    for r, place in enumerate(left):
        spread = halves(w, _spread(w, place))
        result += [multiply_add(w, sums[r * len(right) + v], spread, factor) for v, factor in enumerate(factors)]
    return result


def _spread(w: FunctionBuilder, place: str) -> str:
    """One word in all lanes."""
    return w.value(f"vector.broadcast {w.load('i32', place, 4)} : i32 to {_WORDS}")
