"""Bits, comparisons, choices, conversions and constants on tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from nki.core.dtypes import DType, bool_, float32, int32, uint8, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MAX
from nki.graph.emit.kit import floats, integers
from nki.graph.emit.kit.engines import EngineOps, Form, Number, Splat, is_word, storage
from nki.graph.emit.kit.evaluation import Evaluation, Pending, PendingOp, Rule, base_name
from nki.graph.errors import unsupported
from nki.graph.ir import Op
from nki.isa import alu
from nki.spec.operator import Operator

_COMPARISONS: Mapping[str, Operator] = {
    "EQ": alu.EQUAL,
    "NE": alu.NOT_EQUAL,
    "GE": alu.GREATER_EQUAL,
    "GT": alu.GREATER,
    "LE": alu.LESS_EQUAL,
    "LT": alu.LESS,
}
_BITWISE: Mapping[str, Operator] = {"and": alu.BITWISE_AND, "or": alu.BITWISE_OR, "xor": alu.BITWISE_XOR}
_SHIFTS: Mapping[str, Operator] = {"shift_left": alu.LEFT_SHIFT, "shift_right_logical": alu.RIGHT_SHIFT}


def _bitwise(v: Evaluation, op: Op) -> Form:
    return v.e.binary(*v.pair(*op.operands), _BITWISE[base_name(op)])


def _not(v: Evaluation, op: Op) -> Form:
    (x,) = op.operands
    if x.type.dtype == bool_:
        return v.e.bits(v.tile(x), alu.BITWISE_XOR, 1)
    return v.e.bits(v.tile(x), alu.INVERT, 0)


def _shift(v: Evaluation, op: Op) -> Form:
    return v.e.binary(*v.pair(*op.operands), _SHIFTS[base_name(op)])


def _arithmetic_shift(v: Evaluation, op: Op) -> Form:
    return integers.arithmetic_shift(v.e, *v.pair(*op.operands))


def _popcnt(v: Evaluation, op: Op) -> Form:
    return integers.popcnt(v.e, v.tile(op.operands[0]))


def _leading_zeros(v: Evaluation, op: Op) -> Form:
    return integers.count_leading_zeros(v.e, v.tile(op.operands[0]))


# ----------------------------------------------------------------------------------------------- comparison, choice


def _compare(v: Evaluation, op: Op) -> Form:
    a, b = op.operands
    comparison = _COMPARISONS[str(op.attributes["comparison_direction"])]
    if str(op.attributes.get("compare_type", "")) == "TOTALORDER" and a.type.dtype.is_float:
        return integers.compared(v.e, _sort_key(v.e, v.tile(a)), _sort_key(v.e, v.tile(b)), comparison)
    if is_word(storage(a.type.dtype)):
        return integers.compared(v.e, *v.pair(a, b), comparison)
    for data, other, reverse in ((a, b, False), (b, a, True)):
        operand = v.step_operand(other)
        if operand is not None:
            pending = v.pend(data, PendingOp(comparison, operand, reverse and not comparison.commutes), bool_)
            return v.issue(pending) if isinstance(pending, Pending) else pending
    return v.e.binary(*v.pair(a, b), comparison, uint8)


def _sort_key(e: EngineOps, x: NkiTensor) -> NkiTensor:
    """int32 in the order of the floats, -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    bits = e.copy(x, float32).view(int32)
    mask = e.scalar(bits, alu.LESS, 0.0, alu.MULTIPLY, -1.0)
    return e.binary(e.bits(mask.view(uint32), alu.RIGHT_SHIFT, 1).view(int32), bits, alu.BITWISE_XOR)


def _select(v: Evaluation, op: Op) -> Form:
    predicate, on_true, on_false = op.operands
    dtype = storage(op.results[0].type.dtype)
    into = v.free(on_false)
    forms = [v.form(value) for value in (on_true, on_false)]
    condition = v.tile(predicate)
    chosen = [form if isinstance(form, Splat) or form.dtype == dtype else v.e.copy(form, dtype) for form in forms]
    return v.e.where(condition, chosen[0], chosen[1], dtype, into)


def _is_finite(v: Evaluation, op: Op) -> Form:
    return v.e.scalar(v.tile(op.operands[0]), alu.ABS, 0.0, alu.LESS_EQUAL, FP32_MAX, dtype=uint8)


# --------------------------------------------------------------------------------------------------------- conversion


def _convert(v: Evaluation, op: Op) -> Form | Pending:
    (x,) = op.operands
    source, wanted = x.type.dtype, op.results[0].type.dtype
    held = v.held(x)
    if isinstance(held, Splat):
        return converted_number(held.value, wanted)
    if isinstance(held, Pending) and held.is_exact and source.is_float and wanted.is_float:
        changed = Pending(held.data, held.steps, wanted)
        return changed if wanted == float32 else v.issue(changed)
    return converted(v.e, v.tile(x), source, wanted)


def converted_number(value: Number, wanted: DType) -> Splat:
    """A number with another dtype."""
    if wanted == bool_:
        return Splat(int(value != 0))
    if wanted.is_float:
        return Splat(float(np.asarray(value, np.float64).astype(wanted.numpy)))
    if isinstance(value, float):
        return Splat(0 if math.isnan(value) else int(min(max(value, wanted.min), wanted.max)))
    return Splat(int(np.asarray(value, np.int64).astype(wanted.numpy)))


def converted(e: EngineOps, x: NkiTensor, source: DType, wanted: DType) -> NkiTensor:
    """A tile with another dtype, as StableHLO converts: towards zero from floats, wrapping among integers."""
    if source == wanted:
        return x
    if wanted == bool_:
        return e.scalar(x, alu.NOT_EQUAL, 0.0, dtype=uint8)
    if wanted.is_float or source == bool_:
        return e.copy(x, wanted)
    if source.is_float:
        return e.copy(floats.truncated(e, x, integers.word_of(wanted)), wanted)
    if source.itemsize < wanted.itemsize:
        return integers.wrapped(e, integers.widened(e, x), wanted)
    if source.itemsize == wanted.itemsize:
        return x.view(wanted)
    return integers.wrapped(e, x, wanted) if is_word(source) else _low_bytes(e, x, wanted)


def _low_bytes(e: EngineOps, x: NkiTensor, wanted: DType) -> NkiTensor:
    return integers.wrapped(e, integers.widened(e, x), wanted)


def _bitcast(v: Evaluation, op: Op) -> Form:
    (x,) = op.operands
    source, wanted = x.type.dtype, op.results[0].type.dtype
    if source.itemsize != wanted.itemsize or bool_ in (source, wanted):
        raise unsupported(op, "the element sizes differ", "convert between types of one width")
    tile = v.tile(x)
    return (tile if tile.is_contiguous() else v.e.copy(tile, tile.dtype)).view(wanted)


_EXACT_ROUNDINGS: Mapping[tuple[int, int], str] = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32"}


def _reduce_precision(v: Evaluation, op: Op) -> Form:
    bits = int(op.attributes["exponent_bits"]), int(op.attributes["mantissa_bits"])
    tile, dtype = v.tile(op.operands[0]), op.results[0].type.dtype
    if bits not in _EXACT_ROUNDINGS:
        raise unsupported(op, f"no element type has {bits[0]} exponent and {bits[1]} mantissa bits", "use (8, 7)")
    return v.e.copy(v.e.copy(tile, DType(_EXACT_ROUNDINGS[bits])), dtype)


# ---------------------------------------------------------------------------------------------------------- constants


def splat_of(array: Any) -> Number | None:
    """The number that all elements of an array are, as bits; None if they differ."""
    flat = np.asarray(array)
    if flat.size == 0:
        return None
    first = flat.reshape(-1)[:1] if 0 not in flat.strides else flat.flat[0:1]
    same = all(stride == 0 or size == 1 for stride, size in zip(flat.strides, flat.shape, strict=True))
    if not same and np.ascontiguousarray(flat).tobytes() != first.tobytes() * flat.size:
        return None
    number = first.astype(np.float64)[0] if first.dtype.kind not in "iub" else first[0]
    return int(number) if first.dtype.kind in "iub" else float(number)


def _constant(v: Evaluation, op: Op) -> Form:
    number = splat_of(op.attributes["value"])
    if number is None:
        raise unsupported(op, "the caller did not load this constant", "load it from device memory")
    return Splat(number)


CONVERSIONS: Mapping[str, Rule] = {
    **dict.fromkeys(_BITWISE, _bitwise),
    **dict.fromkeys(_SHIFTS, _shift),
    "not": _not,
    "shift_right_arithmetic": _arithmetic_shift,
    "popcnt": _popcnt,
    "count_leading_zeros": _leading_zeros,
    "compare": _compare,
    "select": _select,
    "is_finite": _is_finite,
    "convert": _convert,
    "bitcast_convert": _bitcast,
    "reduce_precision": _reduce_precision,
    "constant": _constant,
}
"""By the name of the operation."""
