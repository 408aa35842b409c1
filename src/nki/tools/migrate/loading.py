"""Files that are executed as modules, as far as they can be: an import that fails here ends nothing else."""

from __future__ import annotations
import __future__

import ast
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINITIONS = (*_IMPORTS, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
"""Statements that are executed after another one has failed: they give names to something, and do nothing."""


@dataclass(frozen=True)
class Failed:
    """A statement of a file that raised an error.

    Attributes:
        line: where it begins.
    """

    line: int
    error: Exception

    @property
    def reason(self) -> str:
        return f"{type(self.error).__name__}: {self.error}".splitlines()[0]


@dataclass(frozen=True)
class Loaded:
    """A file that was executed.

    Attributes:
        failed: statements that raised errors, and what is missing for that reason.
    """

    module: types.ModuleType
    failed: tuple[Failed, ...]


def load(
    path: Path, text: str, name: str, given: Mapping[str, Any] = MappingProxyType({}), *, strict: bool = False
) -> Loaded:
    """Execute a text as the file at a path; relative imports are those of the package that the file is in.

    An import that fails leaves its names undefined. After any other statement that fails, only definitions are
    executed.

    Args:
        given: names that it has from the beginning.
        strict: raise the error of a statement that fails, unless it is an import.
    """
    root, package = _package(path, text)
    for folder in (root, path.resolve().parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    module = types.ModuleType(name)
    module.__file__ = str(path)
    module.__package__ = package if _dots(text) else None
    vars(module).update(given)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        return Loaded(module, _executed(path, text, module, strict=strict))
    finally:
        if before is not None:
            sys.modules[name] = before


def _executed(path: Path, text: str, module: types.ModuleType, *, strict: bool) -> tuple[Failed, ...]:
    """Execute the statements of a text one by one; returns those that failed."""
    tree = ast.parse(text, str(path))
    module.__doc__ = ast.get_docstring(tree)
    flags, only_definitions = 0, False
    failed: list[Failed] = []
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            flags |= sum(getattr(__future__, alias.name).compiler_flag for alias in statement.names)
        if only_definitions and not isinstance(statement, _DEFINITIONS):
            continue
        code = compile(ast.Module([statement], []), str(path), "exec", flags, dont_inherit=True)
        try:
            exec(code, vars(module))
        except Exception as error:
            if strict and not isinstance(statement, _IMPORTS):
                raise
            failed.append(Failed(statement.lineno, error))
            only_definitions = only_definitions or not isinstance(statement, _IMPORTS)
    return tuple(failed)


def _dots(text: str) -> int:
    """How many dots the relative imports of a text have at most."""
    return max(map(len, re.findall(r"^\s*from (\.+)", text, re.MULTILINE)), default=0)


def _package(path: Path, text: str) -> tuple[Path, str]:
    """The folder that a file is imported from, and its package: those with an ``__init__.py``, or the nearest ones."""
    folder = path.resolve().parent
    names = [folder.name]
    while folder.parent != folder.parent.parent and (
        len(names) < _dots(text) or ((folder / "__init__.py").exists() and (folder.parent / "__init__.py").exists())
    ):
        folder = folder.parent
        names.insert(0, folder.name)
    return folder.parent, ".".join(names)
