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

_LOADED: weakref.WeakKeyDictionary[Callable[..., Any], ModuleSpec | None] = weakref.WeakKeyDictionary()
"""How the module of each kernel's function was loaded when the kernel was made."""


def note_loading(function: Callable[..., Any]) -> None:
    """Note how the module of a kernel's function was loaded. It is no part of the kernel, which is read and copied."""
    _LOADED.setdefault(function, _now(function))


def tell_if_reloaded(function: Callable[..., Any]) -> None:
    """An `NkiWarning`, once for each function, if its module was loaded again since (``importlib.reload``).

    As every function of Python, the kernel that an earlier import gave is the earlier one. It is run as it is.
    """
    now, loaded = _now(function), _LOADED.get(function)
    if now is None or loaded is None or now is loaded:  # specs of the same file are equal
        return
    if now.origin != loaded.origin:  # another file under the same name
        return
    _LOADED[function] = None
    name, module = function.__name__, function.__module__
    finding = Finding(
        "kernel.reloaded",
        "warning",
        f"{name} is what it was before {module} was loaded again, and a change of the file has no effect on it",
        "importlib.reload makes new functions in the module; names that were imported earlier keep the earlier ones",
        "docs.python.org/3/library/importlib.html, importlib.reload",
        f"import it again: from {module} import {name}, or call {module}.{name}",
        here(),
        {"kernel": name, "module": module},
    )
    warn(finding)


def _now(function: Callable[..., Any]) -> ModuleSpec | None:
    module = sys.modules.get(function.__module__)
    return getattr(module, "__spec__", None)
