"""Keys: SHA-256 over everything that an entry was made from, this installation included."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import os
import secrets
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nki.core.started import IMPORTED_NS
from nki.version import version

_PACKAGE = Path(__file__).resolve().parents[1]
_MLIR = "torch_mlir"
_METADATA = (".dist-info", ".egg-info")
_CLOCK_NS = 20_000_000
"""Clocks of file systems are behind the system's by a tick or two."""


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


@cache  # this process runs what it has imported, whatever is installed later
def installation() -> str:
    """What wrote an entry: versions of this package, of Python, NumPy and MLIR.

    A checkout counts by its source, whatever git calls it: its version stays the same while somebody edits it. What
    counts is what this process imported: if its files were changed since then, nobody knows what that was, and the
    text is one that no other process has.
    """
    own = version() if (_PACKAGE / "VERSION").is_file() else _source_hash()
    if changed_since_import():
        own = f"changed {secrets.token_hex(16)}"
    return " ".join([own, sys.version, np.__version__, _mlir()])


def changed_since_import() -> bool:
    """Whether a file of this package, or of MLIR's installation, was changed after this process imported the package.

    The time of the change of the file itself counts, which no program can set back.
    """
    latest = IMPORTED_NS - _CLOCK_NS
    places = _mlir_places()
    return any(_changed_ns(path) > latest for path in (*_sources(str(_PACKAGE)), *places))


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_ctime_ns
    except FileNotFoundError:  # it was there when its directory was listed
        return sys.maxsize


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
    return " ".join(_name_of(Path(place)) for place in _mlir_places()) or "none"


def _name_of(place: Path) -> str:
    """A directory with metadata has the version in its name; another one counts by when it last changed."""
    return place.name if place.suffix in _METADATA else f"{place} {place.stat().st_mtime_ns}"


@cache  # what is installed when the process begins
def _mlir_places() -> tuple[str, ...]:
    """Directories with the metadata of MLIR; where there are none, such as in a build directory, the package's own."""
    spec = find_spec(_MLIR)
    packages = [] if spec is None else sorted(spec.submodule_search_locations or ())
    return tuple(found for package in packages for found in _metadata_of(package))


def _metadata_of(package: str) -> list[str]:
    with os.scandir(os.path.dirname(package)) as entries:
        found = sorted(e.path for e in entries if e.name.startswith(_MLIR) and e.name.endswith(_METADATA))
    return found or [package]


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
