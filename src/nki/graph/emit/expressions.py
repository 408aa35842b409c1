"""Pointwise operations on tiles: an instruction for several operations where the engines have one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nki.core.dtypes import DType, bool_, float32, int32, uint8, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MAX
from nki.graph.emit import floats, integers
from nki.graph.emit.engines import Engines, Form, Number, Splat, is_column, is_word, storage
from nki.graph.errors import unsupported
from nki.graph.ir import Op, Value
from nki.isa import alu
from nki.isa import functions as unit
from nki.spec.operator import Operator
from nki.target.model import Target

TRANSPARENT = frozenset({"broadcast_in_dim", "reshape", "broadcast", "optimization_barrier"})
"""Operations that only rename elements: tiles are loaded in the coordinates of the result already."""

_COMPARISONS: Mapping[str, Operator] = {
    "EQ": alu.EQUAL,
    "NE": alu.NOT_EQUAL,
    "GE": alu.GREATER_EQUAL,
    "GT": alu.GREATER,
    "LE": alu.LESS_EQUAL,
    "LT": alu.LESS,
}
_ARITHMETIC: Mapping[str, Operator] = {
    "add": alu.ADD,
    "subtract": alu.SUBTRACT,
    "multiply": alu.MULTIPLY,
    "maximum": alu.MAXIMUM,
    "minimum": alu.MINIMUM,
}
_BITWISE: Mapping[str, Operator] = {"and": alu.BITWISE_AND, "or": alu.BITWISE_OR, "xor": alu.BITWISE_XOR}
_OF_TRUTH: Mapping[str, Operator] = {
    "add": alu.BITWISE_OR,
    "multiply": alu.BITWISE_AND,
    "maximum": alu.BITWISE_OR,
    "minimum": alu.BITWISE_AND,
}
_SHIFTS: Mapping[str, Operator] = {"shift_left": alu.LEFT_SHIFT, "shift_right_logical": alu.RIGHT_SHIFT}
_ACTIVATIONS: Mapping[str, Operator] = {
    "exponential": unit.EXP,
    "log": unit.LOG,
    "logistic": unit.SIGMOID,
    "tanh": unit.TANH,
    "sqrt": unit.SQRT,
    "rsqrt": alu.RSQRT,
    "erf": unit.ERF,
}
_FUNCTIONS: Mapping[str, Callable[[Engines, NkiTensor, DType], NkiTensor]] = {
    "floor": floats.floor,
    "ceil": floats.ceil,
    "round_nearest_even": floats.round_nearest_even,
    "round_nearest_afz": floats.round_nearest_afz,
    "exponential_minus_one": floats.exponential_minus_one,
    "log_plus_one": floats.log_plus_one,
    "cbrt": floats.cbrt,
    "erf_inv": floats.erf_inv,
    "sine": floats.sine,
    "cosine": floats.cosine,
    "tan": floats.tan,
}

_SQUARED, _CUBED = 2.0, 3.0


@dataclass(frozen=True, slots=True)
class Step:
    """An arithmetic operation with a number or a float32 column, not issued yet."""

    op: Operator
    operand: Number | NkiTensor
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Pending:
    """One or two steps that wait for what follows: an instruction may do them on the side."""

    data: NkiTensor
    steps: tuple[Step, ...]
    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return self.data.shape


class Reducer(Protocol):
    """Computes `reduce` operations on tiles."""

    def sums(self, op: Op) -> bool:
        """Whether it is the sum over all free elements of a partition, which Scalar takes on the side."""

    def reduce(self, evaluation: Evaluation, op: Op) -> list[NkiTensor]:
        """A tile for each result, with sizes of 1 where it is reduced."""


def base_name(op: Op) -> str:
    """The operation's name without the dialect CHLO."""
    return op.name.removeprefix("chlo.")


def apply(
    ops: Iterable[Op],
    values: Mapping[Value, Form],
    *,
    target: Target | None = None,
    engines: Engines | None = None,
    keep: Collection[Value] = (),
    shape: tuple[int, ...] = (1, 1),
    reduce: Reducer | None = None,
) -> dict[Value, Form]:
    """Compute operations whose operands are tiles.

    Tiles have the shape ``(partitions, *free)``, all of one rank; a free size of 1 is broadcast. Each has the dtype of
    its value, truth values are uint8 of 0 and 1; tiles of inputs may be in PSUM and may be float32 where the value is
    a smaller float. Operations that only rename elements (`TRANSPARENT`) pass their operand's tile on, and those
    whose results are in `values` already are skipped: that is how iota, constants that are no splats, and views come
    in.

    Args:
        ops: in topological order.
        values: what is there; it is not changed and its tiles are not overwritten.
        target, engines: one of both; `engines` keeps constants between calls.
        keep: results that are wanted; the others need not exist as tiles.
        shape: of tiles, where `values` has none.
        reduce: computes `reduce` operations.

    Returns:
        All of `values`, and the results in `keep`, as tiles or numbers.

    Raises:
        GraphError: an operation that has no instructions ("graph.unsupported").
    """
    if engines is None:
        assert target is not None, "a target or engines"
        engines = Engines(target)
    return Evaluation(engines, values, keep, shape, reduce).run(ops)


class Evaluation:
    """One call of `apply`."""

    def __init__(
        self,
        engines: Engines,
        values: Mapping[Value, Form],
        keep: Collection[Value],
        shape: tuple[int, ...],
        reduce: Reducer | None,
    ) -> None:
        self.e = engines
        self.shape = shape
        self.sums: dict[Value, NkiTensor] = {}
        self.summed: set[Value] = set()
        self._reduce = reduce
        self._values: dict[Value, Form | Pending] = dict(values)
        self._keep = set(keep)
        self._uses: Counter[Value] = Counter()
        self._owned: set[Value] = set()
        shapes = [form.shape for form in values.values() if isinstance(form, NkiTensor)]
        self._like = shapes[0] if shapes else shape

    def run(self, ops: Iterable[Op]) -> dict[Value, Form]:
        """Evaluate in order."""
        todo = [op for op in ops if not all(result in self._values for result in op.results)]
        for op in todo:
            self._uses.update(op.operands)
            if op.name == "reduce" and self._reduce is not None and self._reduce.sums(op):
                self.summed.add(op.operands[0])
        for op in todo:
            self._compute(op)
        for value in self._keep:
            self.form(value)
        return {value: form for value, form in self._values.items() if not isinstance(form, Pending)}

    def _compute(self, op: Op) -> None:
        if op.name == "reduce" and self._reduce is not None:
            self._values.update(zip(op.results, self._reduce.reduce(self, op), strict=True))
            return
        (result,) = op.results
        name = base_name(op)
        if name in TRANSPARENT:
            self._values[result] = self._values[op.operands[0]]
            self._uses[op.operands[0]] += self._uses[result]
            self._owned.discard(op.operands[0])
            return
        rule = _RULES.get(name)
        if rule is None:
            raise unsupported(op, "no instructions are known for it", "express it by other operations of StableHLO")
        made = rule(self, op)
        self._values[result] = made
        if isinstance(made, Pending) and (self._uses[result] != 1 or result in self._keep):
            self.form(result)
        if name not in _ALIASES:
            self._owned.add(result)

    # --- operands

    def form(self, value: Value) -> Form:
        """The value as a tile or number; pending steps are issued."""
        held = self._values[value]
        if isinstance(held, Pending):
            held = self._values[value] = self.issue(held)
        return held

    def held(self, value: Value) -> Form | Pending:
        """The value as it is present."""
        return self._values[value]

    def tile(self, value: Value) -> NkiTensor:
        """The value as a tile; a number becomes a column."""
        return self.e.tile(self.form(value), storage(value.type.dtype), self._like)

    def pair(self, a: Value, b: Value) -> tuple[NkiTensor, NkiTensor]:
        """Two values as tiles."""
        return self.tile(a), self.tile(b)

    def step_operand(self, value: Value) -> Number | NkiTensor | None:
        """The value as an operand of `tensor_scalar`: a number or a float32 column; None if it is neither."""
        held = self._values[value]
        if isinstance(held, Splat):
            return float(held.value)
        if not is_column(held.data if isinstance(held, Pending) else held):
            return None
        form = self.tile(value)
        return form if form.dtype == float32 else self.e.copy(form, float32)

    def free(self, value: Value) -> NkiTensor | None:
        """The tile of a value that nobody needs afterwards, to be overwritten."""
        form = self._values[value]
        if value in self._owned and self._uses[value] == 1 and value not in self._keep and isinstance(form, NkiTensor):
            return form
        return None

    def issue(self, pending: Pending) -> NkiTensor:
        """What the steps give."""
        first, *rest = pending.steps
        second = rest[0] if rest else Step(alu.BYPASS, 0.0)
        return self.e.scalar(
            pending.data,
            first.op,
            first.operand,
            second.op if rest else None,
            second.operand if rest else None,
            reverse0=first.reverse,
            reverse1=second.reverse,
            dtype=storage(pending.dtype),
        )

    def pend(self, value: Value, step: Step, dtype: DType) -> Form | Pending:
        """A step after what the value is."""
        held = self._values[value]
        if isinstance(held, Pending) and len(held.steps) == 1:
            return Pending(held.data, (*held.steps, step), dtype)
        return Pending(self.tile(value), (step,), dtype)


# ------------------------------------------------------------------------------------------------------ arithmetic


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
            return v.pend(data, Step(op, operand, reverse and not op.commutes), dtype)
    for data, other, reverse in ((a, b, False), (b, a, True)):
        held = v.held(data)
        if isinstance(held, Pending) and len(held.steps) == 1:
            (step,) = held.steps
            return v.e.fused(
                held.data, step.op, step.operand, op, v.tile(other),
                reverse0=step.reverse, reverse1=reverse and not op.commutes, dtype=dtype,
            )  # fmt: skip
    return v.e.binary(*v.pair(a, b), op, dtype)


def _negate(v: Evaluation, op: Op) -> Form | Pending:
    (x,) = op.operands
    if x.type.dtype.is_float:
        return v.pend(x, Step(alu.MULTIPLY, -1.0), x.type.dtype)
    return integers.negative(v.e, v.tile(x))


def _divide(v: Evaluation, op: Op) -> Form | Pending:
    a, b = op.operands
    dtype = a.type.dtype
    if not dtype.is_float:
        return integers.divided(v.e, *v.pair(a, b))[0]
    divisor = v.step_operand(b)
    if isinstance(divisor, int | float):
        inverse = math.inf if divisor == 0 else 1.0 / divisor
        return v.pend(a, Step(alu.MULTIPLY, math.copysign(inverse, divisor)), dtype)
    if divisor is not None:
        return v.pend(a, Step(alu.MULTIPLY, v.e.inverse(divisor)), dtype)
    numerator = v.step_operand(a)
    inverse_tile = v.e.inverse(v.tile(b))
    if numerator is not None:
        return Pending(inverse_tile, (Step(alu.MULTIPLY, numerator),), dtype)
    return v.e.binary(v.tile(a), inverse_tile, alu.MULTIPLY, dtype)


def _remainder(v: Evaluation, op: Op) -> Form:
    a, b = op.operands
    if a.type.dtype.is_float:
        return floats.remainder(v.e, *v.pair(a, b), a.type.dtype)
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
    return v.pend(a, Step(alu.POWER, number), dtype)


def _square(v: Evaluation, op: Op) -> Form | Pending:
    (x,) = op.operands
    dtype = x.type.dtype
    if dtype.is_float:
        return _squared(v, op.results[0], x, dtype)
    return integers.arithmetic(v.e, *v.pair(x, x), alu.MULTIPLY, dtype)


def _absolute(v: Evaluation, op: Op) -> Form | Pending:
    (x,) = op.operands
    if x.type.dtype.is_float:
        return v.pend(x, Step(alu.ABS, 0.0), x.type.dtype)
    return integers.absolute(v.e, v.tile(x))


def _sign(v: Evaluation, op: Op) -> Form:
    (x,) = op.operands
    if x.type.dtype.is_float:
        return v.e.activate(v.tile(x), unit.SIGN, x.type.dtype)
    return integers.sign(v.e, v.tile(x))


def _activation(v: Evaluation, op: Op) -> Form:
    """A function of the Scalar engine, with a multiplication and an addition before it on the side."""
    (x,) = op.operands
    function, dtype = _ACTIVATIONS[base_name(op)], x.type.dtype
    held = v.held(x)
    if isinstance(held, Pending):
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
    """The function's results, and their sum if somebody asks for it."""
    if result not in v.summed or x.shape != v.shape:
        return v.e.activate(x, function, dtype, scale, bias)
    tile, v.sums[result] = v.e.activate_and_sum(x, function, dtype, scale, bias)
    return tile


def _scale_and_bias(steps: tuple[Step, ...]) -> tuple[Number | NkiTensor, Number | NkiTensor | None] | None:
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
            steps = Step(alu.MAXIMUM, bounds[0]), Step(alu.MINIMUM, bounds[1])
            return Pending(v.tile(x), steps, dtype)
    lowest, tile, highest = (v.tile(value) for value in (low, x, high))
    return v.e.binary(v.e.binary(tile, lowest, alu.MAXIMUM), highest, alu.MINIMUM, storage(dtype))


# ------------------------------------------------------------------------------------------------------------ bits


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
            pending = v.pend(data, Step(comparison, operand, reverse and not comparison.commutes), bool_)
            return v.issue(pending) if isinstance(pending, Pending) else pending
    return v.e.binary(*v.pair(a, b), comparison, uint8)


def _sort_key(e: Engines, x: NkiTensor) -> NkiTensor:
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
        return _converted_number(held.value, wanted)
    if isinstance(held, Pending) and source.is_float and wanted.is_float:
        return Pending(held.data, held.steps, wanted)
    return converted(v.e, v.tile(x), source, wanted)


def _converted_number(value: Number, wanted: DType) -> Splat:
    if wanted == bool_:
        return Splat(int(value != 0))
    if wanted.is_float:
        return Splat(float(np.asarray(value, np.float64).astype(wanted.numpy)))
    if isinstance(value, float):
        return Splat(0 if math.isnan(value) else int(min(max(value, wanted.min), wanted.max)))
    return Splat(int(np.asarray(value, np.int64).astype(wanted.numpy)))


def converted(e: Engines, x: NkiTensor, source: DType, wanted: DType) -> NkiTensor:
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


def _low_bytes(e: Engines, x: NkiTensor, wanted: DType) -> NkiTensor:
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


_ALIASES = frozenset({*TRANSPARENT, "bitcast_convert", "convert", "abs"})
"""Operations whose result may be the tile of an operand."""

_RULES: Mapping[str, Callable[[Evaluation, Op], Form | Pending]] = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_ACTIVATIONS, _activation),
    **dict.fromkeys(_FUNCTIONS, _function),
    **dict.fromkeys(_BITWISE, _bitwise),
    **dict.fromkeys(_SHIFTS, _shift),
    "negate": _negate,
    "divide": _divide,
    "remainder": _remainder,
    "power": _power,
    "square": _square,
    "abs": _absolute,
    "sign": _sign,
    "atan2": _atan2,
    "clamp": _clamp,
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

POINTWISE = (
    frozenset({*_RULES, *(f"chlo.{name}" for name in ("erf", "erf_inv", "tan", "square")), "iota"}) | TRANSPARENT
)
"""Names of the operations that emitters compute element by element."""
