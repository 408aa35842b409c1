"""Which source a measurement belongs to: a hash of the modules of the library that a kernel reaches by imports."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from benchmarks.timing_cases.digest import code_of

from nkilib.catalogue import CATALOGUE
from nkilib.tuned import TABLES

_PACKAGE = "nkilib"
_APART = frozenset({"nkilib", "nkilib.catalogue", "nkilib.kernels", "nkilib._published"})
"""Modules that list kernels, and compute nothing."""


def source_of(kernel: str) -> str:
    """A hash of a kernel, its reference and all that they import from the library, and of its tuned tiles.

    Comments and docstrings do not count.
    """
    module = CATALOGUE[kernel].module
    found = hashlib.sha256()
    for name in sorted(_reached([module, f"{module}_reference"])):
        found.update(f"{name} {code_of(_file(name))}".encode())
    for generation, entries in TABLES.items():
        found.update(f"{generation} {entries.get(kernel, ())!r}".encode())
    return found.hexdigest()[:16]


def _reached(names: list[str]) -> set[str]:
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name not in seen:
            seen.add(name)
            names.extend(_imports(name))
    return seen


@cache  # the helpers are imported by every kernel
def _imports(module: str) -> tuple[str, ...]:
    """Modules of the library that one imports, of packages what they import in turn."""
    tree = ast.parse(_file(module).read_text(encoding="utf-8"))
    names = [name for node in ast.walk(tree) for name in _names(node)]
    return tuple(name for name in names if name not in _APART and _is_module(name))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names if each.name.startswith(f"{_PACKAGE}."))
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _PACKAGE:
        yield node.module or ""
        yield from (f"{node.module}.{each.name}" for each in node.names)


@cache  # asks the file system
def _is_module(name: str) -> bool:
    parent = find_spec(name.rpartition(".")[0])
    return bool(parent and parent.submodule_search_locations and find_spec(name))


def _file(module: str) -> Path:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None, f"{module} has no file"
    return Path(spec.origin)
