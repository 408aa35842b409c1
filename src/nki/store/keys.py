"""Keys: SHA-256 over everything that an entry was made from, this installation included."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import importlib.metadata
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nki.version import version

_PACKAGE = Path(__file__).resolve().parents[1]
_MLIR = "torch-mlir"


def key_of(kind: str, **parts: Any) -> str:
    """The key of an entry: 64 hexadecimal digits.

    Args:
        kind: what the entry holds; kinds do not share keys.
        parts: what it depends on: JSON types, bytes, tuples, sets, enums and dataclasses of them.

    Raises:
        TypeError: for another value, because it could be equal and written differently.
    """
    text = json.dumps([kind, installation(), _plain(parts)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@cache
def installation() -> str:
    """What wrote an entry: versions of this package, of Python, NumPy and MLIR.

    A checkout counts by its source as well, whose version stays the same while somebody edits it.
    """
    parts = [version(), sys.version, np.__version__, _version_of(_MLIR)]
    if not (_PACKAGE / "VERSION").is_file():
        parts.append(_source_hash())
    return " ".join(parts)


def _source_hash() -> str:
    found = hashlib.sha256()
    for path in sorted([*_PACKAGE.rglob("*.py"), *_PACKAGE.rglob("*.toml")]):
        data = path.read_bytes()
        found.update(f"{path.relative_to(_PACKAGE)} {len(data)} ".encode() + data)
    return found.hexdigest()


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _plain(value: Any) -> Any:
    match value:
        case enum.Enum():
            return {"enum": [type(value).__qualname__, value.name]}
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case bytes():
            return {"sha256": hashlib.sha256(value).hexdigest()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case set() | frozenset():
            return {"set": sorted(json.dumps(_plain(item), sort_keys=True) for item in value)}
        case dict():
            return {"dict": [[_plain(key), _plain(item)] for key, item in sorted(value.items())]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"record": [type(value).__qualname__, fields]}
    raise TypeError(f"{type(value).__qualname__} cannot be part of a key")
