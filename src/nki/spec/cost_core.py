"""What sequencers, meetings of cores and collectives cost."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2
from operator import attrgetter
from typing import Any

from nki.core.tensor import View
from nki.spec.cost_dma import transfer, trigger
from nki.spec.engine import dge_mode
from nki.spec.engine import engine as Engine
from nki.spec.step import Cost, Step
from nki.target.model import Target

_SEQUENCER = (
    "no document gives a cost; the least interval of an engine for the instruction, the overhead of an access for "
    "SBUF, and for device memory the fixed latency of a DMA"
)
_MEETING = "no document gives a cost; the least interval of the engine, and a semaphore to the other core"
_COLLECTIVE = (
    "steps of a ring or tree among the ranks with the largest published latency of a hop, and the bytes that a rank "
    "sends at the slower of its DMA engines and the links of its device; the hops are documented, their number depends "
    "on algorithms that are chosen when the model runs"
)
_HOPS = "neuron-runtime/explore/intranode-collective-comm.rst"


def _least(target: Target, engine: Engine) -> float:
    return target.issue.min_ii_cycles / target.engines[engine.name].ghz


def sequences(name: str, memory: str = "") -> Cost:
    """An instruction on registers; `memory` is the operand that it reads or writes, if there is one."""
    operand = attrgetter(memory) if memory else None

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        latency = 0.0
        if operand is not None:
            on_chip = operand(a).buffer.on_chip
            access = target.issue.access_overhead_cycles / target.engines[engine.name].ghz
            latency = access if on_chip else target.dma.fixed_overhead_ns
        return (Step(name, engine.name, _least(target, engine), latency),)

    return Cost(formula, "", _SEQUENCER)


def meets(name: str) -> Cost:
    """A wait for the other core, without the time that it is late."""

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        return (Step(name, engine.name, _least(target, engine), target.timing["semaphore_ns"]),)

    return Cost(formula, "", _MEETING)


Share = Callable[[int], float]
"""From the number of ranks, the part of its payload that a rank sends."""


def collective(name: str, payload: str, sent: Share, rounds: int = 1) -> Cost:
    """A collective whose ranks send ``sent(ranks)`` of the tensors `payload`, in `rounds` over all ranks."""
    tensors = attrgetter(payload)

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        ranks = len(a.replica_group[0])
        return _travel(name, tensors(a), ranks, sent(ranks) if ranks > 1 else 1.0, rounds * ceil(log2(ranks)), target)

    return Cost(formula, _HOPS, _COLLECTIVE)


def permutes(name: str, payload: str) -> Cost:
    """A collective in which every rank sends its tensors to one other rank."""
    tensors = attrgetter(payload)

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        return _travel(name, tensors(a), 2, 1.0, 1, target)

    return Cost(formula, _HOPS, _COLLECTIVE)


def prepares(name: str) -> Cost:
    """The first half of a collective, which reads its table."""

    def formula(a: Any, target: Target, engine: Engine) -> tuple[Step, ...]:
        table = a.metadata_tensor
        return (transfer(name, table, table, target),)

    return Cost(formula, "", "no document gives a cost; a DMA of the table of sizes")


def _travel(
    name: str, tensors: tuple[Any, ...], ranks: int, sent: float, hops: int, target: Target
) -> tuple[Step, ...]:
    views: list[View] = [v for item in tensors for v in ((item,) if type(item) is View else item)]
    timing = target.timing
    nbytes = sum(view.nbytes for view in views)
    links = target.link.bandwidth_gbps if ranks > 1 else target.dma.aggregate_gbps
    moved = nbytes * sent / min(target.dma.aggregate_gbps, links)
    ns = max(moved, timing["dma_floor_ns"]) + hops * timing["collective_hop_max_ns"]
    start = trigger(dge_mode.none, Engine.dma, views[0], views[0], target)
    return start, Step(name, "dma", ns, timing["dma_completion_ns"], nbytes, len(views))
