"""ATen's sorting, and extremes of what came so far."""

from __future__ import annotations

from nki.core.dtypes import bool_, int32
from nki.graph.importers.torch.builder import IDENTITY, Builder
from nki.graph.importers.torch.table import CONVERTERS, Call, Converter, axis, converts
from nki.graph.ir import Op, Region, TensorType, Value


def in_order(b: Builder, x: Value, dim: int, descending: bool) -> tuple[Value, Value]:
    """Sorted along a dimension, NaN as the largest number, equal elements as they were; and where each was."""
    numbers = b.iota(x.type.shape, dim)
    number, place = TensorType((), x.type.dtype), TensorType((), int32)
    arguments = (Value(number), Value(number), Value(place), Value(place))
    tests = _before(b, arguments[0], arguments[1], descending)
    before = tests[-1].results[0]
    values, places = b.emit(
        "sort",
        (x, numbers),
        (x.type, numbers.type),
        {"dimension": dim, "is_stable": True},
        (Region(arguments, list(tests), (before,)),),
    )
    return values, places


def _before(b: Builder, x: Value, y: Value, descending: bool) -> list[Op]:
    """The comparison of two scalars, the last operation: ``x < y`` or ``x > y``."""
    if not x.type.dtype.is_float:
        kind = "SIGNED" if x.type.dtype.kind == "int" else "UNSIGNED"
        return [_compared(b, x, y, "GT" if descending else "LT", kind)]
    small = y if descending else x  # a number, and not on the other side
    number = _compared(b, small, small, "EQ", "FLOAT")
    beyond = _compared(b, x, y, "LE" if descending else "GE", "FLOAT")
    inner = Op("not", beyond.results, (Value(TensorType((), bool_)),), {}, (), b.location)
    both = (number.results[0], inner.results[0])
    return [number, beyond, inner, Op("and", both, (Value(TensorType((), bool_)),), {}, (), b.location)]


def _compared(b: Builder, x: Value, y: Value, direction: str, kind: str) -> Op:
    attributes = {"comparison_direction": direction, "compare_type": kind}
    return Op("compare", (x, y), (Value(TensorType((), bool_)),), attributes, (), b.location)


@converts("sort")
def _sort(b: Builder, call: Call, x: Value, dim: int, descending: bool) -> list[Value]:
    if not x.type.shape:
        return [x, b.constant(0, int32)]
    return list(in_order(b, x, axis(x, dim), descending))


@converts("sort.stable")
def _sort_stable(b: Builder, call: Call, x: Value, stable: bool | None, dim: int, descending: bool) -> list[Value]:
    return _sort(b, call, x, dim, descending)


@converts("topk")
def _topk(b: Builder, call: Call, x: Value, count: int, dim: int, largest: bool, is_sorted: bool) -> list[Value]:
    if not x.type.shape:
        return [x, b.constant(0, int32)]
    dim = axis(x, dim)
    values, places = in_order(b, x, dim, largest)
    return [b.slice(values, dim, 0, count), b.slice(places, dim, 0, count)]


# ----------------------------------------------------------------------------------------------------- running extremes


def _running(b: Builder, kind: str, x: Value, dim: int) -> Value:
    """After step s, each element holds the extreme of 2**s elements up to it."""
    size, reach = x.type.shape[dim], 1
    while reach < size:
        low = [reach if i == dim else 0 for i in range(len(x.type.shape))]
        x = b.binary(kind, x, b.pad(x, IDENTITY[kind](x.type.dtype), low, [-n for n in low]))
        reach *= 2
    return x


def _with_places(kind: str) -> Converter:
    def convert(b: Builder, call: Call, x: Value, dim: int) -> list[Value]:
        if not x.type.shape:
            return [x, b.constant(0, int32)]
        dim = axis(x, dim)
        data = b.convert(x, int32) if x.type.dtype is bool_ else x
        values = _running(b, kind, data, dim)
        fresh = b.compare("EQ", data, values)
        if data.type.dtype.is_float:
            fresh = b.binary("or", fresh, b.compare("NE", data, data))
        places = _running(b, "maximum", b.select(fresh, b.iota(x.type.shape, dim), 0), dim)
        return [b.convert(values, x.type.dtype), places]

    return convert


for _name, _kind in (("cummax", "maximum"), ("cummin", "minimum")):
    CONVERTERS[f"aten.{_name}.default"] = _with_places(_kind)
