"""What a kernel returned: named arrays, what is in them, and files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nki.core.dtypes import from_numpy
from nki.core.numerics import to_f32
from nki.tools.request import usage_error


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """One array in figures. Statistics are over finite values and absent where there is none."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float | None
    maximum: float | None
    mean: float | None
    not_finite: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "min": self.minimum,
            "max": self.maximum,
            "mean": self.mean,
            "not_finite": self.not_finite,
            "sha256": self.sha256,
        }


def named_arrays(result: Any, name: str = "result") -> Iterator[tuple[str, np.ndarray]]:
    """Every array in the tree of results with the way to it: ``result``, ``result[0]``, ``result['key']``."""
    match result:
        case None:
            return
        case dict():
            for key, item in result.items():
                yield from named_arrays(item, f"{name}[{key!r}]")
        case tuple() | list():
            for position, item in enumerate(result):
                yield from named_arrays(item, f"{name}[{position}]")
        case _:
            yield name, result


def facts_of(name: str, array: np.ndarray) -> ArrayFacts:
    """The figures of an array."""
    dtype = from_numpy(array.dtype)
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    if dtype.is_packed:
        return ArrayFacts(name, array.shape, dtype.name, None, None, None, 0, digest)
    values = to_f32(np.ascontiguousarray(array), dtype).astype(np.float64)
    finite = values[np.isfinite(values)]
    lost = values.size - finite.size
    if not finite.size:
        return ArrayFacts(name, array.shape, dtype.name, None, None, None, lost, digest)
    low, high, mean = float(finite.min()), float(finite.max()), float(finite.mean())
    return ArrayFacts(name, array.shape, dtype.name, low, high, mean, lost, digest)


def check_output(path: Path | None) -> None:
    """A name that can be written to, before anything runs."""
    if path is None:
        return
    if path.suffix not in (".npy", ".npz"):
        raise usage_error("output.suffix", f"-o {path}", "end the name in .npy (one array) or .npz (several)")
    if not path.parent.is_dir():
        raise usage_error("output.directory", f"-o {path}: {path.parent} is no directory", "create it first")


def save(path: Path, arrays: list[tuple[str, np.ndarray]]) -> None:
    """Write results; NumPy keeps dtypes that it does not know (bfloat16) as plain bytes."""
    if path.suffix == ".npz":
        np.savez(path, **dict(arrays))  # type: ignore[arg-type]
    elif len(arrays) == 1:
        np.save(path, arrays[0][1])
    else:
        raise usage_error(
            "output.count", f"-o {path}: the kernel returned {len(arrays)} arrays", "write to a .npz file"
        )
