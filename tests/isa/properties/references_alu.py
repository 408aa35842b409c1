"""What the operators of the ALUs compute: on float64 that holds float32, and on Python integers.

A value is an array ``(K, P, F)`` of candidates. add, subtract, multiply, reciprocal, comparisons and logical operators
have one correctly rounded result. maximum, minimum and relu of two zeros may have either sign. nl.power may be off by 4
units of the last place, nl.rsqrt by 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.isa.properties.formats import F64, f32

INEXACT = ("power", "rsqrt")
_POWER_ULPS, _RSQRT_ULPS = 4, 2

_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: (a < b) | (a > b) | np.isnan(a) | np.isnan(b),
    "greater": lambda a, b: b < a,
    "greater_equal": lambda a, b: (b < a) | (a == b),
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: (a < b) | (a == b),
}
_EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a + -b,
    "multiply": lambda a, b: a * b,
    "abs_max": lambda a, b: np.where(abs(b) < abs(a), a, b),
    "abs_min": lambda a, b: np.where(abs(b) > abs(a), a, b),
    "logical_and": lambda a, b: (a != 0) & (b != 0),
    "logical_or": lambda a, b: (a != 0) | (b != 0),
    "logical_xor": lambda a, b: (a != 0) ^ (b != 0),
    "abs": lambda a, b: np.copysign(a, 1.0),
    "square": lambda a, b: a * a,
    "reciprocal": lambda a, b: 1.0 / a,
    **_RELATIONS,
}


def _ordered(a: F64, b: F64, chosen: F64) -> F64:
    """NaN of either; two zeros give candidates of both signs."""
    result = np.where(np.isnan(a) | np.isnan(b), np.nan, chosen)
    zeros = (a == 0) & (b == 0)
    return np.concatenate([np.where(zeros, 0.0, result), np.where(zeros, -0.0, result)])


def neighbours(values: F64, count: int) -> F64:
    """The nearest float32 values and `count` on either side of each."""
    middle = np.asarray(values, np.float64).astype(np.float32)
    found, low, high = [middle], middle, middle
    for _ in range(count):
        low, high = np.nextafter(low, np.float32(-np.inf)), np.nextafter(high, np.float32(np.inf))
        found += [low, high]
    return np.concatenate([np.where((middle == 0) | np.isinf(middle), middle, f) for f in found]).astype(np.float64)


@np.errstate(all="ignore")
def alu(name: str, a: Any, b: Any, reverse: bool = False) -> F64:
    """``a <name> b``, or the other way round: candidates of candidates."""
    a, b = _candidates(a), _candidates(b)
    if reverse:
        a, b = b, a
    a, b = _paired(a, b)
    if name in _EXACT:
        return f32(_EXACT[name](a, b))
    match name:
        case "maximum":
            return _ordered(a, b, np.where(a < b, b, a))
        case "minimum":
            return _ordered(a, b, np.where(a > b, b, a))
        case "relu":
            return _ordered(a, np.zeros_like(a), np.where(a > 0, a, 0.0))
        case "power":
            # with one exponent for all NumPy takes the root, which is NaN for minus infinity; the power is not
            bases, exponents = (each.copy() for each in np.broadcast_arrays(a, b))
            return neighbours(np.power(bases, exponents), _POWER_ULPS)
        case "rsqrt":
            return neighbours(np.power(a, -0.5) if not np.signbit(a).any() else 1.0 / np.sqrt(a), _RSQRT_ULPS)
    raise KeyError(f"no reference for nl.{name}")


def _candidates(a: Any) -> F64:
    a = np.asarray(a, np.float64)
    return a if a.ndim == 3 else a.reshape((1,) * (3 - a.ndim) + a.shape)


def _paired(a: F64, b: F64) -> tuple[F64, F64]:
    """Every candidate of one with every candidate of the other."""
    a, b = (a[:, None], b[None]) if max(len(a), len(b)) > 1 else (a[None], b[None])
    a, b = np.broadcast_arrays(a, b)
    return a.reshape(-1, *a.shape[2:]), b.reshape(-1, *b.shape[2:])


# ---- integers


def wrapped(number: int, bits: int, signed: bool) -> int:
    """The integer of a width that has the same low bits."""
    low = -(1 << (bits - 1)) if signed else 0
    return (number - low) % (1 << bits) + low


def on_integers(name: str, a: int, b: int) -> int:
    """An arithmetic operator or a comparison on Python integers."""
    if name in _RELATIONS:
        return int(eval_relation(name, a, b))
    return {"add": a + b, "subtract": a - b, "multiply": a * b, "maximum": max(a, b), "minimum": min(a, b)}[name]


def eval_relation(name: str, a: int, b: int) -> bool:
    """A comparison of integers."""
    order = (a > b) - (a < b)
    return (
        order
        in {
            "equal": (0,),
            "not_equal": (-1, 1),
            "greater": (1,),
            "greater_equal": (0, 1),
            "less": (-1,),
            "less_equal": (-1, 0),
        }[name]
    )


def on_bits(name: str, a: int, b: int, width: int) -> int:
    """A bitvec operator, on strings of 0 and 1."""
    x, y = format(a, f"0{width}b"), format(b, f"0{width}b")
    match name:
        case "left_shift":
            return int((x + "0" * min(b, width))[-width:], 2)
        case "right_shift":
            return int(("0" * min(b, width) + x)[:width], 2)
        case "invert":
            return int("".join("1" if bit == "0" else "0" for bit in x), 2)
    keep = {"bitwise_and": ("11",), "bitwise_or": ("01", "10", "11"), "bitwise_xor": ("01", "10")}[name]
    return int("".join("1" if p + q in keep else "0" for p, q in zip(x, y, strict=True)), 2)


def each_bits(name: str, a: Any, b: Any, width: int, reverse: bool = False) -> Any:
    """`on_bits` over arrays of unsigned integers."""
    a, b = np.broadcast_arrays(a, b)
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    results = [on_bits(name, *((q, p) if reverse else (p, q)), width) for p, q in pairs]
    return np.array(results, f"u{width // 8}").reshape(a.shape)
