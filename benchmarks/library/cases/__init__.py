"""Realistic calls of the library's kernels, a module for each family."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.library.case import Case


def all_cases() -> list[Case]:
    """Of all families, in the order of their names."""
    return [case for module in sorted(each.name for each in iter_modules(__path__)) for case in cases_of(module)]


def cases_of(family: str) -> list[Case]:
    """Of one family."""
    found: list[Case] = import_module(f"{__name__}.{family}").CASES
    return found
