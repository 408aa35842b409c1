"""What all passes of one compilation share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nki.graph.ir import Module, Op, Value
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


class Replaced(NamedTuple):
    """A part of a model that a pattern's kernel computes.

    Attributes:
        pattern: its name.
        where: the model's line.
        ns: what the part takes with the kernel, on the timing model; None for a pattern that does not ask.
        own_ns: what it would take with kernels of the graph compiler; None if these cannot compute it, too.
    """

    pattern: str
    where: str
    ns: float | None = None
    own_ns: float | None = None


class Near(NamedTuple):
    """A part of a model that a pattern's kernel does not compute, although it nearly could.

    Attributes:
        pattern: its name.
        where: the model's line.
        reason: why it does not.
        ns, own_ns: as those of `Replaced`, if the reason is that the kernel is slower.
    """

    pattern: str
    where: str
    reason: str
    ns: float | None = None
    own_ns: float | None = None


class Replacement(Protocol):
    """What puts a kernel in the place of a part of a model."""

    @property
    def name(self) -> str:
        """For reports."""

    def replaced(self, r: Rewriter, op: Op, context: GraphContext) -> Sequence[Value] | None:
        """Values in place of an operation's results; None where it has none. The context is told what was found."""


class TimeOf(Protocol):
    """Compiles a part of a model, and says what it takes in ns."""

    def __call__(self, module: Module, patterns: Sequence[Replacement]) -> float:
        """See `GraphContext.time_of`."""


@dataclass(slots=True)
class GraphContext:
    """One compilation.

    Attributes:
        target: whose limits groups keep.
        options: kernels that take the place of patterns are compiled with them.
        fold_bytes: constants of more bytes are not computed at compile time.
        patterns: what may replace parts of the model, in the order in which they are asked.
        time_of: what a part of the model takes in ns, compiled as the model is, but with the patterns that are named;
            None if nobody can tell, so that a pattern's kernel is used wherever it can be.
        timed_as: equal for contexts whose `time_of` gives equal answers.
        lnc: cores that run the model together.
        left_out: parts that stay as they are because the model is faster so, by what tells them from others: ns of the
            model with the kernel and without.
        used: parts that kernels of patterns compute, likewise: ns of the part with the kernel and without.
        replaced: what kernels of patterns compute.
        near: what they nearly compute.
        references: compiled kernels of patterns, which are known as long as this holds them.
        traffic: what fusion saved.
        disabled: names of passes that are left out.
    """

    target: Target
    options: Options = field(default_factory=Options)
    fold_bytes: int = 1 << 16
    patterns: Sequence[Replacement] = ()
    time_of: TimeOf | None = None
    timed_as: str = ""
    lnc: int = 1
    left_out: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)
    used: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    replaced: list[Replaced] = field(default_factory=list)
    near: list[Near] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    disabled: frozenset[str] = frozenset()
