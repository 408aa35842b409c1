"""The operators of the ALUs: what they are and what they compute.

Source: nki/api/nki.api.shared.rst, "Supported Math Operators". Arithmetic operators work on float32; comparisons and
logical operators give 1.0 or 0.0. Bitvec operators work on the storage integers as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki.spec.arrays import Arrays
from nki.spec.operator import Operator

_INF = float("inf")

ADD = Operator("add", "arithmetic", reduces=True, identity=0.0, commutes=True)
SUBTRACT = Operator("subtract", "arithmetic", reduces=True, identity=0.0)
MULTIPLY = Operator("multiply", "arithmetic", reduces=True, identity=1.0, commutes=True)
MAXIMUM = Operator("maximum", "arithmetic", reduces=True, identity=-_INF, commutes=True)
MINIMUM = Operator("minimum", "arithmetic", reduces=True, identity=_INF, commutes=True)
POWER = Operator("power", "arithmetic")
ABS_MAX = Operator("abs_max", "arithmetic", identity=0.0)
ABS_MIN = Operator("abs_min", "arithmetic", identity=_INF)
AVERAGE = Operator("average")
BYPASS = Operator("bypass")

EQUAL = Operator("equal", "compare", commutes=True)
NOT_EQUAL = Operator("not_equal", "compare", commutes=True)
GREATER = Operator("greater", "compare")
GREATER_EQUAL = Operator("greater_equal", "compare")
LESS = Operator("less", "compare")
LESS_EQUAL = Operator("less_equal", "compare")

LOGICAL_AND = Operator("logical_and", "logical", reduces=True, commutes=True)
LOGICAL_OR = Operator("logical_or", "logical", reduces=True, commutes=True)
LOGICAL_XOR = Operator("logical_xor", "logical", reduces=True, commutes=True)

INVERT = Operator("invert", "bitvec", arity=1)
BITWISE_AND = Operator("bitwise_and", "bitvec", reduces=True, commutes=True)
BITWISE_OR = Operator("bitwise_or", "bitvec", reduces=True, commutes=True)
BITWISE_XOR = Operator("bitwise_xor", "bitvec", reduces=True, commutes=True)
LEFT_SHIFT = Operator("left_shift", "bitvec")
RIGHT_SHIFT = Operator("right_shift", "bitvec")

# Unary operators of the ALUs that are activation functions too.
ABS = Operator("abs", "arithmetic", arity=1, activation=True)
SQUARE = Operator("square", "arithmetic", arity=1, activation=True)
RELU = Operator("relu", "arithmetic", arity=1, activation=True)
RSQRT = Operator("rsqrt", "arithmetic", arity=1, activation=True)
RECIPROCAL = Operator("reciprocal", "arithmetic", arity=1, activation=True)

COMPARISONS = (EQUAL, NOT_EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL)

_MEANING: dict[Operator, Callable[[Arrays, Any, Any], Any]] = {
    ADD: lambda x, a, b: x.add(a, b),
    SUBTRACT: lambda x, a, b: x.subtract(a, b),
    MULTIPLY: lambda x, a, b: x.multiply(a, b),
    MAXIMUM: lambda x, a, b: x.maximum(a, b),
    MINIMUM: lambda x, a, b: x.minimum(a, b),
    POWER: lambda x, a, b: x.power(a, b),
    ABS_MAX: lambda x, a, b: x.select("greater", x.absolute(a), x.absolute(b), a, b),
    ABS_MIN: lambda x, a, b: x.select("less", x.absolute(a), x.absolute(b), a, b),
    LOGICAL_AND: lambda x, a, b: x.multiply(x.truth(a), x.truth(b)),
    LOGICAL_OR: lambda x, a, b: x.maximum(x.truth(a), x.truth(b)),
    LOGICAL_XOR: lambda x, a, b: x.compare("not_equal", x.truth(a), x.truth(b)),
    ABS: lambda x, a, _: x.absolute(a),
    SQUARE: lambda x, a, _: x.multiply(a, a),
    RELU: lambda x, a, _: x.maximum(a, x.constant(0.0)),
    RSQRT: lambda x, a, _: x.divide(x.constant(1.0), x.sqrt(a)),
    RECIPROCAL: lambda x, a, _: x.divide(x.constant(1.0), a),
    BYPASS: lambda x, a, _: a,
}


def apply(x: Arrays, operator: Operator, a: Any, b: Any, reverse: bool = False) -> Any:
    """``a <operator> b`` on float32 values; swapped if `reverse`."""
    if reverse:
        a, b = b, a
    if operator.alu == "compare":
        return x.compare(operator.name, a, b)
    return _MEANING[operator](x, a, b)


def apply_bits(x: Arrays, operator: Operator, a: Any, b: Any, reverse: bool = False) -> Any:
    """``a <operator> b`` on storage integers."""
    if reverse:
        a, b = b, a
    return x.bitwise(operator.name, a, b)
