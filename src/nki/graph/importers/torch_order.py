"""ATen's sorting."""

from __future__ import annotations

from nki.core.dtypes import bool_, int32
from nki.graph.importers.torch_builder import Builder
from nki.graph.importers.torch_table import Call, axis, converts
from nki.graph.ir import Op, Region, TensorType, Value


def in_order(b: Builder, x: Value, dim: int, descending: bool) -> tuple[Value, Value]:
    """Sorted along a dimension, equal elements as they were, and where each element came from."""
    numbers = b.iota(x.type.shape, dim)
    number, place = TensorType((), x.type.dtype), TensorType((), int32)
    arguments = (Value(number), Value(number), Value(place), Value(place))
    before = Value(TensorType((), bool_))
    kind = "FLOAT" if x.type.dtype.is_float else "SIGNED" if x.type.dtype.kind == "int" else "UNSIGNED"
    attributes = {"comparison_direction": "GT" if descending else "LT", "compare_type": kind}
    test = Op("compare", arguments[:2], (before,), attributes, (), b.location)
    values, places = b.emit(
        "sort",
        (x, numbers),
        (x.type, numbers.type),
        {"dimension": dim, "is_stable": True},
        (Region(arguments, [test], (before,)),),
    )
    return values, places


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


@converts("bucketize.Tensor")
def _bucketize(b: Builder, call: Call, x: Value, boundaries: Value, int32_places: bool, right: bool) -> Value:
    """How many boundaries lie below each element, or not above it."""
    column = b.reshape(x, (*x.type.shape, 1))
    below = b.compare("LE" if right else "LT", b.convert(boundaries, x.type.dtype), column)
    return b.reduce("add", b.convert(below, call.dtype), (len(x.type.shape),))
