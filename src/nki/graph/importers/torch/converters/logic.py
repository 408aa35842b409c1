"""ATen's comparisons, logic, bits and choices."""

from __future__ import annotations

from nki.core.dtypes import bool_, float32, int32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import CONVERTERS, Call, Converter, Operand, converts, in_dtype, together
from nki.graph.ir import Value

_OF_LARGER, _OF_SMALLER = ("LT", "LE", "NE"), ("GT", "GE", "NE")
"""Comparisons that hold with a number beyond the range of what it is compared with."""


def _compared(direction: str) -> Converter:
    def convert(b: Builder, call: Call, x: Operand, y: Operand) -> Value:
        if isinstance(x, Value) and type(y) is int and x.type.dtype is int32 and not int32.min <= y <= int32.max:
            return b.constant(direction in _OF_LARGER if y > 0 else direction in _OF_SMALLER, bool_, x.type.shape)
        left, right = together(b, x, y)
        if left.type.dtype is bool_:
            left, right = b.convert(left, float32), b.convert(right, float32)
        return b.compare(direction, left, right)

    return convert


def _logical(name: str) -> Converter:
    def convert(b: Builder, call: Call, x: Value, y: Value) -> Value:
        return b.binary(name, b.convert(x, bool_), b.convert(y, bool_))

    return convert


def _bits(name: str) -> Converter:
    def convert(b: Builder, call: Call, x: Operand, y: Operand) -> Value:
        return b.binary(name, in_dtype(b, x, call.dtype), in_dtype(b, y, call.dtype))

    return convert


for _direction in ("eq", "ne", "lt", "le", "gt", "ge"):
    for _overload in ("Tensor", "Scalar"):
        CONVERTERS[f"aten.{_direction}.{_overload}"] = _compared(_direction.upper())
for _name in ("and", "or", "xor"):
    CONVERTERS[f"aten.logical_{_name}.default"] = _logical(_name)
    for _overload in ("Tensor", "Scalar", "Scalar_Tensor"):
        CONVERTERS[f"aten.bitwise_{_name}.{_overload}"] = _bits(_name)


def _shift_right(b: Builder, call: Call, x: Operand, y: Operand) -> Value:
    name = "shift_right_logical" if call.dtype.kind == "uint" else "shift_right_arithmetic"
    return _bits(name)(b, call, x, y)  # type: ignore[return-value]


for _aten, _shift in (("left", _bits("shift_left")), ("right", _shift_right)):
    for _overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        CONVERTERS[f"aten.bitwise_{_aten}_shift.{_overload}"] = _shift
    for _overload in ("Tensor", "Scalar"):
        CONVERTERS[f"aten.__{_aten[0]}shift__.{_overload}"] = _shift


@converts("where.self")
def _where(b: Builder, call: Call, mask: Value, x: Value, y: Value) -> Value:
    return b.select(b.convert(mask, bool_), b.convert(x, call.dtype), b.convert(y, call.dtype))


@converts("clamp", "clamp.Tensor", "hardtanh")
def _clamp(b: Builder, call: Call, x: Value, low: Operand | None, high: Operand | None) -> Value:
    result = b.convert(x, call.dtype)
    if call.dtype.is_integer:  # limits that limit nothing, among them those of 64-bit integers
        low = None if isinstance(low, int) and low <= call.dtype.min else low
        high = None if isinstance(high, int) and high >= call.dtype.max else high
    if low is not None:
        result = b.binary("maximum", result, in_dtype(b, low, call.dtype))
    return result if high is None else b.binary("minimum", result, in_dtype(b, high, call.dtype))
