"""The arguments of a call in the key of an entry."""

from __future__ import annotations

from typing import Any

from nki.frontend.host import kind_of
from nki.tune.config import Config


def described(name: str, value: Any) -> str:
    """An argument in a key: shapes and dtypes of arrays, other values as they are."""
    if kind_of(value) is not None:
        return f"{name}={str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict):
        return f"{name}={{{', '.join(described(str(key), item) for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{name}=({', '.join(described(str(at), item) for at, item in enumerate(value))})"
    return f"{name}={Config({name: value}).label.partition('=')[2]}"


def arrays(value: Any) -> list[Any]:
    """All arrays in a tree of arguments."""
    if kind_of(value) is not None:
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [array for item in items for array in arrays(item)]
