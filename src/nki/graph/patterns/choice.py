"""Whether a pattern's kernel is worth it: a part of a model with it, and the same part as the graph compiler makes it.

Both are cut out of the model, compiled as the model is, and timed. The part has everything between the values that
the kernel reads and the values that it makes, and what follows them that one kernel might compute. So moves of the
inputs and of the results count. What other operations use as well is a result of both, because it is made anyway.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nki.core.locks import lock
from nki.graph.errors import GraphError
from nki.graph.ir import Module, Op, Value
from nki.graph.passes.rewriter import Rewriter
from nki.graph.patterns.part import Part, followed, part_between, preceded, used_elsewhere
from nki.graph.patterns.pattern import Match, NearMiss
from nki.store.settings import settings

TimeOf = Callable[[Module], float]
"""What a part of a model takes in ns, compiled with the kernels that it would have without the one in question."""


class Times(NamedTuple):
    """What a part of a model takes in ns, see `nki.graph.passes.context.Replaced`."""

    ns: float
    own_ns: float | None

    @property
    def faster(self) -> bool:
        """Whether the kernel is."""
        return self.own_ns is None or self.ns < self.own_ns


class Slower(NearMiss):
    """The kernel of a pattern takes longer than the graph compiler's own."""

    def __init__(self, times: Times, others: int = 0, whole: str = "") -> None:
        assert times.own_ns is not None, "what the graph compiler cannot compute is not faster"
        text = f"slower{whole}: {times.ns / 1000:.2f} µs with the kernel, {times.own_ns / 1000:.2f} µs without"
        if others:
            text += f"; {others} of its values in between are used elsewhere"
        super().__init__(text)
        self.times = times


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a model that a kernel could compute, as it is.

    Attributes:
        own: the part.
        sources: values at which it begins.
        others: how many values in between are used elsewhere.
        unwritten: the operation that is looked at, by its results.
    """

    own: Part
    sources: frozenset[Value]
    others: int
    unwritten: Mapping[Value, Op]

    def with_kernel(self, r: Rewriter, values: Sequence[Value]) -> Part:
        """The part whose wanted values are these instead, which the kernel makes."""
        kept = self.own.results[len(values) :]
        part = part_between(r, self.sources, (*values, *kept), self.unwritten)
        return followed(r, part, next(iter(self.unwritten)))


def cut_out(r: Rewriter, op: Op, found: Match, first: int) -> Cut:
    """The part that makes what a kernel makes of its inputs, and what stays beside that.

    Args:
        op: the operation that is looked at.
        first: the place in the block of the first operation that the matcher made.
    """
    wanted = (*found.outputs, *found.beside)
    made = {result: each for each in r.written[first:] for result in each.results}
    unwritten = dict.fromkeys(op.results, op)
    sources = _before(found.inputs, made)
    own = part_between(r, sources, wanted, unwritten)
    sources = set(preceded(r, sources, own))
    own = part_between(r, sources, wanted, unwritten)
    others = used_elsewhere(r, own)
    sources |= set(others.known)
    own = part_between(r, sources, (*wanted, *others.made), unwritten)
    return Cut(followed(r, own, op.results[0]), frozenset(sources), len(others.made), unwritten)


def _before(inputs: Sequence[Value], made: Mapping[Value, Op]) -> set[Value]:
    """The values of the model that a kernel's inputs are made of."""
    found: set[Value] = set()
    pending = list(inputs)
    while pending:
        value = pending.pop()
        maker = made.get(value)
        if maker is None:
            found.add(value)
        else:
            pending += maker.operands
    return found


def own_time(part: Part, time_of: TimeOf) -> float | None:
    """What a part takes as it is; None if the graph compiler cannot compute it."""
    try:
        return time_of(part.module())
    except GraphError as error:
        if error.code != "graph.unsupported":
            raise
        return None


_LOCK = lock()
_KNOWN: dict[str, Times] = {}
"""Answers by what was asked, for all models of the process; the oldest goes at `_MOST_KNOWN`."""

_MOST_KNOWN = 4096


def remembered(key: str) -> Times | None:
    """What was answered before, in this process or on disk."""
    with _LOCK:
        found = _KNOWN.get(key)
    if found is None and (store := settings().cache()) is not None and (data := store.get(key)) is not None:
        found = Times(*json.loads(data))
        _keep(key, found)
    return found


def remember(key: str, times: Times, lasting: bool) -> None:
    """Keep an answer, on disk if it is the same in every process."""
    _keep(key, times)
    store = settings().cache() if lasting else None
    if store is not None:
        store.put(key, json.dumps(times).encode())


def _keep(key: str, times: Times) -> None:
    with _LOCK:
        while len(_KNOWN) >= _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
        _KNOWN[key] = times
