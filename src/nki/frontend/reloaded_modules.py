"""Kernels whose module was loaded again: a name that was imported earlier still holds what it was before."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

from nki.core.source import here
from nki.report import warn
from nki.spec.rule import Finding

_RULE = "importlib.reload makes new functions in the module; names that were imported earlier keep the earlier ones"


class Loading:
    """How the module of a kernel's function was loaded when the first kernel of the function was made."""

    __slots__ = ("_module", "_name", "_spec")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name, self._module = function.__name__, function.__module__
        self._spec: ModuleSpec | None = getattr(sys.modules.get(self._module), "__spec__", None)

    def __deepcopy__(self, memo: Any) -> Loading:
        return self  # a copy of a kernel has the same function

    def tell_if_again(self) -> None:
        """An `NkiWarning`, once for each function, if its module was loaded again since (``importlib.reload``).

        As every function of Python, the kernel that an earlier import gave is the earlier one. It is run as it is.
        """
        loaded = self._spec
        now: ModuleSpec | None = getattr(sys.modules.get(self._module), "__spec__", None)
        if now is loaded or now is None or loaded is None:  # specs of the same file are equal
            return
        if now.origin != loaded.origin:  # another file under the same name
            return
        self._spec = None
        name, module = self._name, self._module
        finding = Finding(
            "kernel.reloaded",
            "warning",
            f"{name} is what it was before {module} was loaded again, and a change of the file has no effect on it",
            _RULE,
            "docs.python.org/3/library/importlib.html, importlib.reload",
            f"import it again: from {module} import {name}, or call {module}.{name}",
            here(),
            {"kernel": name, "module": module},
        )
        warn(finding)


_LOADINGS: weakref.WeakKeyDictionary[Callable[..., Any], Loading] = weakref.WeakKeyDictionary()
"""One for each function. It is no part of the kernel, which is read and copied."""


def loading_of(function: Callable[..., Any]) -> Loading:
    """How the module of a kernel's function was loaded, noted when this is asked for the first time."""
    found = _LOADINGS.get(function)
    if found is None:
        found = _LOADINGS[function] = Loading(function)
    return found
