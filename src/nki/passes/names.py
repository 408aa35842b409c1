"""Names of passes: each has that of its file; the names that some had before are still understood, and told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from nki.core.source import UNKNOWN
from nki.spec.rule import Finding

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "reuse": "cse",
        "reuse_results": "cse",
        "forward": "copy_propagation",
        "forward_copies": "copy_propagation",
        "allocate": "allocate_and_schedule",
        "arrange": "allocate_and_schedule",
        "races": "check_races",
    }
)
"""What passes were called, and what they are called now."""


def current(name: str) -> str:
    """The name of today of a pass; hyphens stand for underscores. What is no pass's name comes back."""
    spelled = name.replace("-", "_")
    return RENAMED.get(spelled, spelled)


def renamed(names: Iterable[str]) -> tuple[Finding, ...]:
    """A warning "pass.renamed" for each name that a pass does not have any more."""
    return tuple(
        Finding(
            "pass.renamed",
            "warning",
            f"the pass {name} is called {current(name)}",
            "a pass has the name of its file in nki/passes",
            "docs/compiler.md",
            f"write {current(name)}",
            UNKNOWN,
            {"old": name, "name": current(name)},
        )
        for name in dict.fromkeys(names)
        if name.replace("-", "_") in RENAMED
    )
