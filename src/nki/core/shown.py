"""What a value of the user looks like in a message: one short line, without addresses, paths or contents."""

from __future__ import annotations

import re
from functools import singledispatch
from types import BuiltinFunctionType, FunctionType, NoneType

import numpy as np

_LENGTH = 60
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@singledispatch
def shown(value: object) -> str:
    """Kind and value, such as ``int 3`` or ``str 'add'``; types with a better text register one."""
    return f"{type(value).__name__} {one_line(repr(value))}"


def one_line(text: str) -> str:
    """The first line of a text, without addresses of objects, and cut where it is long."""
    first, _, rest = _ADDRESS.sub("", text).partition("\n")
    return first if not rest and len(first) <= _LENGTH else f"{first[: _LENGTH - 3]}..."


@shown.register(NoneType)
def _(value: None) -> str:
    return "None"


@shown.register
def _(value: np.ndarray) -> str:
    return f"a NumPy array {value.dtype}{list(value.shape)}"


@shown.register
def _(value: list | tuple) -> str:
    if all(isinstance(item, bool | int | float | str | NoneType) for item in value):
        return f"{type(value).__name__} {one_line(repr(value))}"
    return one_line(f"a {type(value).__name__} with {', '.join(shown(item) for item in value)}")


@shown.register
def _(value: FunctionType | BuiltinFunctionType) -> str:
    public = (value.__module__ or "").startswith("nki.language")
    return f"nl.{value.__name__}" if public else f"the function {value.__name__}"


@shown.register
def _(value: type) -> str:
    return f"the class {value.__name__}"
