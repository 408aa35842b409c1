"""Quotients that are rounded correctly, where the last bit decides: before they become integers, and in comparisons.

Engines divide by way of the reciprocal, whose product may be off by one in the last place. That is as good as any other
float32 in a sum or a product, but 14.999999 / 3 rounded up to 5 has another floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp

from nki.core import dtypes
from nki.graph.ir import Module, Op, TensorType, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.rewriter import Rewriter, rewrite

_DECIDING = frozenset({"ceil", "compare", "floor", "round_nearest_afz", "round_nearest_even", "remainder"})
_PASSING = frozenset({
    "abs", "add", "broadcast_in_dim", "clamp", "convert", "maximum", "minimum", "multiply", "negate", "reshape",
    "select", "subtract", "transpose",
})  # fmt: skip
_UPPER_HALF = 0xFFFF_F000
"""Sign, exponent and 11 bits of the significand of a float32: products of such numbers are exact."""
_SMALL = 2.0**-64
"""Smaller divisors are made larger: products with their halves would lose digits."""


def quotients(module: Module, context: GraphContext) -> Module:
    """The model with float quotients that decide about integers or truth spelled out with their remainders."""
    wanted: set[Value] = set()
    for function in module.functions.values():
        _look(function.body, wanted)

    def rule(r: Rewriter, op: Op) -> Sequence[Value] | None:
        if op.name != "divide" or op.results[0] not in wanted or not op.results[0].type.dtype.is_float:
            return None
        return None if _exact_anyhow(r, op) else [_rounded(r, op)]

    return rewrite(module, rule) if wanted else module


def _look(body: Sequence[object], wanted: set[Value]) -> None:
    """Values from which a decision is made by elementwise operations, the last ones first."""
    for op in reversed(body):
        if not isinstance(op, Op):
            continue
        for region in op.regions:
            _look(region.ops, wanted)
        if _decides(op) or (op.name in _PASSING and op.results[0] in wanted):
            wanted.update(op.operands)


def _decides(op: Op) -> bool:
    if op.name == "convert":
        return op.operands[0].type.dtype.is_float and op.results[0].type.dtype.is_integer
    return op.name in _DECIDING and op.operands[0].type.dtype.is_float


def _exact_anyhow(r: Rewriter, op: Op) -> bool:
    """Powers of two have exact reciprocals; quotients of bfloat16 lie far from where float32 would round them apart."""
    divisor = r.scalar_of(op.operands[1])
    if divisor is not None and abs(frexp(float(divisor))[0]) in (0.0, 0.5):
        return True
    return op.results[0].type.dtype not in (dtypes.float32, dtypes.float16)


def _rounded(r: Rewriter, op: Op) -> Value:
    """T. J. Dekker, A floating-point technique for extending the available precision: the product of the quotient and
    the divisor is computed exactly, and what it leaves of the dividend corrects the quotient."""
    a, b = _with_reciprocal(r, *(r.convert(value, dtypes.float32) for value in op.operands))
    one = r.full(1.0, b.type)
    inverse = r.same("divide", one, b)
    quotient = r.same("multiply", a, inverse)
    rest = a
    for left in halves(r, quotient):
        for right in halves(r, b):
            rest = r.same("subtract", rest, r.same("multiply", left, right))
    better = r.same("add", quotient, r.same("multiply", rest, inverse))
    truth = TensorType(better.type.shape, dtypes.bool_)
    some = r.one("compare", [rest, r.full(0.0, rest.type)], truth, comparison_direction="NE", compare_type="FLOAT")
    inexact = r.same("and", some, r.one("is_finite", [better], truth))
    chosen = r.op("select", [inexact, better, quotient], [quotient.type])[0]
    return r.convert(chosen, op.results[0].type.dtype)


def _with_reciprocal(r: Rewriter, a: Value, b: Value) -> tuple[Value, Value]:
    """Both multiplied by a power of two where the divisor is so small that its reciprocal would be infinite."""
    truth = TensorType(b.type.shape, dtypes.bool_)
    size = r.same("abs", b)
    small = r.one("compare", [size, r.full(_SMALL, b.type)], truth, comparison_direction="LT", compare_type="FLOAT")
    scale = r.op("select", [small, r.full(1.0 / _SMALL, b.type), r.full(1.0, b.type)], [b.type])[0]
    return r.same("multiply", a, scale), r.same("multiply", b, scale)


def halves(r: Rewriter, value: Value) -> tuple[Value, Value]:
    """A float32 as a sum of two with 12 bits each, whose products are exact; NaN for infinities."""
    words = TensorType(value.type.shape, dtypes.uint32)
    bits = r.one("bitcast_convert", [value], words)
    upper = r.one("bitcast_convert", [r.same("and", bits, r.full(_UPPER_HALF, words))], value.type)
    return upper, r.same("subtract", value, upper)
