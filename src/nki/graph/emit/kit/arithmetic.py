"""Arithmetic and functions on tiles: steps that wait for what follows, instructions that do several at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from nki.core.dtypes import DType, bool_, float32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit import angles, floats, integers, remainders
from nki.graph.emit.kit.engines import EngineOps, Form, Number, Splat, is_word, storage
from nki.graph.emit.kit.evaluation import Evaluation, Pending, PendingOp, Rule, base_name
from nki.graph.ir import Op, Value
from nki.isa import alu
from nki.isa import functions as unit
from nki.spec.operator import Operator

_ARITHMETIC: Mapping[str, Operator] = {
    "add": alu.ADD,
    "subtract": alu.SUBTRACT,
    "multiply": alu.MULTIPLY,
    "maximum": alu.MAXIMUM,
    "minimum": alu.MINIMUM,
}
_OF_TRUTH: Mapping[str, Operator] = {
    "add": alu.BITWISE_OR,
    "multiply": alu.BITWISE_AND,
    "maximum": alu.BITWISE_OR,
    "minimum": alu.BITWISE_AND,
}
_ACTIVATIONS: Mapping[str, Operator] = {
    "exponential": unit.EXP,
    "log": unit.LOG,
    "logistic": unit.SIGMOID,
    "tanh": unit.TANH,
    "sqrt": unit.SQRT,
    "rsqrt": alu.RSQRT,
    "erf": unit.ERF,
}
_FUNCTIONS: Mapping[str, Callable[[EngineOps, NkiTensor, DType], NkiTensor]] = {
    "floor": floats.floor,
    "ceil": floats.ceil,
    "round_nearest_even": floats.round_nearest_even,
    "round_nearest_afz": floats.round_nearest_afz,
    "exponential_minus_one": floats.exponential_minus_one,
    "log_plus_one": floats.log_plus_one,
    "cbrt": floats.cbrt,
    "erf_inv": floats.erf_inv,
    "sine": angles.sine,
    "cosine": angles.cosine,
    "tan": angles.tan,
}

_SQUARED, _CUBED = 2.0, 3.0

_OPERANDS = 2
"""Other tiles that one pass of Vector takes, one for each of its two operators."""


def _arithmetic(v: Evaluation, op: Op) -> Form | Pending:
    a, b = op.operands
    dtype, name = op.results[0].type.dtype, base_name(op)
    if dtype == bool_:
        return v.e.binary(*v.pair(a, b), _OF_TRUTH[name])
    if dtype.is_float:
        return _float_arithmetic(v, op.results[0], a, b, _ARITHMETIC[name])
    if name in ("maximum", "minimum") and not is_word(dtype):
        return v.e.binary(*v.pair(a, b), _ARITHMETIC[name])
    return integers.arithmetic(v.e, *v.pair(a, b), _ARITHMETIC[name], dtype)


def _squared(v: Evaluation, result: Value, x: Value, dtype: DType) -> Form:
    if result in v.summed:
        return _activated(v, result, v.tile(x), alu.SQUARE, dtype)
    return v.e.squared(v.tile(x), dtype)


def _float_arithmetic(v: Evaluation, result: Value, a: Value, b: Value, op: Operator) -> Form | Pending:
    dtype = result.type.dtype
    if a is b and op == alu.MULTIPLY:
        return _squared(v, result, a, dtype)
    for data, other, reverse in ((a, b, False), (b, a, True)):
        operand = v.step_operand(other)
        if operand is not None:
            return v.pend(data, PendingOp(op, operand, reverse and not op.commutes), dtype)
    for data, other, reverse in ((a, b, False), (b, a, True)):
        held = v.held(data)
        if not isinstance(held, Pending) or len(held.steps) > 1 or not held.is_exact:
            continue
        if held.steps[0].op.arity == _OPERANDS:
            (step,) = held.steps
            return v.e.fused(
                held.data, step.op, step.operand, op, v.tile(other),
                reverse0=step.reverse, reverse1=reverse and not op.commutes, dtype=dtype,
            )  # fmt: skip
    return v.e.binary(*v.pair(a, b), op, dtype)


def _negate(v: Evaluation, op: Op) -> Form | Pending:
    (x,) = op.operands
    if x.type.dtype.is_float:
        return v.pend(x, PendingOp(alu.MULTIPLY, -1.0), x.type.dtype)
    return integers.negative(v.e, v.tile(x))


def _divide(v: Evaluation, op: Op) -> Form | Pending:
    a, b = op.operands
    dtype = a.type.dtype
    if not dtype.is_float:
        return integers.divided(v.e, *v.pair(a, b))[0]
    divisor = v.step_operand(b)
    if isinstance(divisor, int | float):
        return _divided_by(v, a, float(divisor))
    if divisor is not None:
        return v.pend(a, PendingOp(alu.MULTIPLY, v.e.inverse(divisor)), dtype)
    numerator = v.step_operand(a)
    inverse_tile = v.e.inverse(v.tile(b))
    if numerator is not None:
        return Pending(inverse_tile, (PendingOp(alu.MULTIPLY, numerator),), dtype)
    return v.e.binary(v.tile(a), inverse_tile, alu.MULTIPLY, dtype)


def _divided_by(v: Evaluation, a: Value, divisor: float) -> Form | Pending:
    """By way of the reciprocal; in two steps where it is infinite or has lost digits as float32."""
    if divisor == 0:
        return v.pend(a, PendingOp(alu.MULTIPLY, math.copysign(math.inf, divisor)), a.type.dtype)
    if abs(divisor) < 2.0**-126:
        scale = 2.0**64
    elif 2.0**126 < abs(divisor) < math.inf:
        scale = 2.0**-64
    else:
        return v.pend(a, PendingOp(alu.MULTIPLY, 1.0 / divisor), a.type.dtype)
    steps = (PendingOp(alu.MULTIPLY, scale), PendingOp(alu.MULTIPLY, 1.0 / (divisor * scale)))
    return Pending(v.tile(a), steps, a.type.dtype)


def _remainder(v: Evaluation, op: Op) -> Form:
    a, b = op.operands
    if a.type.dtype.is_float:
        return remainders.remainder(v.e, *v.pair(a, b), a.type.dtype)
    return integers.divided(v.e, *v.pair(a, b))[1]


def _power(v: Evaluation, op: Op) -> Form | Pending:
    a, b = op.operands
    dtype = a.type.dtype
    if not dtype.is_float:
        return integers.power(v.e, *v.pair(a, b))
    exponent = v.held(b)
    if not isinstance(exponent, Splat):
        base, tile = v.pair(a, b)
        return v.e.binary(v.e.here(base), v.e.here(tile), alu.POWER, dtype)
    number = float(exponent.value)
    if number == _SQUARED:
        return _squared(v, op.results[0], a, dtype)
    if number == _CUBED:
        x = v.tile(a)
        return v.e.binary(v.e.squared(x, float32), x, alu.MULTIPLY, dtype)
    return v.pend(a, PendingOp(alu.POWER, number), dtype)


def _square(v: Evaluation, op: Op) -> Form | Pending:
    (x,) = op.operands
    dtype = x.type.dtype
    if dtype.is_float:
        return _squared(v, op.results[0], x, dtype)
    return integers.arithmetic(v.e, *v.pair(x, x), alu.MULTIPLY, dtype)


def _absolute(v: Evaluation, op: Op) -> Form | Pending:
    (x,) = op.operands
    if x.type.dtype.is_float:
        return v.pend(x, PendingOp(alu.ABS, 0.0), x.type.dtype)
    return integers.absolute(v.e, v.tile(x))


def _sign(v: Evaluation, op: Op) -> Form:
    (x,) = op.operands
    if x.type.dtype.is_float:
        return floats.sign(v.e, v.e.here(v.tile(x)), x.type.dtype)
    return integers.sign(v.e, v.tile(x))


def _activation(v: Evaluation, op: Op) -> Form:
    """A function of the Scalar engine, with a multiplication and an addition before it on the side."""
    (x,) = op.operands
    function, dtype = _ACTIVATIONS[base_name(op)], x.type.dtype
    held = v.held(x)
    if isinstance(held, Pending) and held.is_exact:
        sides = _scale_and_bias(held.steps)
        if sides is not None:
            return _activated(v, op.results[0], held.data, function, dtype, *sides)
    return _activated(v, op.results[0], v.tile(x), function, dtype)


def _activated(
    v: Evaluation,
    result: Value,
    x: NkiTensor,
    function: Operator,
    dtype: DType,
    scale: Number | NkiTensor = 1.0,
    bias: Number | NkiTensor | None = None,
) -> NkiTensor:
    """The function's results, and their sum if somebody asks for it and none of them is rounded."""
    if result not in v.summed or x.shape != v.shape or dtype != float32:
        return v.e.activate(x, function, dtype, scale, bias)
    tile, v.sums[result] = v.e.activate_and_sum(x, function, dtype, scale, bias)
    return tile


def _scale_and_bias(steps: tuple[PendingOp, ...]) -> tuple[Number | NkiTensor, Number | NkiTensor | None] | None:
    """Steps as ``x * scale + bias``, None if they are something else."""
    scale: Number | NkiTensor = 1.0
    bias: Number | NkiTensor | None = None
    for step in steps:
        if step.op == alu.MULTIPLY and bias is None and isinstance(scale, float) and scale == 1.0:
            scale = step.operand
        elif step.op == alu.ADD and bias is None:
            bias = step.operand
        elif step.op == alu.SUBTRACT and bias is None and not step.reverse and not isinstance(step.operand, NkiTensor):
            bias = -step.operand
        else:
            return None
    return scale, bias


def _function(v: Evaluation, op: Op) -> Form:
    (x,) = op.operands
    return _FUNCTIONS[base_name(op)](v.e, v.e.here(v.tile(x)), x.type.dtype)


def _atan2(v: Evaluation, op: Op) -> Form:
    y, x = v.pair(*op.operands)
    return floats.atan2(v.e, y, x, op.results[0].type.dtype)


def _clamp(v: Evaluation, op: Op) -> Form | Pending:
    low, x, high = op.operands
    dtype = x.type.dtype
    if dtype.is_float:
        bounds = v.step_operand(low), v.step_operand(high)
        if bounds[0] is not None and bounds[1] is not None:
            steps = PendingOp(alu.MAXIMUM, bounds[0]), PendingOp(alu.MINIMUM, bounds[1])
            return Pending(v.tile(x), steps, dtype)
    lowest, tile, highest = (v.tile(value) for value in (low, x, high))
    return v.e.binary(v.e.binary(tile, lowest, alu.MAXIMUM), highest, alu.MINIMUM, storage(dtype))


ARITHMETIC: Mapping[str, Rule] = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_ACTIVATIONS, _activation),
    **dict.fromkeys(_FUNCTIONS, _function),
    "negate": _negate,
    "divide": _divide,
    "remainder": _remainder,
    "power": _power,
    "square": _square,
    "abs": _absolute,
    "sign": _sign,
    "atan2": _atan2,
    "clamp": _clamp,
}
"""By the name of the operation."""
