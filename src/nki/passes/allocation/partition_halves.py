"""Two tensors side by side: where SBUF is too small, some of those with few partitions begin in the middle of it.

A tensor of up to 64 partitions leaves the other half of its bytes empty. Engines may start at partition 64 as well as
at 0 (trainium_inferentia2_arch.rst, "start partition"), so that two such tensors fit where one did: published kernels
with tiles of 64 partitions and more than half of SBUF in each of them (nki-library, cross entropy) count on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.analysis.liveness import liveness
from nki.passes.analysis.memory_demand import Demand, demand, memories
from nki.passes.analysis.pressure import load
from nki.passes.context import Context
from nki.passes.editing.rewrite import renamed
from nki.spec.program import Issued, Program
from nki.spec.queue import queue_class
from nki.spec.signature import Key, Seen, add
from nki.spec.verify import verify
from nki.target.model import Target

_ENGINES = ("vector", "scalar")
_MOST = 64
"""Groups of tensors that are moved one after the other."""

Group = tuple[Buffer, ...]


def upper_half(program: Program, context: Context) -> frozenset[int]:
    """Ids of tensors that begin in the middle of the partitions, so that no more is live at once than there is.

    Empty if nothing has to or can be done. Only DMA, Vector and Scalar may use such a tensor, at static addresses, in
    instructions that break no rule with it where it lies then. Tensors that one instruction reads together stay
    together, because Vector reads two tiles of SBUF from the same partition on.
    """
    target, half = context.target, context.target.partitions // 2
    live = liveness(program)
    needs = demand(next(m for m in memories(target) if m.region is MemoryRegion.sbuf), live.buffers)
    small = {each.buffer.id: each.buffer for each in needs.automatic if each.buffer.partitions <= half}
    limit = needs.memory.limit
    if not small or live.positions == 0 or _most(needs, live.positions) <= limit:
        return frozenset()
    if _most(replace(needs, automatic=_without(needs, small)), live.positions) > limit:
        return frozenset()
    groups = _groups(program, small)
    movable = _Movable(target, context.options.disabled_rules, half).of(program, groups)
    return _chosen(replace(needs, half=half), movable, live.positions)


def _most(needs: Demand, positions: int) -> int:
    return int(load(needs.items, needs.fixed, positions).max())


def _without(needs: Demand, buffers: Mapping[int, Buffer]) -> tuple[Any, ...]:
    return tuple(each for each in needs.automatic if each.buffer.id not in buffers)


# --- which tensors go together


def _groups(program: Program, small: Mapping[int, Buffer]) -> list[Group]:
    """The tensors, those together that some instruction reads together."""
    leader = {number: number for number in small}

    def first(number: int) -> int:
        while leader[number] != number:
            # Halve the path on the way: many tensors in one group would make long chains.
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    for issued in program.body.walk():
        read = [buffer.id for buffer in _read(issued) if buffer.id in small]
        for other in read[1:]:
            leader[first(other)] = first(read[0])
    members: dict[int, list[Buffer]] = {}
    for number, buffer in small.items():
        members.setdefault(first(number), []).append(buffer)
    return [tuple(group) for group in members.values()]


# --- which of them may move


class _Movable:
    """Whether instructions may use a group in the upper half; those with one signature are looked at once."""

    def __init__(self, target: Target, disabled: frozenset[str], half: int) -> None:
        self._target = target
        self._disabled = disabled
        self._half = half
        self._known: dict[Key, bool] = {}

    def of(self, program: Program, groups: Sequence[Group]) -> list[Group]:
        """The groups that no instruction keeps where they are."""
        group_of = {buffer.id: number for number, group in enumerate(groups) for buffer in group}
        there = [{buffer.id: replace(buffer, address=(self._half, 0)) for buffer in group} for group in groups]
        fixed: set[int] = set()
        for issued in program.body.walk():
            used = {group_of[number] for number in _used(issued) if number in group_of}
            for number in sorted(used - fixed):
                if not self._allowed(issued, there[number]):
                    fixed.add(number)
        return [group for number, group in enumerate(groups) if number not in fixed]

    def _allowed(self, issued: Issued, names: dict[int, Buffer]) -> bool:
        if any(view.dynamic is not None for _, view in issued.views()):
            return False
        if issued.instruction.name != "dma_copy" and queue_class(issued) not in _ENGINES:
            return False
        if len({buffer.id in names for buffer in _read(issued)}) > 1:
            return False
        seen: Seen = {}
        key: list[Any] = [issued.instruction, issued.engine]
        if not all([add(key, value, seen) for value in issued.arguments]):
            return self._asked(issued, names)
        moved = sorted(seen[buffer][0] for buffer in seen if buffer.id in names)
        signature = (*key, *moved)
        if signature not in self._known:
            self._known[signature] = self._asked(issued, names)
        return self._known[signature]

    def _asked(self, issued: Issued, names: dict[int, Buffer]) -> bool:
        return self._broken(renamed(issued, names)) <= self._broken(issued)

    def _broken(self, issued: Issued) -> set[str]:
        return {finding.code for finding in verify(issued, self._target, self._disabled)}


def _read(issued: Issued) -> Iterable[Buffer]:
    """Tensors in SBUF that an instruction reads."""
    operands = issued.instruction.operands
    return (v.buffer for name, v in issued.views() if operands[name].reads and v.buffer.region is MemoryRegion.sbuf)


def _used(issued: Issued) -> Iterable[int]:
    for _, view in issued.views():
        yield view.buffer.id
        if view.dynamic is not None and isinstance(view.dynamic.indices, View):
            yield view.dynamic.indices.buffer.id


# --- which of these do


def _chosen(needs: Demand, movable: Sequence[Group], positions: int) -> frozenset[int]:
    """Groups that are moved until everything fits; empty if that does not help."""
    spans = {each.buffer.id: each for each in needs.automatic}
    left, moved = list(movable), set[int]()
    for _ in range(_MOST):
        now = replace(needs, upper=frozenset(moved))
        lower = _lower(now, positions)
        worst = int(lower.argmax())
        if int(lower[worst]) <= needs.memory.limit:
            return frozenset(moved) if _most(now, positions) <= needs.memory.limit else frozenset()
        at = [(_size(needs, spans, group, worst), group) for group in left]
        size, group = max(at, key=lambda each: each[0], default=(0, ()))
        if not size:
            return frozenset()
        left.remove(group)
        trial = frozenset(moved | {buffer.id for buffer in group})
        if _upper(replace(needs, upper=trial), positions) <= needs.memory.limit:
            moved |= trial
    return frozenset()


def _lower(needs: Demand, positions: int) -> np.ndarray:
    """Bytes that are live at each position in the fullest partition of the lower half."""
    items = [item for item in needs.items if item.start < needs.half]
    return load(items, [each for each in needs.fixed if each.partition < needs.half], positions)


def _upper(needs: Demand, positions: int) -> int:
    """The most bytes that are live at once in the upper half."""
    items = [item for item in needs.items if item.start + item.partitions > needs.half]
    fixed = [each for each in needs.fixed if each.partition_end > needs.half]
    return int(
        load(items, [each._replace(partition=max(each.partition, needs.half)) for each in fixed], positions).max()
    )


def _size(needs: Demand, spans: Mapping[int, Any], group: Group, position: int) -> int:
    """Bytes that a group has in use at a position."""
    live = (spans[buffer.id] for buffer in group)
    return sum(needs.memory.size(each.buffer) for each in live if each.first <= position <= each.last)
