"""Contents of tiles: specials, borders, ties, any bits, and tame numbers, for every dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki.core.dtypes import DType
from tests.isa.properties.formats import FORMATS

Rng = np.random.Generator
Maker = Callable[[Rng, tuple[int, ...], DType], Any]

_SPECIALS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -3.5,
    254.5,
    255.5,
    np.inf,
    -np.inf,
    np.nan,
    2.0**31,
    2.0**32,
    -(2.0**31),
]
_BORDERS = [1e-45, -1e-45, 1e-40, 2.0**-126, 3.4028235e38, -3.4028235e38, 65504.0, 65519.9, 65520.0, 127.5, -128.5]
_BORDERS += [-129.0, 32767.5, 65535.5, 2147483520.0, 4294967040.0, 240.0, 248.0, 247.99, 448.0, 464.0, 57344.0, 61440.0]
SPECIALS = np.array(_SPECIALS + _BORDERS, np.float32)
"""Zeros, ties, infinities, NaN, subnormals, and both sides of every border at which a dtype saturates."""

_TAME_NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.5, 0.1, 255.5, 7, -1, 0, 1)
_WILD_NUMBERS = (1e-40, 3.0e38, 1e20, 2.0**24, 2**31 - 1, float("inf"), -float("inf"), float("nan"))
NUMBERS: tuple[float, ...] = (*_TAME_NUMBERS, *_WILD_NUMBERS)
"""Numbers that stand in calls."""


def wild(r: Rng, shape: tuple[int, ...], dtype: DType) -> Any:
    """A third special values, a third small numbers, a third any bits; integers next to borders and powers of two."""
    if dtype.kind == "bool":
        return r.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        return _wild_integers(r, shape, dtype)
    bits = r.integers(0, 1 << dtype.bits, shape, dtype=np.uint64).astype(f"u{dtype.itemsize}").view(dtype.numpy)
    if dtype.is_packed:
        return bits
    with np.errstate(all="ignore"):
        special = r.choice(SPECIALS, shape).astype(dtype.numpy)
        small = r.normal(0, 4, shape).astype(np.float32).astype(dtype.numpy)
    kind = r.integers(0, 3, shape)
    return np.where(kind == 0, bits, np.where(kind == 1, special, small))


def _wild_integers(r: Rng, shape: tuple[int, ...], dtype: DType) -> Any:
    info = np.iinfo(dtype.numpy)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, info.max // 2, info.max // 2 + 1]
    edges += [n for n in (-1, 2**24, 2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**31 - 64) if info.min <= n <= info.max]
    anything = r.integers(info.min, info.max + 1, shape)
    small = np.clip(r.integers(-9, 10, shape), info.min, info.max)
    kind = r.integers(0, 3, shape)
    chosen = np.where(kind == 0, r.choice(np.array(edges, np.int64), shape), np.where(kind == 1, small, anything))
    return chosen.astype(dtype.numpy)


def tame(r: Rng, shape: tuple[int, ...], dtype: DType) -> Any:
    """Finite numbers of moderate size, of different exponents."""
    if dtype.kind == "bool" or dtype.is_packed:
        return wild(r, shape, dtype)
    values = r.normal(0, 3, shape) * np.exp2(r.integers(-6, 7, shape))
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return np.clip(np.rint(values), info.min, info.max).astype(dtype.numpy)
    if dtype.name in FORMATS:
        values = np.clip(values, -FORMATS[dtype.name].largest, FORMATS[dtype.name].largest)
    else:
        values = np.abs(values) + 2.0**-20
    return values.astype(np.float32).astype(dtype.numpy)


def few(r: Rng, shape: tuple[int, ...], dtype: DType) -> Any:
    """Many equal values, also zeros of both signs."""
    if dtype.kind == "bool" or dtype.is_packed:
        return wild(r, shape, dtype)
    pool = [0.0, 1.0, 2.0, 7.0] if dtype.kind in ("uint", "scale") else [0.0, -0.0, 1.0, -1.0, 2.0, -7.0]
    return r.choice(np.array(pool, np.float32), shape).astype(dtype.numpy)


def sparse(r: Rng, shape: tuple[int, ...], dtype: DType) -> Any:
    """Half zeros, for predicates; the rest any values, also such whose low bits are zero."""
    values = np.where(r.integers(0, 2, shape) == 0, np.zeros(shape, dtype.numpy), wild(r, shape, dtype))
    return values.astype(dtype.numpy)


def shifts(r: Rng, shape: tuple[int, ...], dtype: DType) -> Any:
    """Shift counts: mostly within the width, some at it and beyond, some of all bits."""
    counts = r.integers(0, dtype.bits + 2, shape)
    return np.where(r.integers(0, 5, shape) > 0, counts, -1).astype(dtype.numpy)


def whole(low: int, high: int) -> Maker:
    """Whole numbers from `low` to `high`, exclusive."""
    return lambda r, shape, dtype: r.integers(low, high, shape).astype(dtype.numpy)


KINDS: tuple[Maker, ...] = (wild, wild, tame, few)
