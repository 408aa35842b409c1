"""Keys: SHA-256 over everything that an entry was made from, this installation included."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nki.version import version

_PACKAGE = Path(__file__).resolve().parents[1]
_MLIR = "torch_mlir"


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

    A checkout counts by its source, whatever git calls it: its version stays the same while somebody edits it.
    """
    own = version() if (_PACKAGE / "VERSION").is_file() else _source_hash()
    return " ".join([own, sys.version, np.__version__, _mlir()])


def _source_hash() -> str:
    found = hashlib.sha256()
    for path in sorted(_sources(str(_PACKAGE))):
        with open(path, "rb", buffering=0) as file:
            data = file.read()
        found.update(f"{path[len(str(_PACKAGE)) :]} {len(data)} ".encode() + data)
    return found.hexdigest()


def _sources(directory: str) -> Iterator[str]:
    """The files below a directory that decide what this package does."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".toml")):
                yield entry.path
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path)


def _mlir() -> str:
    """Which MLIR is installed: the names of the directories with its metadata, in which the version is, and no more.

    The module `importlib.metadata`, which reads them, takes a tenth of what importing this package takes.
    """
    spec = find_spec(_MLIR)
    places = [] if spec is None else sorted(spec.submodule_search_locations or ())
    return " ".join([name for place in places for name in _metadata_of(Path(place))]) or "none"


def _metadata_of(package: Path) -> list[str]:
    """The names; where there are none, such as in a build directory, when the package's directory last changed."""
    with os.scandir(package.parent) as entries:
        found = sorted(
            e.name for e in entries if e.name.startswith(_MLIR) and e.name.endswith(("dist-info", "egg-info"))
        )
    return found or [f"{package} {package.stat().st_mtime_ns}"]


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
