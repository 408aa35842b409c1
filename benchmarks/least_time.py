"""A time that no order, queues and addresses of a program without loops can beat under the costs of the model.

`nki.timing.bound.lower_bound` asks how long the busiest unit works, and how long the longest chain is. But a unit
cannot begin before its first operands are there, and when it is done something is left to do with its last result. So
of every set of instructions on a unit: the earliest start of one of them, the work of all, and the least that follows
the end of one of them. That is a bound, because the unit does one thing at a time: the work of the set lies between the
first start and the last end, whatever the order, and also if the unit could interrupt its work (the transfers of a core
share their rate, which is such a unit). Jackson's preemptive schedule gives the largest bound of all sets of a unit.

The same holds for what precedes an instruction and for what follows it: before a sum of eight products all of them have
been multiplied. That raises starts and ends, from producer to consumer and back. Of all work of a unit two things are
known beside: the clock of the Tensor engine is low when it begins (`nki.timing.clock`), and every activation table but
the first is loaded while the engine stands still. A port that engines share is a unit as well. The banks of PSUM, the
sizes of memories and the other core are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from nki.spec.program import Issued
from nki.spec.queue import queue_class
from nki.spec.step import UNITS
from nki.target.model import Target
from nki.timing.clock import Clock
from nki.timing.hardware import DMA, FIRST_BANK, SCALAR, TENSOR, hardware_of
from nki.timing.recipe import MATMUL, TRANSFER, Recipe, Recipes

Needs = Sequence[Sequence[int]]
"""For each instruction the earlier positions that must complete before it starts."""


class _Part(NamedTuple):
    """The work of an instruction on one unit, in ns.

    Attributes:
        position: of the instruction.
        before: from its start to that of the work.
        work: that the unit does.
        after: from the end of the work to the end of the last work of the instruction.
    """

    position: int
    before: float
    work: float
    after: float


def least_time(items: Sequence[Issued], needs: Needs, target: Target) -> float:
    """ns that instructions take at least from the start of a program to its end.

    Args:
        items: all instructions, in an order in which producers come first.
        needs: as from `nki.passes.analysis.dependences`.
        target: whose costs count.
    """
    hardware = hardware_of(target)
    recipes = Recipes(target, hardware)
    found = _Times(items, [recipes.of(issued) for issued in items], needs)
    best = found.chain()
    for unit, parts in enumerate(found.parts):
        if parts:
            begins = [found.head[part.position] + part.before for part in parts]
            tails = [part.after + found.tail[part.position] for part in parts]
            best = max(best, _preemptive(begins, [part.work for part in parts], tails))
            more = _slow(unit, parts, found.recipes, target, hardware.table_load)
            best = max(best, min(begins) + sum(part.work for part in parts) + more + min(tails))
    return best


def _slow(unit: int, parts: Sequence[_Part], recipes: Sequence[Recipe], target: Target, table_load: float) -> float:
    """ns that a unit certainly stands still or runs slowly between its first start and its last end."""
    if unit == TENSOR and Clock.limits(target.throttle):
        rate = target.throttle.start_utilization
        return (1.0 - rate) * min(target.throttle.ramp_ns, sum(part.work for part in parts) / rate)
    if unit == SCALAR:
        return table_load * max(0, len({recipes[p.position].table for p in parts} - {None}) - 1)
    return 0.0


class _Times:
    """Least times of instructions.

    Attributes:
        parts: for each unit, and for each port behind them, the work on it.
        head: ns from the start of the program to that of an instruction; of a transfer to that of its trigger.
        tail: ns from the end of the last work of an instruction to the end of the program.
    """

    def __init__(self, items: Sequence[Issued], recipes: Sequence[Recipe], needs: Needs) -> None:
        self.recipes = recipes
        self._needs = needs
        self._queues = [queue_class(issued) for issued in items]
        self.parts: list[list[_Part]] = [[] for _ in range(len(UNITS) + FIRST_BANK)]
        self._span = [0.0] * len(items)
        for position, recipe in enumerate(recipes):
            self._split(position, recipe)
        self._before = _ancestors(needs)
        self.head, self.tail = [0.0] * len(items), [recipe.latency for recipe in recipes]
        self._heads()
        self._tails()

    def _split(self, position: int, recipe: Recipe) -> None:
        """The work of one instruction; steps on another unit begin when the result of the one before is visible.

        Any transfer might follow another one of its queue at once, which makes it shorter.
        """
        steps = list(recipe.chain)
        if recipe.kind == TRANSFER:
            steps.append((DMA, recipe.ns - recipe.skew, recipe.latency))
        at, found, last = 0.0, [], (steps[0][0], 0.0)
        for unit, ns, latency in steps:
            at += last[1] if unit != last[0] else 0.0
            found.append((unit, at, ns))
            at += ns
            last = unit, latency
        self._span[position] = at
        for unit, before, ns in found:
            work = min(ns, recipe.ns * recipe.demand) if unit == DMA else ns
            self.parts[unit].append(_Part(position, before, work, at - before - ns))
        for port in recipe.ports:
            self.parts[len(UNITS) + port].append(_Part(position, 0.0, at, 0.0))

    def _gap(self, producer: int, consumer: int) -> float:
        """ns at least from the end of the last work of a producer to the start of a consumer; negative if it overlaps.

        A transfer may be triggered before the one that it follows has ended, but moves after it: `_gap` is then that
        from the one end to the other's moving, less what comes before that.
        """
        one, other = self.recipes[producer], self.recipes[consumer]
        if one.kind == TRANSFER == other.kind:
            return other.ns - other.skew - self._span[consumer]
        if self._queues[producer] != self._queues[consumer]:
            return one.latency + one.signal
        return one.chain[0][1] - self._span[producer] if one.kind == MATMUL else 0.0

    def _heads(self) -> None:
        works, begins, ends = self._arrays()
        for position, producers in enumerate(self._needs):
            head = 0.0
            for producer in producers:
                head = max(head, self.head[producer] + self._span[producer] + self._gap(producer, position))
            near = min((self._gap(producer, position) for producer in producers), default=0.0)
            least = np.minimum(self._leaving, near) if producers else self._leaving
            mine = self._before[position]
            for unit, work in enumerate(works):
                chosen = mine & (work > 0.0)
                if chosen.any():
                    start = (np.array(self.head)[chosen] + begins[unit][chosen]).min()
                    head = max(head, start + work[chosen].sum() + (ends[unit][chosen] + least[chosen]).min())
            self.head[position] = float(head)

    def _tails(self) -> None:
        works, begins, ends = self._arrays()
        consumers: list[list[int]] = [[] for _ in self._needs]
        for position, producers in enumerate(self._needs):
            for producer in producers:
                consumers[producer].append(position)
        after = self._before.T.copy()
        for position in reversed(range(len(consumers))):
            tail = self.tail[position]
            gaps = [self._gap(position, consumer) for consumer in consumers[position]]
            for consumer, gap in zip(consumers[position], gaps, strict=True):
                tail = max(tail, gap + self._span[consumer] + self.tail[consumer])
            for unit, work in enumerate(works):
                chosen = after[position] & (work > 0.0)
                if chosen.any():
                    last = (ends[unit][chosen] + np.array(self.tail)[chosen]).min()
                    first = (begins[unit][chosen] + np.minimum(self._coming, min(gaps))[chosen]).min()
                    tail = max(tail, first + work[chosen].sum() + last)
            self.tail[position] = float(tail)

    def _arrays(self) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Work on each unit, what is before and what is after it, by position; sets the least gaps at both ends."""
        count = len(self._needs)
        works, begins, ends = ([np.zeros(count) for _ in self.parts] for _ in range(3))
        for unit, parts in enumerate(self.parts):
            for part in parts:
                works[unit][part.position] = part.work
                begins[unit][part.position], ends[unit][part.position] = part.before, part.after
        self._leaving, self._coming = np.full(count, np.inf), np.full(count, np.inf)
        for position, producers in enumerate(self._needs):
            for producer in producers:
                gap = self._gap(producer, position)
                self._leaving[producer] = min(self._leaving[producer], gap)
                self._coming[position] = min(self._coming[position], gap)
        return works, begins, ends

    def chain(self) -> float:
        """ns of the longest chain, with what heads and tails know of sets."""
        return max((h + s + t for h, s, t in zip(self.head, self._span, self.tail, strict=True)), default=0.0)


def _ancestors(needs: Needs) -> np.ndarray:
    """For each instruction all that precede it."""
    found = np.zeros((len(needs), len(needs)), bool)
    for position, producers in enumerate(needs):
        for producer in producers:
            found[position] |= found[producer]
            found[position, producer] = True
    return found


def _preemptive(begins: Sequence[float], works: Sequence[float], tails: Sequence[float]) -> float:
    """The end of Jackson's schedule: at any time the work with the longest tail, which may interrupt another."""
    coming = sorted(zip(begins, works, tails, strict=True))
    ready: list[tuple[float, float]] = []
    now, end, at = 0.0, 0.0, 0
    while at < len(coming) or ready:
        if not ready:
            now = max(now, coming[at][0])
        while at < len(coming) and coming[at][0] <= now:
            heappush(ready, (-coming[at][2], coming[at][1]))
            at += 1
        tail, work = heappop(ready)
        until = coming[at][0] if at < len(coming) else float("inf")
        done = min(work, until - now)
        now += done
        if done < work:
            heappush(ready, (tail, work - done))
        else:
            end = max(end, now - tail)
    return end
