"""The reference: it runs here, in float64, and no candidate ever sees it, its file or its results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nki.core.dtypes import from_numpy
from nki.tools.compare.reference import check_takes, numbers, reference_in, reference_path
from nki.tools.grade.matmuls import Counter, counted
from nki.tools.grade.sets import ArgumentSet
from nki.tools.kernel_file import import_file
from nki.tools.output import quiet_stdout
from nki.tools.results import named_arrays
from nki.tools.user_code import kernel_errors


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reference says.

    Attributes:
        results: by their place in what it returned.
        changed: arguments that it changed, as they are afterwards.
    """

    results: dict[str, np.ndarray]
    changed: dict[str, np.ndarray]

    def all(self) -> dict[str, np.ndarray]:
        """Results, and changed arguments as ``argument NAME``."""
        return {**self.results, **{f"argument {name}": array for name, array in self.changed.items()}}


@dataclass(frozen=True, slots=True)
class Reference:
    """A function of NumPy arrays, its file, and how the user named it."""

    function: Callable[..., Any]
    path: Path
    shown: str
    as_json: bool

    @property
    def installed(self) -> bool:
        """Whether it lies where a candidate may read."""
        return any(self.path.is_relative_to(Path(place).resolve()) for place in (sys.prefix, sys.base_prefix))

    def __call__(self, chosen: ArgumentSet, arrays: Mapping[str, np.ndarray]) -> Expected:
        """Run it in float64 on arrays in the dtypes of the kernel.

        Raises:
            FrontendError: it raised an exception; UsageError: it does not take these arguments.
        """
        given = {name: _wide(array) for name, array in arrays.items()}
        kept = {name: array.copy() for name, array in given.items()}
        result = self._call({**chosen.constants, **given})
        results = {name: numbers(name, value, self.shown) for name, value in named_arrays(result)}
        changed = {name: array for name, array in given.items() if not _same(array, kept[name])}
        return Expected(results, changed)

    def flops(self, chosen: ArgumentSet, arrays: Mapping[str, np.ndarray]) -> float | None:
        """Operations of its matrix products on these arguments; None if they cannot be counted."""
        counter = Counter()
        given = {name: counted(_wide(array), counter) for name, array in arrays.items()}
        try:
            self._call({**chosen.constants, **given})
        except Exception:  # noqa: BLE001 - it takes plain arrays, and no kind of its own
            return None
        return counter.flops

    def _call(self, given: dict[str, Any]) -> Any:
        check_takes(self.function, given, self.shown)
        name = self.shown.partition("::")[2]
        with quiet_stdout(self.as_json), kernel_errors(name, str(self.path)), np.errstate(all="ignore"):
            return self.function(**given)


def load_reference(text: str, as_json: bool) -> Reference:
    """The function that ``FILE::FUNCTION`` names.

    Raises:
        UsageError: no such file or function (``compare.reference``), or the file cannot be imported.
    """
    path = reference_path(text)
    with quiet_stdout(as_json):
        names = vars(import_file(path))
    return Reference(reference_in(names, text), path, text, as_json)


def _wide(array: np.ndarray) -> np.ndarray:
    """Floats as float64; integers and packed values as they are."""
    if array.dtype == np.float64:
        return array.copy()
    dtype = from_numpy(array.dtype)
    return array.astype(np.float64) if dtype.is_float and not dtype.is_packed else array.copy()


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.tobytes() == right.tobytes()
