"""Arguments with special values for element-wise operators, and references: torch, rationals, strings of bits."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import torch
from hypothesis import strategies as st

import nki.language as nl

BF16 = ml_dtypes.bfloat16
FLOATS = [np.float32, np.float16, BF16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
SMALL_INTEGERS = [np.int8, np.uint8, np.int16, np.uint16]
WIDE_INTEGERS = [np.int32, np.uint32]
TORCH = {np.float32: torch.float32, np.float16: torch.float16, BF16: torch.bfloat16}
SPECIALS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -3.5,
    1e-40,
    -1e-45,
    3.4028235e38,
    1e20,
    np.inf,
    -np.inf,
    np.nan,
    255.5,
    2.0**31,
]

# ---- arguments


def floats(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A third special values, a third small numbers, a third any bits of float32."""
    r = np.random.default_rng(seed)
    kind = r.integers(0, 3, shape)
    bits = r.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        values = np.choose(kind, [r.choice(np.array(SPECIALS, np.float32), shape), r.normal(0, 4, shape), bits])
        return values.astype(np.float32).astype(dtype)


def integers(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Half of them next to an end of the range or to a power of two, the rest anything."""
    r = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, info.max // 2, info.max // 2 + 1]
    edges += [n for n in (-1, 2**24, 2**24 + 1, 2**24 + 3, -(2**24) - 1) if info.min <= n <= info.max]
    anything = r.integers(info.min, info.max + 1, shape)
    return np.where(r.integers(0, 2, shape) == 1, r.choice(np.array(edges, np.int64), shape), anything).astype(dtype)


SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 5), st.integers(1, 7))
PLACES = st.sampled_from([(nl.sbuf, nl.sbuf, nl.sbuf), (nl.psum, nl.sbuf, nl.psum), (nl.sbuf, nl.psum, nl.sbuf)])

# ---- references


def nearest(exact: Fraction) -> Fraction:
    """The float32 next to a rational, ties to even, as a rational; for magnitudes within the range."""
    if exact == 0:
        return exact
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > magnitude
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    return round(exact / unit) * unit


def saturated(value: Fraction, dtype: Any) -> int:
    """An integer of the dtype: to nearest, ties to even, and no further than the end of the range."""
    return min(max(round(value), int(np.iinfo(dtype).min)), int(np.iinfo(dtype).max))


def on_rationals(operation: Callable[[Fraction, Fraction], Any], *arrays: np.ndarray) -> list[Fraction]:
    """Element by element: operands as float32, an exact operation, its result as float32."""
    columns = [[nearest(Fraction(n)) for n in array.ravel().tolist()] for array in arrays]
    return [nearest(Fraction(operation(*pair))) for pair in zip(*columns, strict=True)]


def compared(relation: str) -> Callable[[Any, Any], Any]:
    return {
        "equal": lambda a, b: a == b,
        "not_equal": lambda a, b: a != b,
        "greater": lambda a, b: a > b,
        "greater_equal": lambda a, b: a >= b,
        "less": lambda a, b: a < b,
        "less_equal": lambda a, b: a <= b,
    }[relation]


EXACT: dict[Any, Callable[[Any, Any], Any]] = {
    nl.add: lambda a, b: a + b,
    nl.subtract: lambda a, b: a - b,
    nl.multiply: lambda a, b: a * b,
    nl.maximum: max,
    nl.minimum: min,
    nl.logical_and: lambda a, b: int(a != 0 and b != 0),
    nl.logical_or: lambda a, b: int(a != 0 or b != 0),
    nl.logical_xor: lambda a, b: int((a != 0) != (b != 0)),
    **{
        getattr(nl, name): compared(name)
        for name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
    },
}

WITH_TORCH: dict[Any, Callable[[Any, Any], Any]] = {
    nl.add: torch.add,
    nl.subtract: torch.sub,
    nl.multiply: torch.mul,
    nl.maximum: torch.maximum,
    nl.minimum: torch.minimum,
    nl.equal: torch.eq,
    nl.not_equal: torch.ne,
    nl.greater: torch.gt,
    nl.greater_equal: torch.ge,
    nl.less: torch.lt,
    nl.less_equal: torch.le,
    nl.logical_and: torch.logical_and,
    nl.logical_or: torch.logical_or,
    nl.logical_xor: torch.logical_xor,
    nl.power: torch.pow,
    nl.abs_max: lambda a, b: torch.where(a.abs() > b.abs(), a, b),
    nl.abs_min: lambda a, b: torch.where(a.abs() < b.abs(), a, b),
}
UNARY_WITH_TORCH: dict[Any, Callable[[Any], Any]] = {
    nl.abs: torch.abs,
    nl.square: torch.square,
    nl.relu: torch.relu,
    nl.rsqrt: torch.rsqrt,
    nl.reciprocal: torch.reciprocal,
}
APPROXIMATE = (nl.power, nl.rsqrt)
"""Torch rounds these differently; they may be a few units of the last place apart."""


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array.astype(np.float32)))


def agrees(got: np.ndarray, wanted: torch.Tensor, dtype: Any, loose: bool) -> None:
    """Equal values, NaN in the same places; not the signs of zeros, which maximum and minimum leave open."""
    want = wanted.to(torch.float32).to(TORCH[dtype]).to(torch.float32).numpy()
    if loose:
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=2e-6 if dtype is np.float32 else 1e-2, atol=1e-44)
    else:
        np.testing.assert_array_equal(got.astype(np.float32), want)


def bit_pattern(number: int, width: int) -> str:
    return format(number % (1 << width), f"0{width}b")


def on_bits(name: str, a: int, b: int, width: int) -> int:
    """Bitvec operators on strings of 0 and 1."""
    x, y = bit_pattern(a, width), bit_pattern(b, width)
    if name == "left_shift":
        return int((x + "0" * min(int(y, 2), width))[-width:], 2)
    if name == "right_shift":
        return int(("0" * min(int(y, 2), width) + x)[:width], 2)
    if name == "invert":
        return int(x.translate(str.maketrans("01", "10")), 2)
    keep = {"bitwise_and": {"11"}, "bitwise_or": {"01", "10", "11"}, "bitwise_xor": {"01", "10"}}[name]
    return int("".join("1" if p + q in keep else "0" for p, q in zip(x, y, strict=True)), 2)


BITVEC = ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]
SAME_SIZE = [(np.int8, np.uint8), (np.int16, np.uint16), (np.int32, np.uint32)]


def counts(seed: int, shape: Any, dtype: Any) -> np.ndarray:
    """Shift counts: mostly within the width, some at it and beyond, some of all bits."""
    r = np.random.default_rng(seed)
    return np.where(r.integers(0, 4, shape) > 0, r.integers(0, np.iinfo(dtype).bits + 2, shape), -1).astype(dtype)
