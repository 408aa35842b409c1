"""Operations on complex numbers, each spelled out for pairs of tensors of float32: real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nki.core.dtypes import bool_, complex64, float32
from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.rewriter import Rewriter

Pair = tuple[Value, Value]
Rule = Callable[..., Any]
"""``rule(r, op, *operands)``: operands and result are pairs where they are complex."""


def multiply(r: Rewriter, x: Pair, y: Pair) -> Pair:
    """(a + bi)(c + di)."""
    (a, b), (c, d) = x, y
    real = r.same("subtract", r.same("multiply", a, c), r.same("multiply", b, d))
    return real, r.same("add", r.same("multiply", a, d), r.same("multiply", b, c))


def _divide(r: Rewriter, x: Pair, y: Pair) -> Pair:
    """By the divisor scaled to 1, so that squares do not leave the range."""
    scale = r.same("maximum", *(r.same("abs", part) for part in y))
    c, d = (r.same("divide", part, scale) for part in y)
    whole = r.same("add", r.same("multiply", c, c), r.same("multiply", d, d))
    real, imaginary = multiply(r, x, (c, r.same("negate", d)))
    return tuple(r.same("divide", r.same("divide", part, whole), scale) for part in (real, imaginary))  # type: ignore[return-value]


def _compared(r: Rewriter, a: Value, b: Value, direction: str) -> Value:
    kind = TensorType(a.type.shape, bool_)
    return r.one("compare", [a, b], kind, comparison_direction=direction, compare_type="FLOAT")


def _select(r: Rewriter, mask: Value, yes: Value, no: Value) -> Value:
    return r.op("select", [mask, yes, no], [yes.type])[0]


def _size(r: Rewriter, x: Pair) -> Value:
    """The absolute value: the larger part times a root, so that squares do not leave the range."""
    a, b = (r.same("abs", part) for part in x)
    large, small = r.same("maximum", a, b), r.same("minimum", a, b)
    zero, infinite = r.full(0.0, large.type), r.full(float("inf"), large.type)
    ratio = r.same("divide", small, large)
    root = r.same("sqrt", r.same("add", r.same("multiply", ratio, ratio), r.full(1.0, large.type)))
    length = _select(r, _compared(r, large, zero, "EQ"), zero, r.same("multiply", large, root))
    return _select(r, _compared(r, large, infinite, "EQ"), infinite, length)


def _exponential(r: Rewriter, x: Pair) -> Pair:
    size = r.same("exponential", x[0])
    return r.same("multiply", size, r.same("cosine", x[1])), r.same("multiply", size, r.same("sine", x[1]))


def _log(r: Rewriter, x: Pair) -> Pair:
    return r.same("log", _size(r, x)), r.same("atan2", x[1], x[0])


def _power(r: Rewriter, x: Pair, y: Pair) -> Pair:
    """exp(y log x); 0 for powers of 0 whose real part is positive, and 1 for the power 0."""
    found = _exponential(r, multiply(r, y, _log(r, x)))
    zero, one = r.full(0.0, x[0].type), r.full(1.0, x[0].type)
    none = r.same("and", _compared(r, _size(r, x), zero, "EQ"), _compared(r, y[0], zero, "GT"))
    unit = _compared(r, _size(r, y), zero, "EQ")
    real, imaginary = (_select(r, none, zero, part) for part in found)
    return _select(r, unit, one, real), _select(r, unit, zero, imaginary)


def _scaled(r: Rewriter, x: Pair, number: float) -> Pair:
    factor = r.full(number, x[0].type)
    return r.same("multiply", x[0], factor), r.same("multiply", x[1], factor)


def _root(r: Rewriter, x: Pair) -> Pair:
    """sqrt((|x| + |a|) / 2) is the part of which the larger one is; the other one follows from b."""
    a, b = x
    zero = r.full(0.0, a.type)
    half = _scaled(r, (r.same("add", _size(r, x), r.same("abs", a)), zero), 0.5)[0]
    main = r.same("sqrt", half)
    other = r.same("divide", _scaled(r, (r.same("abs", b), zero), 0.5)[0], main)
    other = _select(r, _compared(r, main, zero, "EQ"), zero, other)
    right = _compared(r, a, zero, "GE")
    sign = _select(r, _compared(r, b, zero, "LT"), r.full(-1.0, a.type), r.full(1.0, a.type))
    return _select(r, right, main, other), r.same("multiply", _select(r, right, other, main), sign)


def _sign(r: Rewriter, x: Pair) -> Pair:
    """x / |x|; 0 for 0."""
    size = _size(r, x)
    zero = r.full(0.0, size.type)
    none = _compared(r, size, zero, "EQ")
    real, imaginary = (_select(r, none, zero, r.same("divide", part, size)) for part in x)
    return real, imaginary


def _turned(r: Rewriter, x: Pair) -> tuple[Pair, Pair]:
    """exp(ix) and exp(-ix)."""
    plus = _exponential(r, (r.same("negate", x[1]), x[0]))
    return plus, _exponential(r, (x[1], r.same("negate", x[0])))


def _cosine(r: Rewriter, x: Pair) -> Pair:
    plus, minus = _turned(r, x)
    return _scaled(r, (r.same("add", plus[0], minus[0]), r.same("add", plus[1], minus[1])), 0.5)


def _sine(r: Rewriter, x: Pair) -> Pair:
    plus, minus = _turned(r, x)
    real, imaginary = r.same("subtract", plus[0], minus[0]), r.same("subtract", plus[1], minus[1])
    return _scaled(r, (imaginary, r.same("negate", real)), 0.5)


def _compare(r: Rewriter, op: Op, x: Pair, y: Pair) -> Value:
    direction = str(op.attributes["comparison_direction"])
    both = [_compared(r, one, two, direction) for one, two in zip(x, y, strict=True)]
    return r.same("and" if direction == "EQ" else "or", *both)


def _convert(r: Rewriter, op: Op, x: Any) -> Any:
    wanted = op.results[0].type.dtype
    if not isinstance(x, tuple):
        real = r.convert(x, float32)
        return real, r.full(0.0, real.type)
    return x if wanted is complex64 else r.convert(x[0], wanted)


RULES: Mapping[str, Rule] = {
    "abs": lambda r, op, x: _size(r, x),
    "compare": _compare,
    "complex": lambda r, op, real, imaginary: (real, imaginary),
    "convert": _convert,
    "cosine": lambda r, op, x: _cosine(r, x),
    "divide": lambda r, op, x, y: _divide(r, x, y),
    "exponential": lambda r, op, x: _exponential(r, x),
    "imag": lambda r, op, x: x[1],
    "log": lambda r, op, x: _log(r, x),
    "multiply": lambda r, op, x, y: multiply(r, x, y),
    "power": lambda r, op, x, y: _power(r, x, y),
    "real": lambda r, op, x: x[0],
    "rsqrt": lambda r, op, x: _divide(r, (r.full(1.0, x[0].type), r.full(0.0, x[0].type)), _root(r, x)),
    "sign": lambda r, op, x: _sign(r, x),
    "sine": lambda r, op, x: _sine(r, x),
    "sqrt": lambda r, op, x: _root(r, x),
}
"""By operation. What both parts do alike is not here."""
