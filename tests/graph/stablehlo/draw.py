"""What random cases are drawn from: shapes, element types, numbers with special values among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.graph import xla

Array = npt.NDArray[Any]

F32, F16, BF16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
FLOATS = (F32, F32, BF16, F16)
SIGNED = tuple(np.dtype(name) for name in ("int8", "int16", "int32"))
UNSIGNED = tuple(np.dtype(name) for name in ("uint8", "uint16", "uint32"))
INTEGERS = (*SIGNED, *UNSIGNED)
BOOL = np.dtype(bool)
ALL = (F32, BF16, F16, *INTEGERS, BOOL)

_SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 33)
_LONG = (64, 128, 130, 257)
_MOST = 6000


@dataclass(frozen=True, slots=True)
class Case:
    """A model of one operation.

    Attributes:
        text: of the model, for the compiler and for JAX's.
        inputs: of its function.
        ulps: allowed to floats, in units of the last place of the result's type.
        scaled: allowed as well, relative to the largest magnitude of the result.
        note: what is drawn, for people.
        judge: of the results alone, where they are random by nature; what is wrong, or "".
        exact: the results for inputs in 64 bits: what JAX takes for zeros on the host are numbers there.
        signs: whether zeros of different signs differ; not in reductions, whose order is nobody's.
    """

    text: str
    inputs: tuple[Array, ...]
    ulps: float = 0.0
    scaled: float = 0.0
    note: str = ""
    judge: Callable[[Sequence[Array], Sequence[Array]], str] | None = None
    exact: Callable[..., Any] | None = None
    signs: bool = True


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for the small types of ml_dtypes too."""
    return dtype.kind == "f" or dtype == BF16


class Draw:
    """A source of random cases."""

    def __init__(self, *seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def one(self, *choices: Any) -> Any:
        """One of several."""
        return choices[int(self.random.integers(len(choices)))]

    def below(self, top: int, low: int = 0) -> int:
        """A number from `low` to ``top - 1``."""
        return int(self.random.integers(low, top))

    def chance(self, probability: float) -> bool:
        """True that often."""
        return bool(self.random.random() < probability)

    def shape(self, low: int = 0, high: int = 4) -> tuple[int, ...]:
        """Sizes of a rank between both bounds, now and then one that is longer than there are partitions."""
        sizes = [self.one(*_SIZES) for _ in range(self.below(high + 1, low))]
        if sizes and self.chance(0.2):
            sizes[self.below(len(sizes))] = self.one(*_LONG)
        while prod(sizes) > _MOST:
            largest = int(np.argmax(sizes))
            sizes[largest] = max(1, sizes[largest] // 2)
        return tuple(sizes)

    def some(self, count: int, least: int = 0) -> tuple[int, ...]:
        """Some of the numbers from 0, ascending."""
        chosen = [d for d in range(count) if self.chance(0.5)]
        while len(chosen) < min(least, count):
            chosen = sorted({*chosen, self.below(count)})
        return tuple(chosen)

    def order(self, count: int) -> tuple[int, ...]:
        """A permutation."""
        return tuple(int(i) for i in self.random.permutation(count))

    def array(self, shape: Sequence[int], dtype: np.dtype[Any], special: bool | None = None, top: int = 0) -> Array:
        """Numbers of all magnitudes; with special ones among them or not.

        Args:
            top: bound of integers; by default the type's own.
        """
        shape = tuple(shape)
        special = self.chance(0.5) if special is None else special
        if dtype == BOOL:
            return np.asarray(self.random.random(shape) < 0.5)
        if not is_float(dtype):
            return self._integers(shape, dtype, special, top)
        exponents = self.random.integers(-8, 9, shape) if special else self.random.integers(-2, 3, shape)
        numbers = np.asarray(self.random.standard_normal(shape) * np.exp2(exponents)).astype(dtype)
        return self._mixed(numbers, _specials(dtype)) if special else numbers

    def unit(self, shape: Sequence[int], dtype: np.dtype[Any], low: float = -1.0, high: float = 1.0) -> Array:
        """Numbers between two bounds."""
        return np.asarray(self.random.uniform(low, high, tuple(shape))).astype(dtype)

    def _integers(self, shape: tuple[int, ...], dtype: np.dtype[Any], special: bool, top: int) -> Array:
        info = np.iinfo(dtype)
        high = min(top or self.one(10, 1000, int(info.max)), int(info.max))
        low = max(int(info.min), -high) if dtype.kind == "i" else 0
        numbers = self.random.integers(low, high, shape, dtype=np.int64, endpoint=True).astype(dtype)
        if special and not top:
            edges = [0, 1, info.max, info.max - 1, info.min, info.min + 1, 1 << (info.bits - 2), 3, 100]
            numbers = self._mixed(numbers, np.array(edges).astype(dtype))
        return np.asarray(numbers)

    def _mixed(self, numbers: Array, specials: Array) -> Array:
        where = self.random.random(numbers.shape) < self.one(0.1, 0.5)
        return np.where(where, specials[self.random.integers(0, len(specials), numbers.shape)], numbers)


def _specials(dtype: np.dtype[Any]) -> Array:
    info = ml_dtypes.finfo(dtype)
    least, most = float(info.smallest_normal), float(info.max)
    plain = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.5, most, most / 3, least, least / 4, 4 * least, 16777217.0, 1e4, np.inf]
    with np.errstate(over="ignore"):
        return np.array([*plain, *(-x for x in plain), np.nan]).astype(dtype)


def lowered(function: Any, *inputs: Array, **limits: Any) -> Case:
    """A case from a function of JAX."""
    return Case(xla.lowered(function, *inputs), tuple(inputs), exact=function, **limits)


_SPELLED = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "bool": "i1", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "uint8": "ui8", "uint16": "ui16", "uint32": "ui32", "uint64": "ui64",
}  # fmt: skip


def mlir_type(shape: Sequence[int], dtype: np.dtype[Any]) -> str:
    """A tensor type as MLIR spells it."""
    return f"tensor<{'x'.join([*map(str, shape), _SPELLED[dtype.name]])}>"


def type_of(array: Array) -> str:
    """The type of an array as MLIR spells it."""
    return mlir_type(array.shape, array.dtype)


def written(body: str, results: Sequence[str], *inputs: Array, **limits: Any) -> Case:
    """A case from the lines of a function of ``%a0``, ``%a1``, ... that returns ``%r0``, ..."""
    arguments = ", ".join(f"%a{n}: {type_of(array)}" for n, array in enumerate(inputs))
    names = ", ".join(f"%r{n}" for n in range(len(results)))
    kinds = ", ".join(results)
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    text = f"func.func @main({arguments}) -> ({kinds}) {{\n{lines}\n  return {names} : {kinds}\n}}\n"
    return Case(text, tuple(inputs), **limits)
