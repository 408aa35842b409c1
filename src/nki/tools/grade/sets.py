"""The sets of arguments that a candidate is judged on: those that were asked for, and one that was derived."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nki.core.dtypes import DType
from nki.core.errors import UsageError
from nki.core.source import UNKNOWN
from nki.tools.arguments import ArraySpec, parse_specs

_MOST_ELEMENTS = 1 << 26


@dataclass(frozen=True, slots=True)
class ArgumentSet:
    """Arguments by name: an `ArraySpec` for each array, and constants.

    Attributes:
        derived: whether nobody asked for these sizes.
    """

    values: Mapping[str, Any]
    derived: bool = False

    @property
    def arrays(self) -> dict[str, ArraySpec]:
        """The arrays by name."""
        return {name: value for name, value in self.values.items() if isinstance(value, ArraySpec)}

    @property
    def constants(self) -> dict[str, Any]:
        """What is no array, by name."""
        return {name: value for name, value in self.values.items() if not isinstance(value, ArraySpec)}

    def texts(self) -> list[str]:
        """As on the command line, for who must know shapes and dtypes and no values."""
        return [
            f"{name}={_form(value)}:zeros" if isinstance(value, ArraySpec) else f"{name}={value!r}"
            for name, value in self.values.items()
        ]

    def __str__(self) -> str:
        shown = (_form(v) if isinstance(v, ArraySpec) else repr(v) for v in self.values.values())
        return " ".join(f"{name}={value}" for name, value in zip(self.values, shown, strict=True))


@dataclass(frozen=True, slots=True)
class Span:
    """Where the numbers of an argument lie, both ends included."""

    low: float
    high: float


def read_sets(args: Sequence[str], also: Sequence[str]) -> list[ArgumentSet]:
    """The set of `--arg`, and one for each `--also`, which says what is different."""
    first = parse_specs(args)
    found = [ArgumentSet(first)]
    for text in also:
        try:
            words = shlex.split(text)
        except ValueError as problem:
            raise _usage("grade.also", f"--also {text!r}: {problem}", "--also 'x=256x512:float32 n=4'") from None
        found.append(ArgumentSet({**first, **parse_specs(words)}))
    return found


def read_ranges(texts: Sequence[str], sets: Sequence[ArgumentSet]) -> dict[str, Span]:
    """``NAME=LOW..HIGH`` by name.

    Raises:
        UsageError: "grade.range-form" for another form, or for what is no argument that is filled at random.
    """
    found: dict[str, Span] = {}
    for text in texts:
        name, _, ends = text.partition("=")
        low, dots, high = ends.partition("..")
        spec = sets[0].arrays.get(name)
        try:
            span = Span(float(low), float(high))
        except ValueError:
            span = Span(1.0, 0.0)
        if not dots or not span.low <= span.high or spec is None or spec.fill != "random":
            what = "--range NAME=LOW..HIGH, for example --range index=0..63, for an array that is filled at random"
            raise _usage("grade.range-form", f"--range {text!r}", what)
        found[name] = span
    return found


def derived_sets(first: ArgumentSet) -> Iterator[ArgumentSet]:
    """Sets like the first one in which every size of one value is twice as large, the largest value first.

    Doubling keeps what sizes are multiples of. Arguments that come from files keep their shapes, so that sets in which
    such a size would change are left out.
    """
    arrays = first.arrays
    sizes = sorted({size for spec in arrays.values() for size in spec.shape if size > 1}, reverse=True)
    for size in sizes:
        changed: dict[str, Any] = {name: _doubled(spec, size) for name, spec in arrays.items()}
        fixed = any(changed[name] != spec and spec.fill.endswith(".npy") for name, spec in arrays.items())
        total = sum(_elements(spec.shape) for spec in changed.values())
        if not fixed and total <= _MOST_ELEMENTS:
            yield ArgumentSet({**first.values, **changed}, derived=True)


def _doubled(spec: ArraySpec, size: int) -> ArraySpec:
    return replace(spec, shape=tuple(each * 2 if each == size else each for each in spec.shape))


def _elements(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _form(spec: ArraySpec) -> str:
    dtype: DType = spec.dtype
    return f"{'x'.join(map(str, spec.shape))}:{dtype}"


def _usage(code: str, message: str, right: str) -> UsageError:
    return UsageError(code, message, rule="arguments are given by name", fix=f"write {right}", location=UNKNOWN)
