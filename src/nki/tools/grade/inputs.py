"""Fresh inputs of several kinds, from seeds that nobody knew before."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from nki.core.dtypes import DType
from nki.tools.arguments import ArraySpec
from nki.tools.grade.sets import ArgumentSet, Span

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Kind:
    """What numbers look like.

    Attributes:
        text: for people.
        special: what one element of an array is made in addition; empty for nothing.
    """

    name: str
    text: str
    special: tuple[float, ...] = ()


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Kind("normal", "standard normal; integers from 0 to 99"),
            Kind("again", "the same with another seed"),
            Kind("large", "normal times a power of two, 1024 where the dtype reaches far; integers up to 4095"),
            Kind("tiny", "normal times a power of two, 2^-20 where the dtype reaches far"),
            Kind("mixed", "either sign, with exponents from those of tiny to those of large"),
            Kind("zeros", "only zeros"),
            Kind("nan", "normal, with a NaN in one place", (math.nan,)),
            Kind("infinite", "normal, with both infinities", (math.inf, -math.inf)),
        )
    }
)

_LARGE, _TINY = 10, 20
_MANY_INTEGERS, _FEW_INTEGERS = 4096, 100


def make_inputs(
    chosen: ArgumentSet, kind: Kind, seed: int, ranges: Mapping[str, Span], special: str = "", share: float = 1.0
) -> Arrays:
    """The arrays of a set.

    Args:
        special: the argument that gets the special values of the kind; the others are normal.
        share: of the exponent of large numbers, where a reference has no answer for larger ones.
    """
    made: Arrays = {}
    for name, spec in chosen.arrays.items():
        generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if spec.fill != "random" or spec.dtype.is_packed or spec.dtype.kind == "scale":
            made[name] = spec.make(seed % (1 << 32))
        elif name in ranges:
            made[name] = _in_range(spec, kind, ranges[name], generator)
        elif spec.dtype.is_float:
            made[name] = _floats(spec, kind, generator, share)
        else:
            made[name] = _integers(spec, kind, generator)
        if name == special:
            _put(made[name], kind.special, generator)
    return made


def can_be_special(chosen: ArgumentSet, kind: Kind, ranges: Mapping[str, Span]) -> list[str]:
    """The arguments that can hold the special values of a kind, in the order of the set."""
    return [
        name
        for name, spec in chosen.arrays.items()
        if spec.fill == "random"
        and name not in ranges
        and spec.dtype.is_float
        and not spec.dtype.is_packed
        and _holds(spec.dtype, kind.special)
        and math.prod(spec.shape) >= len(kind.special)
    ]


def reach(dtype: DType) -> tuple[int, int]:
    """Powers of two by which large and tiny numbers of a dtype differ from normal ones."""
    facts = ml_dtypes.finfo(dtype.numpy)
    up, down = math.frexp(float(facts.max))[1], -math.frexp(float(facts.smallest_normal))[1]
    return min(_LARGE, up // 4), -min(_TINY, down // 2)


def _holds(dtype: DType, values: tuple[float, ...]) -> bool:
    with np.errstate(all="ignore"):
        kept = np.array(values).astype(dtype.numpy).astype(np.float64)
    return bool(np.array_equal(kept, np.array(values), equal_nan=True))


def _floats(spec: ArraySpec, kind: Kind, generator: np.random.Generator, share: float) -> np.ndarray:
    large, tiny = reach(spec.dtype)
    large = int(large * share)
    normal = generator.standard_normal(spec.shape)
    makers: Mapping[str, Callable[[], Any]] = {
        "large": lambda: normal * 2.0**large,
        "tiny": lambda: normal * 2.0**tiny,
        "mixed": lambda: np.sign(normal) * np.exp2(generator.uniform(tiny, large, spec.shape)),
        "zeros": lambda: normal * 0.0 + 0.0,
    }
    values = makers[kind.name]() if kind.name in makers else normal
    return np.asarray(values, np.float32).astype(spec.dtype.numpy)


def _integers(spec: ArraySpec, kind: Kind, generator: np.random.Generator) -> np.ndarray:
    if kind.name == "zeros":
        return np.zeros(spec.shape, spec.dtype.numpy)
    if spec.dtype.kind == "bool":
        return generator.integers(0, 2, spec.shape).astype(bool)
    most = _MANY_INTEGERS if kind.name == "large" and spec.dtype.itemsize > 1 else _FEW_INTEGERS
    return generator.integers(0, most, spec.shape).astype(spec.dtype.numpy)


def _in_range(spec: ArraySpec, kind: Kind, span: Span, generator: np.random.Generator) -> np.ndarray:
    """Numbers of a range; the ends for large ones, the number that is nearest to zero for zeros and tiny ones."""
    least = min(max(0.0, span.low), span.high)
    match kind.name:
        case "large":
            values = generator.choice([span.low, span.high], spec.shape)
        case "zeros" | "tiny":
            values = np.full(spec.shape, least)
        case _ if spec.dtype.is_float:
            values = generator.uniform(span.low, span.high, spec.shape)
        case _:
            values = generator.integers(math.ceil(span.low), math.floor(span.high) + 1, spec.shape)
    return np.asarray(values).astype(spec.dtype.numpy)


def _put(array: np.ndarray, values: tuple[float, ...], generator: np.random.Generator) -> None:
    places = generator.choice(array.size, len(values), replace=False)
    array.reshape(-1)[places] = np.array(values).astype(array.dtype)
