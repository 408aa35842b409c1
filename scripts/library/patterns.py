"""The patterns by which the graph compiler puts kernels of the library into models."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

from nkilib.catalogue import CATALOGUE, kernel

_DISTRIBUTION = Path(__file__).resolve().parents[2] / "distributions" / "nkilib" / "pyproject.toml"
_GROUP = "nki.patterns"


def patterns_of(name: str) -> list[str]:
    """Names of the patterns whose modules use a kernel."""
    return [pattern for pattern, kernels in _patterns().items() if name in kernels]


@cache  # each page asks
def _patterns() -> dict[str, list[str]]:
    """Kernels in the module of each pattern that the distribution names, by the pattern's name."""
    project = tomllib.loads(_DISTRIBUTION.read_text(encoding="utf-8"))["project"]
    found = {}
    for place in project.get("entry-points", {}).get(_GROUP, {}).values():
        module, _, pattern = place.partition(":")
        values = vars(import_module(module))
        used = [name for name in CATALOGUE if any(value is kernel(name) for value in values.values())]
        found[values[pattern].name] = used
    return found
