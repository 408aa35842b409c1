"""Whether a candidate computes what the default configuration computes, on the arrays of the call."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nki.core.dtypes import DType, from_numpy, unpack_x4
from nki.core.tensor import NKIObject
from nki.driver.call import call
from nki.driver.compiled import Cache
from nki.driver.launch import Launch
from nki.frontend.host import kind_of, take
from nki.options import Options
from nki.report import silenced

Leaves = list[tuple[str, Any]]

_FLOAT32 = 1e-4
"""Tolerance of results of 32 bits: sums of some thousand terms in another order."""
_NARROW = 4.0
"""Units of the last place of narrower results."""


def host_copies(value: Any, name: str = "argument") -> Any:
    """A tree of arguments with a NumPy copy in place of every array of any framework."""
    kind = kind_of(value)
    if kind is not None:
        return take(value, kind, name).array.copy()
    match value:
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*(host_copies(item, name) for item in value))
        case list() | tuple():
            return type(value)(host_copies(item, name) for item in value)
        case dict():
            return {key: host_copies(item, name) for key, item in value.items()}
    if isinstance(value, NKIObject) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        made = copy.copy(value)
        for key, item in fields_of(value).items():
            object.__setattr__(made, key, host_copies(item, name))
        return made
    return value


def fields_of(record: Any) -> dict[str, Any]:
    """The attributes of a record by name."""
    if dataclasses.is_dataclass(record):
        return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return dict(vars(record))


def outcome(launch: Launch, arguments: Mapping[str, Any], cache: Cache, options: Options) -> Leaves:
    """Run a kernel on copies of its arguments: its results by path, and the arguments that it changed.

    Raises:
        NkiError: the kernel is refused.
    """
    mine = {name: host_copies(value, name) for name, value in arguments.items()}
    with silenced():
        result, _ = call(launch, (), mine, cache, options)
    found = list(_leaves(result, "result"))
    for name, before in _leaves(dict(arguments), ""):
        if isinstance(before, np.ndarray):
            after = dict(_leaves(mine, ""))[name]
            if not np.array_equal(_bytes(before), _bytes(after)):
                found.append((f"argument {name}", after))
    return found


def difference(found: Leaves, expected: Leaves, tolerance: float | None) -> str:
    """In what the results differ; empty if they are the same within the tolerance.

    Args:
        tolerance: see `allowed`; None for what the dtype of each array explains.
    """
    names, wanted = [name for name, _ in found], [name for name, _ in expected]
    if names != wanted:
        return f"it gives {', '.join(names) or 'nothing'}, the default configuration {', '.join(wanted) or 'nothing'}"
    for (name, mine), (_, theirs) in zip(found, expected, strict=True):
        problem = _array_difference(name, mine, theirs, tolerance)
        if problem:
            return problem
    return ""


def allowed(dtype: DType) -> float:
    """Default tolerance, relative to an element or to the root mean square of all elements, whichever is larger."""
    if not dtype.is_float or dtype.is_packed:
        return 0.0
    if dtype.itemsize >= 4:
        return _FLOAT32
    one = np.ones(1, dtype.numpy)
    following = (one.view(f"u{dtype.itemsize}") + 1).astype(f"u{dtype.itemsize}").view(dtype.numpy)
    return _NARROW * (float(following.astype(np.float64)[0]) - 1.0)


@np.errstate(all="ignore")
def _array_difference(name: str, mine: Any, theirs: Any, tolerance: float | None) -> str:
    if not isinstance(mine, np.ndarray) or not isinstance(theirs, np.ndarray):
        return "" if type(mine) is type(theirs) and mine == theirs else f"{name} is {mine!r} instead of {theirs!r}"
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return f"{name} is {mine.dtype}{list(mine.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
    limit = allowed(from_numpy(theirs.dtype)) if tolerance is None else tolerance
    a, b = _doubles(mine), _doubles(theirs)
    finite = b[np.isfinite(b)]
    size = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= limit * np.maximum(np.abs(b), size))
    if np.isinf(b).any():
        same &= (a == b) | np.isfinite(b)
    if same.all():
        return ""
    where = np.unravel_index(int(np.argmin(same)), same.shape)
    index = ", ".join(str(int(each)) for each in where)
    return (
        f"{name}[{index}] is {a[where]:.6g} instead of {b[where]:.6g}, and {int((~same).sum())} of {same.size} "
        f"elements differ by more than {limit:.2g}"
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    match value:
        case tuple() if hasattr(value, "_fields"):
            yield from _items(zip(value._fields, value, strict=True), path, ".{}")
        case list() | tuple():
            yield from _items(enumerate(value), path, "[{}]")
        case dict():
            yield from _items(value.items(), path, "[{!r}]" if path else "{}")
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _items(fields_of(value).items(), path, ".{}")
        case _:
            yield path, value


def _items(items: Any, path: str, form: str) -> Iterator[tuple[str, Any]]:
    for key, item in items:
        yield from _leaves(item, path + form.format(key))


def _doubles(array: np.ndarray) -> np.ndarray:
    if array.dtype.names is not None:
        return unpack_x4(np.ascontiguousarray(array), from_numpy(array.dtype)).astype(np.float64)
    return array.astype(np.float64)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)
