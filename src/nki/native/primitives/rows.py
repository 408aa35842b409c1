"""One row of items: contiguous, filled with one item, or strided."""

from __future__ import annotations

from collections.abc import Callable

from nki.native.primitives.writer import POINTER, SHARED_CODE, FunctionBuilder

_VECTOR = 64
_UNROLLED = 4
_GROUP = 8
SIZES = (1, 2, 4)
"""Bytes of an item."""

_ROW_KINDS = (POINTER, POINTER, "i64", "i64", "i64")
_BYTES_KINDS = (POINTER, POINTER, "i64")


def row(w: FunctionBuilder, size: int, dst: str, src: str, count: str, strides: tuple[str, str]) -> None:
    """Copy `count` items of `size` bytes; strides of destination and source. The rows are equal or do not overlap."""
    w.call(f"row_{size}", [dst, src, count, *strides], _ROW_KINDS)


def stream(w: FunctionBuilder, dst: str, src: str, length: str) -> None:
    """Copy `length` bytes past the caches; they do not overlap."""
    w.call("stream_row", [dst, src, length], _BYTES_KINDS)


def row_functions(*sizes: int) -> str:
    """What `row` calls for items of these sizes."""
    return "".join([_move(), _stream(), *[_fill(size) + _row(size) for size in sizes]])


def _row(size: int) -> str:
    w = FunctionBuilder()
    item = w.constant(size)
    dense = w.is_("eq", "%ds", item)
    contiguous = w.both(dense, w.is_("eq", "%ss", item))
    filled = w.both(dense, w.is_("eq", "%ss", 0))
    length = w.mul("%n", size)

    def otherwise() -> None:
        w.branch(
            filled,
            lambda: w.call(f"fill_row_{size}", ["%dst", "%src", length], _BYTES_KINDS),
            lambda: _strided(w, size),
        )

    w.branch(
        contiguous,
        lambda: w.call("move_row", ["%dst", "%src", length], _BYTES_KINDS),
        otherwise,
    )
    w.done()
    return w.function(
        f"row_{size}", ["%dst: !llvm.ptr", "%src: !llvm.ptr", "%n: i64", "%ds: i64", "%ss: i64"], "", SHARED_CODE
    )


def _strided(w: FunctionBuilder, size: int) -> None:
    """Groups are loaded before they are stored, so that a load need not wait for the store before it."""
    kind = f"i{8 * size}"

    def items(start: str, count: int) -> None:
        places = [start] + [w.add(start, i) for i in range(1, count)]
        values = [w.load(kind, w.at("%src", w.mul(place, "%ss"))) for place in places]
        for place, value in zip(places, values, strict=True):
            w.store(value, kind, w.at("%dst", w.mul(place, "%ds")))

    lanes = _VECTOR // size
    paired = w.both(w.is_("eq", "%ds", size), w.is_("eq", "%ss", 2 * size))
    # The vectors read the item behind each item of the row; behind the last one there may be nothing.
    pairs = w.select(
        w.both(paired, w.is_("sgt", "%n", lanes)), w.mul(w.op("divsi", w.sub("%n", 1), w.constant(lanes)), lanes), 0
    )
    with w.loop(0, pairs, lanes) as i:
        _every_second(w, size, i)
    whole = w.add(pairs, w.mul(w.op("divsi", w.sub("%n", pairs), w.constant(_GROUP)), _GROUP))
    with w.loop(pairs, whole, _GROUP) as i:
        items(i, _GROUP)
    with w.loop(whole, "%n") as i:
        items(i, 1)


def _every_second(w: FunctionBuilder, size: int, start: str) -> None:
    """A vector of items from two vectors of which every second item is wanted."""
    lanes = _VECTOR // size
    kind = f"vector<{lanes}xi{8 * size}>"
    src = w.at("%src", w.mul(start, 2 * size))
    one, two = w.load(kind, src), w.load(kind, w.at(src, _VECTOR))
    even = w.value(f"vector.shuffle {one}, {two} {list(range(0, 2 * lanes, 2))} : {kind}, {kind}")
    w.store(even, kind, w.at("%dst", w.mul(start, size)))


def _move() -> str:
    """A contiguous row; the last vector of a size overlaps the one before, so that no mask is needed."""
    w = FunctionBuilder()

    def step(offset: str | int, width: int) -> None:
        kind = f"vector<{width}xi8>" if width > 8 else f"i{8 * width}"
        w.store(w.load(kind, w.at("%src", offset)), kind, w.at("%dst", offset))

    def long() -> None:
        block = _VECTOR * _UNROLLED
        whole = w.op("andi", "%bytes", w.constant(-block))
        kind = f"vector<{_VECTOR}xi8>"
        with w.loop(0, whole, block) as i:
            places = [w.add(i, _VECTOR * u) for u in range(_UNROLLED)]
            values = [w.load(kind, w.at("%src", place)) for place in places]
            for place, value in zip(places, values, strict=True):
                w.store(value, kind, w.at("%dst", place))
        with w.loop(whole, w.sub("%bytes", _VECTOR), _VECTOR) as i:
            step(i, _VECTOR)
        step(w.sub("%bytes", _VECTOR), _VECTOR)

    w.branch(w.is_("sge", "%bytes", _VECTOR), long, lambda: _short(w, step))
    w.done()
    return w.function("move_row", ["%dst: !llvm.ptr", "%src: !llvm.ptr", "%bytes: i64"], "", SHARED_CODE)


def _stream() -> str:
    """A contiguous row of which whole lines are written past the caches.

    A line of the destination is not read before it is overwritten then; what the row has of other lines is moved.
    """
    w = FunctionBuilder()
    block = _VECTOR * _UNROLLED
    kind = f"vector<{_VECTOR}xi8>"
    address = w.value("llvm.ptrtoint %dst : !llvm.ptr to i64")
    before = w.op("andi", w.sub(w.constant(0), address), w.constant(_VECTOR - 1))
    head = w.op("minsi", before, "%bytes")
    whole = w.op("andi", w.sub("%bytes", head), w.constant(-block))
    w.call("move_row", ["%dst", "%src", head], _BYTES_KINDS)
    dst, src = w.at("%dst", head), w.at("%src", head)
    with w.loop(0, whole, block) as i:
        places = [w.add(i, _VECTOR * u) for u in range(_UNROLLED)]
        values = [w.load(kind, w.at(src, place)) for place in places]
        for place, value in zip(places, values, strict=True):
            w.stream(value, kind, w.at(dst, place), _VECTOR)
    w.call("move_row", [w.at(dst, whole), w.at(src, whole), w.sub(w.sub("%bytes", head), whole)], _BYTES_KINDS)
    w.done()
    return w.function("stream_row", ["%dst: !llvm.ptr", "%src: !llvm.ptr", "%bytes: i64"], "", SHARED_CODE)


def _short(w: FunctionBuilder, step: Callable[[str | int, int], None], smallest: int = 1) -> None:
    """Move less than a vector: twice the largest power of two that fits, from both ends."""

    def of(width: int) -> None:
        def fits() -> None:
            step(0, width)
            if width > smallest:
                step(w.sub("%bytes", width), width)

        if width == smallest:
            with w.when(w.is_("sge", "%bytes", width)):
                fits()
        else:
            w.branch(w.is_("sge", "%bytes", width), fits, lambda: of(width // 2))

    of(_VECTOR // 2)


def _fill(size: int) -> str:
    w = FunctionBuilder()
    kind = f"i{8 * size}"
    lanes = _VECTOR // size
    item = w.load(kind, "%src")
    vectors = {lanes: w.value(f"vector.broadcast {item} : {kind} to vector<{lanes}x{kind}>")}
    for n in (lanes // 2, lanes // 4, lanes // 8, lanes // 16, lanes // 32):
        if n > 1:
            vectors[n] = w.value(f"vector.broadcast {item} : {kind} to vector<{n}x{kind}>")

    def step(offset: str | int, width: int) -> None:
        n = width // size
        if n == 1:
            w.store(item, kind, w.at("%dst", offset))
        else:
            w.store(vectors[n], f"vector<{n}x{kind}>", w.at("%dst", offset))

    def long() -> None:
        whole = w.op("andi", "%bytes", w.constant(-_VECTOR * _UNROLLED))
        with w.loop(0, whole, _VECTOR * _UNROLLED) as i:
            for u in range(_UNROLLED):
                step(w.add(i, _VECTOR * u), _VECTOR)
        with w.loop(whole, w.sub("%bytes", _VECTOR), _VECTOR) as i:
            step(i, _VECTOR)
        step(w.sub("%bytes", _VECTOR), _VECTOR)

    w.branch(w.is_("sge", "%bytes", _VECTOR), long, lambda: _short(w, step, size))
    w.done()
    return w.function(f"fill_row_{size}", ["%dst: !llvm.ptr", "%src: !llvm.ptr", "%bytes: i64"], "", SHARED_CODE)
