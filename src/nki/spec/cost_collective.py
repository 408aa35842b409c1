"""What collectives cost: the alpha-beta model of `nki.topology`, on the instance that the target names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from nki.core.tensor import View
from nki.spec.cost_dma import transfer, trigger
from nki.spec.engine import dge_mode
from nki.spec.engine import engine as Engine
from nki.spec.step import Cost, Step
from nki.target.model import Target
from nki.topology import collective_time, instance_of

_ESTIMATE = (
    "hops of the documented algorithms with their published latency, and bytes at rates fitted to published runs of "
    "nccom-test; which algorithm runs is not documented, and taken to be the one that takes the least time"
)
_SOURCE = "neuron-runtime/explore/intranode-collective-comm.rst"


def collective(name: str, operation: str, payload: str) -> Cost:
    """A collective among the ranks of each list of its replica group.

    Args:
        name: for people.
        operation: which one of `nki.topology.times.OPERATIONS` it is.
        payload: the operand with the tensors that a rank brings.
    """
    tensors = attrgetter(payload)

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        return _travel(name, operation, tensors(a), a.replica_group, target)

    return Cost(formula, _SOURCE, _ESTIMATE)


def permutes(name: str, payload: str) -> Cost:
    """A collective in which every rank sends its tensors to one other rank: of a ring, or of pairs."""
    tensors = attrgetter(payload)

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        lists = a.replica_group if hasattr(a, "replica_group") else connected(a.source_target_pairs)
        return _travel(name, "permute", tensors(a), lists, target)

    return Cost(formula, _SOURCE, _ESTIMATE)


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


def _travel(
    name: str, operation: str, tensors: Sequence[Any], lists: Sequence[Sequence[int]], target: Target
) -> tuple[Step, ...]:
    views: list[View] = [v for item in tensors for v in ((item,) if type(item) is View else item)]
    timing = target.timing
    nbytes = sum(view.nbytes for view in views)
    whole = nbytes * len(lists[0]) if operation == "all_gather" else nbytes
    found = collective_time(operation, whole, lists, instance_of(target), target)
    ns = found.ns if found.terms else max(nbytes / target.dma.aggregate_gbps, timing["dma_floor_ns"])
    start = trigger(dge_mode.none, Engine.dma, views[0], views[0], target)
    return start, Step(name, "dma", ns, timing["dma_completion_ns"], nbytes, len(views))
