"""A step of many ranks by brute force: every rank on its own, times by relaxation until nothing changes.

It shares nothing with the model but what a collective takes. A queue runs its instructions in order; each waits for
those that it names; a collective begins when its queue has come to it on all ranks of its group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nki.collectives.shared import Destinations, Ranks, Sources
from nki.core.source import UNKNOWN
from nki.spec.cost_collective import Travel
from nki.spec.engine import engine
from nki.spec.instruction import Instruction
from nki.spec.program import Issued, Program
from nki.spec.step import Cost, Step
from nki.target.model import Target
from tests.timing.support import Sketch, tensor

LATENCY = 7.0
Group = tuple[int, ...]


class Item(NamedTuple):
    """An instruction: a queue, ns of an engine or the group of a collective, and positions that it waits for."""

    queue: str
    ns: float
    group: Group = ()
    after: tuple[int, ...] = ()


class _Bare(Travel):
    """A collective that nobody has to trigger."""

    def __call__(self, a: Any, target: Target, engine: Any) -> tuple[Step, ...]:
        return (Step("Meet", "dma", 1.0, LATENCY),)


def _meet(srcs: Sources, dsts: Destinations, replica_group: Ranks) -> None:
    """Meet."""


_MEET: Instruction[Any] = Instruction(
    _meet,
    (engine.dma,),
    None,
    (),
    "",
    "",
    (),
    False,
    True,
    Cost(_Bare("Meet", "all_reduce", "srcs"), "a test"),
    ("ranks",),
)
NBYTES = tensor(0).nbytes


def sketched(items: Sequence[Item]) -> Program:
    """The program of one rank."""
    sketch = Sketch()
    for number, item in enumerate(items):
        if item.group:
            views = [(tensor(5000 + 2 * number + each, "shared_hbm"),) for each in (0, 1)]
            issued = Issued(_MEET, _MEET.arguments(*views, (item.group,)), UNKNOWN, engine.dma)
            sketch.issue(item.queue, issued, item.after)
        else:
            sketch.add(item.queue, Step("Work", item.queue, item.ns), after=item.after)
    return sketch.program()


class Times(NamedTuple):
    """Of one rank: end of each item, when each collective was ready, and the end of all."""

    ends: list[float]
    ready: list[float]
    end: float


def brute_force(
    ranks: Sequence[Sequence[Item]], slow: Mapping[int, float], collective_ns: Mapping[Group, float], target: Target
) -> list[Times]:
    """The times of all ranks; each has its own items, with its own groups."""
    signal = float(target.timing["semaphore_ns"])
    ends = [[0.0] * len(items) for items in ranks]
    ready = [[0.0] * len(items) for items in ranks]
    changed = True
    while changed:
        changed = False
        for rank, items in enumerate(ranks):
            factor = slow.get(rank, 1.0)
            last: dict[str, int] = {}
            for at, item in enumerate(items):
                begin = ends[rank][last[item.queue]] if item.queue in last else 0.0
                for producer in item.after:
                    if items[producer].queue != item.queue:
                        delay = LATENCY if items[producer].group else signal
                        begin = max(begin, ends[rank][producer] + factor * delay)
                last[item.queue] = at
                ready[rank][at] = begin
                end = begin + factor * item.ns
                if item.group:
                    order = [n for n, each in enumerate(items) if each.group == item.group].index(at)
                    others = [
                        [n for n, each in enumerate(ranks[member]) if each.group == item.group][order]
                        for member in item.group
                    ]
                    end = max(ready[m][n] for m, n in zip(item.group, others, strict=True)) + collective_ns[item.group]
                changed |= end != ends[rank][at]
                ends[rank][at] = end
    made = []
    for rank, items in enumerate(ranks):
        factor = slow.get(rank, 1.0)
        seen = [end + factor * LATENCY * bool(item.group) for item, end in zip(items, ends[rank], strict=True)]
        made.append(Times(ends[rank], ready[rank], max(seen, default=0.0)))
    return made
