"""What a case is: one call of one kernel with realistic shapes, and what the least work for it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

import nki
import nki.language as nl

ALLOWED = {
    nl.float32: 256 * 2.0**-24,
    nl.bfloat16: 8 * 2.0**-8,
    nl.float16: 8 * 2.0**-11,
    nl.float8_e4m3: 2 * 2.0**-4 + 8 * 2.0**-8,
}
"""Error that is allowed, by dtype, in its largest relative roundings.

Values of 16 bits are rounded several times on their way, a result and its reference once each. Values of 32 bits are
sums of thousands of others. A number beside a tie that rounding to 16 bits moved becomes its neighbour in
8 bits, two roundings away, and its scale moved too.
"""


class Make(Protocol):
    """Makes an argument: a random array, or only its shape and dtype."""

    def __call__(self, shape: tuple[int, ...], dtype: Any = ..., fill: Callable[..., Any] | None = ...) -> Any:
        """An array.

        Args:
            shape, dtype: of it; the dtype is one of `nki.language`, by default bfloat16.
            fill: ``fill(rng, shape)`` gives the values; by default they are normal with variance 1. Where only the
                shape is wanted it is not called.
        """


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        kernel: name in the catalogue.
        name: of the case: sizes, in words a reader knows.
        arguments: makes the keyword arguments.
        flops: of the least work: products and sums, counted as 2 for each multiplication with an addition.
        hbm_bytes: that have to be moved at least: each argument that is read once, each result that is written once.
        lnc: cores of the launch.
        target: that it is timed for.
        ranks: that the run of the error has, each with arrays of its own; the time is that of one.
        exact: whether values are only moved or counted, so that no difference is allowed.
        rounded: the narrowest dtype that values are rounded to, where it is none of the arguments'.
        tolerance: the error that is allowed, where neither of these says it; None: they do.
        small: smaller arguments for the error, where the case itself takes too long to run on a host; None: the same.
        tiles: configurations of tiles that a tuner tries, as the kernel's argument ``tiles``.
        sizes: by which `nkilib.tuned` finds an entry.
        official: whether the published kernel takes the same call.
        theirs: makes the keyword arguments of the published kernel, where records of its own are among them.
        meaning: turns a result, and the reference's, into the numbers that are compared; None: they are those.
        peak: width of the operands of its products, whose peak rate counts: "bf16", "fp32", "fp8" or "mx".
    """

    kernel: str
    name: str
    arguments: Callable[[Make], dict[str, Any]]
    flops: int
    hbm_bytes: int
    lnc: int = 1
    ranks: int = 1
    target: str = "trn2"
    exact: bool = False
    rounded: Any = None
    tolerance: float | None = None
    small: Callable[[Make], dict[str, Any]] | None = None
    tiles: tuple[Mapping[str, int], ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    official: bool = True
    peak: str = "bf16"
    theirs: Callable[[Make], dict[str, Any]] | None = None
    meaning: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None = None

    @property
    def key(self) -> str:
        """What names the case in tables and files."""
        cores = f", {self.lnc} cores" if self.lnc > 1 else ""
        return f"{self.kernel}: {self.name}{cores}" + ("" if self.target == "trn2" else f", {self.target}")

    @property
    def allowed(self) -> float:
        """The error that is allowed: `ALLOWED` of the narrowest dtype that values are rounded to.

        Arguments of 8 bits count as the numbers that they are: the reference has the same ones.
        """
        if self.tolerance is not None or self.exact:
            return self.tolerance or 0.0
        found = [self.rounded] if self.rounded else [each for each in _dtypes(self.shapes()) if each in ALLOWED]
        return max((ALLOWED[each] for each in found if each.itemsize > 1 or self.rounded), default=ALLOWED[nl.float32])

    def shapes(self) -> dict[str, Any]:
        """The arguments without data."""
        return self.arguments(_shape)

    def theirs_shapes(self) -> dict[str, Any] | None:
        """The arguments of the published kernel without data, where they are others."""
        return None if self.theirs is None else self.theirs(_shape)

    def arrays(self, seed: int = 7) -> dict[str, Any]:
        """The arguments of the run that measures the error."""
        rng = np.random.default_rng(seed)

        def make(shape: tuple[int, ...], dtype: Any = None, fill: Callable[..., Any] | None = None) -> Any:
            values = rng.standard_normal(shape) if fill is None else fill(rng, shape)
            return np.asarray(values).astype((dtype or nl.bfloat16).numpy)

        return (self.small or self.arguments)(make)


def _shape(shape: tuple[int, ...], dtype: Any = None, fill: Any = None) -> Any:
    return nki.ShapeDtype(shape, dtype or nl.bfloat16)


def _dtypes(value: Any) -> set[Any]:
    """Of all arrays among arguments."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return {dtype for each in value for dtype in _dtypes(each)}
    return {value.dtype} if isinstance(value, nki.ShapeDtype) else set()
