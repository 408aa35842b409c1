"""Powers of two, float8_e8m0fnu: their exponents as bytes, computed with as float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki.core import dtypes
from nki.core.dtypes import DType
from nki.graph.errors import unsupported
from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.kinds import ELEMENTWISE
from nki.graph.passes.rewriter import Rewriter

_SCALE = dtypes.float8_e8m0fnu
_MANTISSA, _HALF, _LEAST, _NAN = 23, 1 << 22, 1, 0xFF
_INFINITE, _QUIET = 0xFF << 23, 0x7FC0_0000
_SUBNORMAL = 1 << 22
"""2**-127, the value of the exponent 0, as bits of float32."""

_MOVES = frozenset({
    "broadcast_in_dim", "concatenate", "dynamic_slice", "dynamic_update_slice", "gather", "pad", "reshape", "reverse",
    "select", "slice", "transpose",
})  # fmt: skip
_KEPT = frozenset({
    "bitcast_convert", "while", "case", "if", "call", "composite", "custom_call", "optimization_barrier", "return",
})  # fmt: skip


def scales(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """An operation on powers of two as one on bytes, if it moves them, or on float32, if it computes with them.

    Raises:
        GraphError: "graph.unsupported" for reductions, products and sorts.
    """
    if op.name in _KEPT or not any(value.type.dtype is _SCALE for value in (*op.operands, *op.results)):
        return None
    if op.name == "constant":
        return [_as_scale(r, r.constant(np.asarray(op.attributes["value"]).view(np.uint8)))]
    if op.name == "convert":
        return [_converted(r, op.operands[0], op.results[0].type.dtype)]
    if op.name not in _MOVES and op.name not in ELEMENTWISE:
        raise unsupported(op, "powers of two are only moved, converted and computed with", "convert them to float32")
    bytewise = op.name in _MOVES
    through = _as_bytes if bytewise else _value
    operands = [through(r, value) if value.type.dtype is _SCALE else value for value in op.operands]
    (result,) = op.results
    if result.type.dtype is not _SCALE:
        return r.op(op.name, operands, [result.type], op.attributes)
    held = TensorType(result.type.shape, dtypes.uint8 if bytewise else dtypes.float32)
    made = r.op(op.name, operands, [held], op.attributes)[0]
    return [_as_scale(r, made) if bytewise else _rounded(r, made)]


def _converted(r: Rewriter, value: Value, dtype: DType) -> Value:
    if value.type.dtype is dtype:
        return value
    if dtype is _SCALE:
        return _rounded(r, r.convert(value, dtypes.float32))
    return r.convert(_value(r, value), dtype)


def _as_bytes(r: Rewriter, value: Value) -> Value:
    return r.one("bitcast_convert", [value], TensorType(value.type.shape, dtypes.uint8))


def _as_scale(r: Rewriter, value: Value) -> Value:
    return r.one("bitcast_convert", [value], TensorType(value.type.shape, _SCALE))


def _value(r: Rewriter, value: Value) -> Value:
    """Powers of two as float32: a byte is the exponent, but for the smallest one, which is subnormal, and NaN."""
    words = TensorType(value.type.shape, dtypes.uint32)
    code = r.convert(_as_bytes(r, value), dtypes.uint32)
    bits = r.same("shift_left", code, r.full(_MANTISSA, words))
    bits = _select(r, _compared(r, code, 0, "EQ"), r.full(_SUBNORMAL, words), bits)
    bits = _select(r, _compared(r, code, _NAN, "EQ"), r.full(_QUIET, words), bits)
    return r.one("bitcast_convert", [bits], TensorType(words.shape, dtypes.float32))


def _rounded(r: Rewriter, value: Value) -> Value:
    """The nearest powers of two of float32, halfway up; NaN for what is not positive, infinite or NaN, as ml_dtypes has
    it. Subnormal numbers above 2**-127 are 2**-126, which both ml_dtypes and PyTorch make of them."""
    words = TensorType(value.type.shape, dtypes.uint32)
    bits = r.one("bitcast_convert", [value], words)
    exponent = r.same("shift_right_logical", bits, r.full(_MANTISSA, words))
    above = _select(r, _compared(r, exponent, 0, "EQ"), r.full(_HALF - 1, words), r.full(_HALF, words))
    code = r.same("shift_right_logical", r.same("add", bits, above), r.full(_MANTISSA, words))
    positive = r.same("subtract", bits, r.full(_LEAST, words))  # zero becomes the largest word
    strange = _compared(r, positive, _INFINITE - _LEAST, "GE")
    code = _select(r, strange, r.full(_NAN, words), code)
    return _as_scale(r, r.convert(code, dtypes.uint8))


def _select(r: Rewriter, mask: Value, x: Value, y: Value) -> Value:
    return r.op("select", [mask, x, y], [x.type])[0]


def _compared(r: Rewriter, value: Value, number: int, direction: str) -> Value:
    kind = TensorType(value.type.shape, dtypes.bool_)
    limit = r.full(number, value.type)
    return r.one("compare", [value, limit], kind, comparison_direction=direction, compare_type="UNSIGNED")
