"""What all passes of one compilation share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nki.graph.ir import Op, Value
from nki.graph.passes.rewriter import Rewriter
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


class Replacement(Protocol):
    """What puts a kernel in the place of a part of a model."""

    @property
    def name(self) -> str:
        """For reports."""

    def replaced(self, r: Rewriter, op: Op, context: GraphContext) -> Sequence[Value] | None:
        """Values in place of an operation's results; None where it has none."""


@dataclass(slots=True)
class GraphContext:
    """One compilation.

    Attributes:
        target: whose limits groups keep.
        options: kernels that take the place of patterns are compiled with them.
        fold_bytes: constants of more bytes are not computed at compile time.
        patterns: what may replace parts of the model, in the order in which they are asked.
        replaced: (pattern, model's line) of parts of the graph that a registered kernel replaces.
        references: compiled kernels of patterns, which are known as long as this holds them.
        traffic: what fusion saved.
        disabled: names of passes that are left out.
    """

    target: Target
    options: Options = field(default_factory=Options)
    fold_bytes: int = 1 << 16
    patterns: Sequence[Replacement] = ()
    replaced: list[tuple[str, str]] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    disabled: frozenset[str] = frozenset()
