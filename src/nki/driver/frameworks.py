"""Frameworks whose arrays kernels take in a way of their own: found by what a kernel is called with.

A framework is an object with the two methods of `Framework`. Kernels ask it once it was given to `install`. That
happens by itself when a kernel is called with a value of a package for which a framework was declared: by `declare`, or
by an entry point of the group ``nki.frameworks`` of another distribution, whose name is that of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from nki.driver.derivative import Differentiable
from nki.driver.prepare import Launchable
from nki.frontend.values import CONSTANTS, leaves_of

GROUP = "nki.frameworks"
"""The group of entry points: ``name = "module:object"``."""


class Callee(Launchable, Differentiable, Protocol):
    """A kernel, as a framework calls it."""

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call on arrays of the host, or in another kernel, with no framework asked."""


class Framework(Protocol):
    """What makes calls of kernels with its own arrays."""

    def claims(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether this call is the framework's.

        Calls of every kernel ask, those in other kernels too, but for those with arrays of NumPy and constants alone.
        """

    def call(self, kernel: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call: as a part of the framework's program, or now, by `nki.driver.prepare` or ``kernel.run``."""


_INSTALLED: list[Framework] = []
"""The frameworks whose arrays kernels take in this process, each once; `install` adds them."""

_DECLARED: dict[str, Callable[[], Framework]] = {}
"""What loads the framework of a package that was not asked for yet."""
_ASKED: set[str] = set()
"""Packages of types that were met, whether or not there is a framework for them."""
_OWN = frozenset({*CONSTANTS, np.ndarray})
"""Types that belong to no framework."""


def install(framework: Framework) -> None:
    """Ask a framework from here on; nothing happens a second time."""
    if framework not in _INSTALLED:
        _INSTALLED.append(framework)


def declare(package: str, place: str) -> None:
    """Install a framework when a kernel is called with a value of its package.

    Args:
        package: the first part of the names of modules in which the types are defined.
        place: ``module:object``, imported then.
    """
    if package not in _DECLARED:
        _DECLARED[package] = lambda: _loaded(place)
        _ASKED.discard(package)


def framework_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Framework | None:
    """The framework that makes this call; None for arrays of the host."""
    for value in (*args, *kwargs.values()):
        if type(value) not in _OWN:
            return _claiming(args, kwargs)
    return None


def _claiming(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Framework | None:
    """Ask about a call that has something else than arrays of NumPy and constants."""
    for framework in _INSTALLED:
        if framework.claims(args, kwargs):
            return framework
    return _met(args, kwargs)


def _met(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Framework | None:
    """The framework of a package met for the first time that makes this call, now installed; None if there is none."""
    for value in leaves_of((*args, *kwargs.values())):
        package = type(value).__module__.partition(".")[0]
        if package in _ASKED:
            continue
        load = _DECLARED.get(package) or _entry_point(package)
        framework = None if load is None else load()
        if framework is not None:
            install(framework)
        _ASKED.add(package)  # at the end: who comes meanwhile, or after an error, asks again
        if framework is not None and framework.claims(args, kwargs):
            return framework
    return None


def _entry_point(package: str) -> Callable[[], Framework] | None:
    metadata = import_module("importlib.metadata")  # takes as long as many calls, and most processes need none
    for found in metadata.entry_points(group=GROUP, name=package):
        load: Callable[[], Framework] = found.load
        return load
    return None


def _loaded(place: str) -> Framework:
    module, _, name = place.partition(":")
    framework: Framework = getattr(import_module(module), name)
    return framework
