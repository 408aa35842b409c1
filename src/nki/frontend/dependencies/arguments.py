"""The arguments of a call as plain data, and the objects in them that a manifest has to look into."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.core.dtypes import DType
from nki.core.tensor import NKIObject
from nki.frontend.host import kind_of


@dataclass(frozen=True, slots=True)
class Described:
    """One call's arguments.

    Attributes:
        outline: JSON types; arrays by number, other objects by their place in `references`.
        references: classes of records and tuples, functions, and every other object that is no plain constant.
    """

    outline: Any
    references: tuple[Any, ...]


def describe(bound: Mapping[str, Any]) -> Described:
    """Take the arguments apart as `values.Arguments` does.

    Args:
        bound: arguments by parameter name; trees without cycles.
    """
    reader = _ArgumentEncoder()
    outline = {name: reader.read(value) for name, value in bound.items()}
    return Described(outline, tuple(reader.references))


class _ArgumentEncoder:
    """Numbers arrays and references in the order in which they are met."""

    def __init__(self) -> None:
        self.references: list[Any] = []
        self._arrays: dict[int, int] = {}

    def read(self, value: Any) -> Any:
        if kind_of(value) is not None:
            return ["array", self._arrays.setdefault(id(value), len(self._arrays))]
        if isinstance(value, np.generic) and value.dtype.kind in "iufb":
            value = value.item()
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return [kind.__name__, value]
        if kind is float:
            return ["float", value.hex()]
        if kind is DType:
            return ["dtype", str(value)]
        if kind in (list, tuple):
            return [kind.__name__, [self.read(item) for item in value]]
        if kind is dict:
            return ["dict", [[self.read(key), self.read(item)] for key, item in value.items()]]
        return self._object(value)

    def _object(self, value: Any) -> Any:
        if isinstance(value, NKIObject) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
            return ["record", self._refer(type(value)), [[name, self.read(item)] for name, item in _fields(value)]]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["named", self._refer(type(value)), [self.read(item) for item in value]]
        return ["object", self._refer(value)]

    def _refer(self, value: Any) -> int:
        self.references.append(value)
        return len(self.references) - 1


def _fields(value: Any) -> list[tuple[str, Any]]:
    if hasattr(value, "__dict__"):
        return list(vars(value).items())
    return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
