"""ATen's places in sorted sequences: all comparisons are made at once."""

from __future__ import annotations

from nki.core.dtypes import bool_, int32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.converters.indexing import gathered_along
from nki.graph.importers.torch.table import Call, Operand, converts, together
from nki.graph.ir import Value


def _places(b: Builder, call: Call, ordered: Value, wanted: Operand, right: bool) -> Value:
    """Where the last dimension of `ordered` first has an element that is at least (`right`: above) each number.

    The number has one for that dimension. Nothing is at least NaN, which therefore has its place at the end.
    """
    ordered, number = together(b, ordered, wanted)
    if ordered.type.dtype is bool_:
        ordered, number = b.convert(ordered, int32), b.convert(number, int32)
    beyond = b.compare("GT" if right else "GE", ordered, number)
    last = len(beyond.type.shape) - 1
    places = b.select(beyond, b.iota(beyond.type.shape, last), beyond.type.shape[last])
    return b.convert(b.reduce("minimum", places, (last,)), call.dtype)


@converts("bucketize.Tensor")
def _bucketize(b: Builder, call: Call, x: Value, boundaries: Value, out_int32: bool, right: bool) -> Value:
    return _places(b, call, boundaries, b.reshape(x, (*x.type.shape, 1)), right)


@converts("bucketize.Scalar")
def _bucketize_number(b: Builder, call: Call, x: float, boundaries: Value, out_int32: bool, right: bool) -> Value:
    return _places(b, call, boundaries, x, right)


@converts("searchsorted.Tensor", "searchsorted.Scalar")
def _searchsorted(
    b: Builder, call: Call, ordered: Value, x: Operand, out_int32: bool, right: bool, side: str | None,
    sorter: Value | None,
) -> Value:  # fmt: skip
    if sorter is not None:
        ordered = gathered_along(b, ordered, len(ordered.type.shape) - 1, sorter)
    right = right or side == "right"
    if not isinstance(x, Value):
        return _places(b, call, ordered, x, right)
    shape = ordered.type.shape
    if len(shape) > 1:
        ordered = b.reshape(ordered, (*shape[:-1], 1, shape[-1]))
    return _places(b, call, ordered, b.reshape(x, (*x.type.shape, 1)), right)
