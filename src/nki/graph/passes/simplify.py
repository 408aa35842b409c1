"""Identities that hold for every value, NaN, infinities and the sign of zero included, by operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import frexp, isfinite

from nki.core.dtypes import DType
from nki.graph.ir import Module, Op, TensorType, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.kinds import is_pointwise
from nki.graph.passes.lossless import lossless
from nki.graph.passes.rewriter import Rewriter, rewrite
from nki.graph.passes.simplify_moves import MOVES

Simplifier = Callable[[Rewriter, Op], "Sequence[Value] | None"]

_MOST_POWER = 4


def simplify(module: Module, context: GraphContext) -> Module:
    """The model with simpler operations in place of what they equal."""
    return rewrite(module, _rule)


def _rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
    for rule in RULES.get(op.name, ()):
        found = rule(r, op)
        if found is not None:
            return found
    return _sink(r, op) if is_pointwise(op) else None


def _is(r: Rewriter, value: Value, number: float, *, negative_zero: bool = False) -> bool:
    """Whether a value is a splat of a number; of zeros only the wanted one."""
    found = r.scalar_of(value)
    if found is None or value.type.dtype.kind == "bool":
        return False
    number_found = float(found)
    if number_found != number:
        return False
    negative = str(number_found).startswith("-")
    return number != 0 or not value.type.dtype.is_float or negative == negative_zero


def _truth(r: Rewriter, value: Value) -> bool | None:
    found = r.scalar_of(value) if value.type.dtype.kind == "bool" else None
    return None if found is None else bool(found)


def _add(r: Rewriter, op: Op) -> Sequence[Value] | None:
    x, y = op.operands
    if _is(r, y, 0.0, negative_zero=True):
        return [x]
    return [y] if _is(r, x, 0.0, negative_zero=True) else None


def _subtract(r: Rewriter, op: Op) -> Sequence[Value] | None:
    x, y = op.operands
    if _is(r, y, 0.0):
        return [x]
    if x is y and x.type.dtype.is_integer:
        return [r.full(0, x.type)]
    return None


def _multiply(r: Rewriter, op: Op) -> Sequence[Value] | None:
    for x, y in (op.operands, op.operands[::-1]):
        if _is(r, y, 1):
            return [x]
        if _is(r, y, 0) and x.type.dtype.is_integer:
            return [y]
        if _is(r, y, -1) and x.type.dtype.is_float:
            return [r.same("negate", x)]
    return None


def _divide(r: Rewriter, op: Op) -> Sequence[Value] | None:
    x, y = op.operands
    if _is(r, y, 1):
        return [x]
    number = r.scalar_of(y)
    if not x.type.dtype.is_float or number is None:
        return None
    divisor = float(number)
    inverse = 1 / divisor if divisor and isfinite(divisor) else 0.0
    if not inverse or abs(frexp(divisor)[0]) != 0.5 or not _normal(inverse, x.type.dtype):
        return None
    return [r.same("multiply", x, r.full(inverse, y.type))]


def _logistic(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """1 / (1 + exp(-x)), which is how StableHLO defines logistic."""
    total = r.maker(op.operands[1], "add")
    if total is None or not _is(r, op.operands[0], 1):
        return None
    for value, number in (total.operands, total.operands[::-1]):
        power = r.maker(value, "exponential")
        minus = None if power is None else r.maker(power.operands[0], "negate")
        if minus is not None and _is(r, number, 1):
            return [r.same("logistic", minus.operands[0])]
    return None


def _normal(number: float, dtype: DType) -> bool:
    """Far from the ends of the exponents of every float type that has it."""
    smallest = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126}.get(dtype.name)
    return smallest is not None and smallest <= abs(number) <= dtype.max


def _power(r: Rewriter, op: Op) -> Sequence[Value] | None:
    x, y = op.operands
    number = r.scalar_of(y)
    if number is None or float(number) != int(float(number) if isfinite(float(number)) else 0):
        return None
    exponent = int(float(number))
    if exponent == 1:
        return [x]
    if not 2 <= exponent <= _MOST_POWER:
        return None
    square = r.same("multiply", x, x)
    if exponent == 2:
        return [square]
    return [r.same("multiply", square, x if exponent == 3 else square)]


def _extreme(name: str) -> Simplifier:
    """maximum(x, lowest) is x: also for NaN, and for infinity."""

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        for x, y in (op.operands, op.operands[::-1]):
            if x is y:
                return [x]
            found = r.scalar_of(y)
            if found is None or y.type.dtype.kind == "bool":
                continue
            dtype = y.type.dtype
            ends = (dtype.min, dtype.max) if dtype.is_integer else (float("-inf"), float("inf"))
            if float(found) == ends[name == "minimum"]:
                return [x]
        return None

    return rule


def _logic(unit: bool) -> Simplifier:
    """``and`` for unit True, ``or`` for unit False."""

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        for x, y in (op.operands, op.operands[::-1]):
            if x is y:
                return [x]
            truth = _truth(r, y)
            if truth is not None:
                return [x if truth is unit else y]
        return None

    return rule


def _twice(name: str) -> Simplifier:
    """An operation that is its own inverse."""

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        inner = r.maker(op.operands[0], name)
        return [inner.operands[0]] if inner is not None else None

    return rule


def _again(name: str) -> Simplifier:
    """An operation that changes nothing the second time."""
    return lambda r, op: [op.operands[0]] if r.maker(op.operands[0], name) is not None else None


def _select(r: Rewriter, op: Op) -> Sequence[Value] | None:
    predicate, x, y = op.operands
    if x is y:
        return [x]
    truth = _truth(r, predicate)
    if truth is not None:
        return [x if truth else y]
    inner = r.maker(predicate, "not")
    return [r.op("select", (inner.operands[0], y, x), [x.type])[0]] if inner is not None else None


_OF_ITSELF = {"EQ": True, "GE": True, "LE": True, "NE": False, "GT": False, "LT": False}


def _compare(r: Rewriter, op: Op) -> Sequence[Value] | None:
    x, y = op.operands
    direction = op.attributes["comparison_direction"]
    if x is y and not x.type.dtype.is_float:
        return [r.full(_OF_ITSELF[direction], op.results[0].type)]
    truth = _truth(r, y)
    if truth is not None and direction in ("EQ", "NE"):
        return [x if truth is (direction == "EQ") else r.same("not", x)]
    return None


def _convert(r: Rewriter, op: Op) -> Sequence[Value] | None:
    value, kind = op.operands[0], op.results[0].type
    if value.type == kind:
        return [value]
    inner = r.maker(value, "convert")
    if inner is None or not lossless(inner.operands[0].type.dtype, value.type.dtype):
        return None
    return [r.convert(inner.operands[0], kind.dtype)]


def _bitcast(r: Rewriter, op: Op) -> Sequence[Value] | None:
    value = op.operands[0]
    if value.type == op.results[0].type:
        return [value]
    inner = r.maker(value, "bitcast_convert")
    if inner is None:
        return None
    return r.op("bitcast_convert", inner.operands, [op.results[0].type])


def _case(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """A branch that is known."""
    chosen = r.scalar_of(op.operands[0])
    if chosen is None:
        return None
    number = (0 if chosen else 1) if op.name == "if" else int(chosen)
    last = len(op.regions) - 1
    return r.inline(op.regions[number if 0 <= number <= last else last], ())


def _sink(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Reshapes after elementwise operations instead of before, if all operands can be had in the earlier shape."""
    source = next((m for m in (r.maker(value, "reshape") for value in op.operands) if m is not None), None)
    if source is None:
        return None
    shape = source.operands[0].type.shape
    operands = [_in_shape(r, value, shape) for value in op.operands]
    found = [value for value in operands if value is not None]
    if len(found) < len(operands):
        return None
    made = r.op(op.name, found, [TensorType(shape, op.results[0].type.dtype)], op.attributes)
    return [r.reshape(made[0], op.results[0].type.shape)]


def _in_shape(r: Rewriter, value: Value, shape: tuple[int, ...]) -> Value | None:
    """The value's elements in another shape, without an operation that costs something; None if there is no way."""
    number = r.scalar_of(value)
    if number is not None:
        return r.full(number, TensorType(shape, value.type.dtype))
    inner = r.maker(value, "reshape")
    if inner is not None:
        return inner.operands[0] if inner.operands[0].type.shape == shape else None
    wide = r.maker(value, "broadcast_in_dim")
    if wide is None or [n for n in shape if n != 1] != [n for n in value.type.shape if n != 1]:
        return None
    real = iter(dim for dim, size in enumerate(shape) if size != 1)
    place = {dim: next(real) for dim, size in enumerate(value.type.shape) if size != 1}
    dims = wide.attributes["broadcast_dimensions"]
    if any(dim not in place for dim in dims):
        return None
    return r.broadcast(wide.operands[0], shape, [place[dim] for dim in dims])


RULES: Mapping[str, tuple[Simplifier, ...]] = {
    "abs": (_again("abs"),),
    "add": (_add,),
    "and": (_logic(True),),
    "bitcast_convert": (_bitcast,),
    "case": (_case,),
    "ceil": (_again("ceil"),),
    "compare": (_compare,),
    "convert": (_convert,),
    "divide": (_divide, _logistic),
    "floor": (_again("floor"),),
    "if": (_case,),
    "maximum": (_extreme("maximum"),),
    "minimum": (_extreme("minimum"),),
    "multiply": (_multiply,),
    "negate": (_twice("negate"),),
    "not": (_twice("not"),),
    "or": (_logic(False),),
    "power": (_power,),
    "select": (_select,),
    "subtract": (_subtract,),
    **MOVES,
}
"""Rules of an operation, the first that applies is used."""
