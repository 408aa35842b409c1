"""What all passes of one compilation share."""

from __future__ import annotations

from dataclasses import dataclass, field

from nki.graph.references import Reference
from nki.options import Options
from nki.target.model import Target


@dataclass(slots=True)
class Traffic:
    """Bytes between kernels and device memory, and how many kernels there are: one per operation, and after fusion."""

    bytes_before: int = 0
    bytes_after: int = 0
    kernels_before: int = 0
    kernels_after: int = 0
    distinct: int = 0


@dataclass(slots=True)
class Context:
    """One compilation.

    Attributes:
        target: whose limits groups keep.
        options: kernels that take the place of patterns are compiled with them.
        fold_bytes: constants of more bytes are not computed at compile time.
        patterns: names of the kernel patterns that may be used; None: all that are registered.
        replaced: (pattern, model's line) of parts of the graph that a registered kernel replaces.
        references: compiled kernels of patterns, which are known as long as this holds them.
        traffic: what fusion saved.
        disabled: names of passes that are left out.
    """

    target: Target
    options: Options = field(default_factory=Options)
    fold_bytes: int = 1 << 16
    patterns: frozenset[str] | None = None
    replaced: list[tuple[str, str]] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    disabled: frozenset[str] = frozenset()
