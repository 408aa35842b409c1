"""The patterns by which the graph compiler puts kernels of the library into models."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

from nkilib.catalogue import CATALOGUE, kernel

_DISTRIBUTION = Path(__file__).resolve().parents[2] / "distributions" / "nkilib" / "pyproject.toml"
_GROUP = "nki.patterns"
_OWN = "nkilib.patterns"


def patterns_of(name: str) -> list[str]:
    """Names of the patterns whose kernels call a kernel of the library, or are one."""
    return [pattern for pattern, kernels in _patterns().items() if name in kernels]


@cache  # each page asks
def _patterns() -> dict[str, set[str]]:
    """Names in the catalogue of what each pattern uses that the distribution names, by the pattern's name."""
    project = tomllib.loads(_DISTRIBUTION.read_text(encoding="utf-8"))["project"]
    by_kernel = {kernel(name): name for name in CATALOGUE}
    found = {}
    for place in project.get("entry-points", {}).get(_GROUP, {}).values():
        module, _, name = place.partition(":")
        pattern = getattr(import_module(module), name)
        found[pattern.name] = {by_kernel[each] for each in _used(pattern.kernel, set()) if each in by_kernel}
    return found


def _used(value: Any, seen: set[Any]) -> Iterator[Any]:
    """A kernel or function, and what it calls by name, but for what functions of the library call themselves."""
    function = getattr(value, "func", value)
    if not isinstance(function, FunctionType) or value in seen:
        return
    seen.add(value)
    yield value
    if function.__module__.startswith(_OWN):
        for name in function.__code__.co_names:
            yield from _used(function.__globals__.get(name), seen)
