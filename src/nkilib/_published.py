"""The published library, which takes the place of this one where it is installed."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

PUBLISHED = "nkilib_src.nkilib"
"""The package that the published distribution installs."""

SWITCH = "NKILIB_FORCE_BUNDLED_LIBRARY"
"""The environment variable that keeps this library."""

_TRUE = ("1", "true", "yes", "on")


def take_over(name: str) -> bool:
    """Let the published library be what this package is imported as, and say whether it is.

    Args:
        name: of this package. What it has imported of its own stays in ``sys.modules`` until this function ends.
    """
    if not _wanted():
        return False
    published = importlib.import_module(PUBLISHED)
    for loaded in [each for each in sys.modules if each.startswith(f"{name}.")]:
        del sys.modules[loaded]
    sys.meta_path.insert(0, _Redirect(name))
    sys.modules[name] = published
    return True


def _wanted() -> bool:
    if os.environ.get(SWITCH, "").strip().lower() in _TRUE:
        return False
    package, _, _ = PUBLISHED.partition(".")
    return importlib.util.find_spec(package) is not None and importlib.util.find_spec(PUBLISHED) is not None


class _Redirect(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules below a name are those of the published library, the same objects under both names."""

    def __init__(self, name: str) -> None:
        self._prefix = f"{name}."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(self._prefix):
            return None
        if f"{fullname}.".startswith(f"{self._prefix}patterns."):
            return ModuleSpec(fullname, _NoPatterns(), is_package=True)
        real = f"{PUBLISHED}.{fullname.removeprefix(self._prefix)}"
        return None if importlib.util.find_spec(real) is None else ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{PUBLISHED}.{spec.name.removeprefix(self._prefix)}")
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the other name's there


class _NoPatterns(importlib.abc.Loader):
    """In the place of this library's patterns, whose kernels are not there: every name in them is None."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = _none


def _none(name: str) -> None:
    if name.startswith("__"):
        raise AttributeError(name)
