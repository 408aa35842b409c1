"""How long a collective takes, by what it does, its bytes and which ranks take part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from nki.core.errors import TargetError
from nki.target.model import Target
from nki.topology.algorithms import Term, exchanged, gathered, passed_on, reduced, total
from nki.topology.load import with_coefficients
from nki.topology.placement import Spread, ranks_per_chip, spread
from nki.topology.records import Instance

Stages = Callable[[float, Spread, Instance, Target], tuple[Term, ...]]

OPERATIONS: Mapping[str, Stages] = MappingProxyType(
    {
        "all_gather": gathered,
        "reduce_scatter": gathered,
        "all_reduce": reduced,
        "all_to_all": exchanged,
        "broadcast": gathered,
        "permute": passed_on,
    }
)
"""The stages of each collective from its bytes: of the result of an all-gather, of what a rank brings to the others."""


class CollectiveTime(NamedTuple):
    """The parts of a collective's time.

    Attributes:
        start_ns: until its first hop begins.
        terms: its stages, one after another.
        spread: how its ranks lie on chips.
    """

    start_ns: float
    terms: tuple[Term, ...]
    spread: Spread

    @property
    def ns(self) -> float:
        """All of it."""
        return self.start_ns + total(self.terms)

    def __str__(self) -> str:
        stages = ", ".join(f"{term.algorithm} ({term.where}, {term.hops} hops)" for term in self.terms)
        return f"{self.ns / 1e3:.1f} us: {stages or 'nobody to meet'}"


def collective_time(
    operation: str, nbytes: float, lists: Sequence[Sequence[int]], instance: Instance, target: Target
) -> CollectiveTime:
    """The time of one collective of `OPERATIONS` among the ranks of each list, on an otherwise idle machine.

    Args:
        nbytes: of the whole result for "all_gather"; of what each rank brings for any other.
        lists: the ranks of each group; for "permute", of each cycle or pair; none if nobody sends.
        target: of the instance's chips; coefficients of collectives that it states come before the instance's.

    Raises:
        TargetError: ``topology.operation``.
    """
    if operation not in OPERATIONS:
        raise TargetError(
            "topology.operation", f"no collective is called {operation!r}", fix=f"use one of {', '.join(OPERATIONS)}"
        )
    instance = with_coefficients(instance, target)
    of = spread(tuple(map(tuple, lists)) or ((0,),), instance, ranks_per_chip(instance, target))
    if of.ranks == 1:
        return CollectiveTime(0.0, (), of)
    return CollectiveTime(instance.collective.start_ns, OPERATIONS[operation](nbytes, of, instance, target), of)
