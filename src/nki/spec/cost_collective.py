"""What collectives cost: the alpha-beta model of `nki.topology`, on the instance that the target names."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, NamedTuple

from nki.core.tensor import View
from nki.spec.cost_dma import transfer, trigger
from nki.spec.engine import dge_mode
from nki.spec.engine import engine as Engine
from nki.spec.program import Issued
from nki.spec.step import Cost, Step
from nki.target.model import Target
from nki.topology import collective_time, instance_of

_ESTIMATE = (
    "hops of the documented algorithms with their published latency, and bytes at rates fitted to published runs of "
    "nccom-test; which algorithm runs is not documented, and taken to be the one that takes the least time"
)
_SOURCE = "neuron-runtime/explore/intranode-collective-comm.rst"


class Moved(NamedTuple):
    """What a call of a collective moves.

    Attributes:
        operation: one of `nki.topology.times.OPERATIONS`.
        nbytes: as `nki.topology.collective_time` takes them.
        lists: the ranks that meet, of each group.
        whole: whether these are all; else the groups of other ranks may be elsewhere.
    """

    operation: str
    nbytes: int
    lists: tuple[tuple[int, ...], ...]
    whole: bool


class Travel:
    """The formula of a collective: what it moves, and how long that takes on the instance that the target names."""

    def __init__(self, name: str, operation: str, payload: str) -> None:
        """The operand `payload` has the tensors that a rank brings."""
        self._name, self._operation, self._tensors = name, operation, attrgetter(payload)

    def moved(self, a: Any) -> Moved:
        """What a call with these arguments moves."""
        grouped = hasattr(a, "replica_group")
        lists = tuple(map(tuple, a.replica_group)) if grouped else connected(a.source_target_pairs)
        nbytes = sum(view.nbytes for view in self._views(a))
        made = nbytes * len(lists[0]) if self._operation == "all_gather" else nbytes
        return Moved(self._operation, made, lists, not grouped)

    def __call__(self, a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        views, moved, timing = self._views(a), self.moved(a), target.timing
        nbytes = sum(view.nbytes for view in views)
        found = collective_time(moved.operation, moved.nbytes, moved.lists, instance_of(target), target)
        ns = found.ns if found.terms else copy_ns(nbytes, target)
        start = trigger(dge_mode.none, Engine.dma, views[0], views[0], target)
        return start, Step(self._name, "dma", ns, timing["dma_completion_ns"], nbytes, len(views))

    def _views(self, a: Any) -> list[View]:
        return [v for item in self._tensors(a) for v in ((item,) if type(item) is View else item)]


def copy_ns(nbytes: int, target: Target) -> float:
    """ns of a collective in which a rank meets nobody."""
    return float(max(nbytes / target.dma.aggregate_gbps, target.timing["dma_floor_ns"]))


def moved_by(issued: Issued) -> Moved | None:
    """What an instruction moves between ranks; None if it is no collective."""
    cost = issued.instruction.steps
    formula = None if cost is None else cost.formula
    return formula.moved(issued.arguments) if isinstance(formula, Travel) else None


def collective(name: str, operation: str, payload: str) -> Cost:
    """A collective among the ranks of each list of its replica group.

    Args:
        name: for people.
        operation: which one of `nki.topology.times.OPERATIONS` it is.
        payload: the operand with the tensors that a rank brings.
    """
    return Cost(Travel(name, operation, payload), _SOURCE, _ESTIMATE)


def permutes(name: str, payload: str) -> Cost:
    """A collective in which every rank sends its tensors to one other rank: of a ring, or of pairs."""
    return Cost(Travel(name, "permute", payload), _SOURCE, _ESTIMATE)


def prepares(name: str) -> Cost:
    """The first half of a collective, which reads its table."""

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        table = a.metadata_tensor
        return (transfer(name, table, table, target),)

    return Cost(formula, "", "no document gives a cost; a DMA of the table of sizes")


def connected(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """The ranks that pairs connect with each other, directly or through others."""
    groups: list[set[int]] = []
    for pair in pairs:
        touched = [group for group in groups if not group.isdisjoint(pair)]
        groups = [group for group in groups if group.isdisjoint(pair)]
        groups.append(set(pair).union(*touched))
    return tuple(tuple(sorted(group)) for group in groups)
