"""One segment, event by event: queues start instructions in order when waits, units, ports and operands allow it.

Whoever is ready first gets a unit or a port first, and holds it to its end; ties go by position. A queue goes on when

* an engine's instruction leaves its unit;
* a multiplication may be followed by the loading of the next weights: they reach the array when it has begun
  (trainium_inferentia2_arch.rst, Background LoadStationary), or ended without that feature;
* the trigger of a transfer is over. The transfers of a queue move one after another.

The table of an activation is loaded when the activation could start: the load is an instruction right before it that
waits for the same operands (nki/img/overviews/nki-dma-intro-3.png).
As every system that shares units first come, first served, this one can get faster if something is delayed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from nki.spec.step import UNITS
from nki.target.model import Target
from nki.timing.bandwidth import NEVER, Transfers
from nki.timing.clock import Clock
from nki.timing.hardware import DMA, FIRST_BANK, SCALAR, TENSOR, Hardware
from nki.timing.plan import SegmentPlan
from nki.timing.recipe import TRANSFER, Recipe, indices
from nki.timing.state import CORE, NONE, OPERAND, PORT, TABLE, UNIT, WAIT, SegmentState

_ROUNDING = 1.0 + 1e-9
"""Sums of the same numbers in another order may differ; what is as long as the limit is not given up."""

READY, ARRIVED, MET, CLEAR = range(4)
"""Events: may start; the trigger has reached the DMA; the other core is there; the operands of a transfer are."""


class SegmentRun:
    """The simulation of one segment; its time starts at 0, when all queues are idle.

    Attributes:
        start, end, visible, turn: ns for each position: when it began, left its unit, when others see its result, and
            when its queue was ready for it.
        cause, blocker: what it waited for, see `nki.timing.state.CAUSES`, and which position that was, or -1.
        busy: ns for each unit.
        lost: whether it was given up, because it takes longer than the limit.
        arrived: instructions at a meeting with the other core, with the time; the driver calls `met`.
        joined: transfers whose data wait for other ranks, with the time; see `nki.timing.ranks`.
    """

    def __init__(
        self,
        plan: SegmentPlan,
        hardware: Hardware,
        target: Target,
        state: SegmentState,
        alone: bool = True,
        limit: float = NEVER,
        work: Sequence[float] = (),
    ) -> None:
        """Everything is still to come.

        Args:
            alone: whether no other core is met.
            limit: ns after which nobody wants to know how long it takes; it is given up as soon as that is certain.
            work: ns from the time at which a unit has everything before it to the end, at least; see `work_of`. Needed
                with a limit only.
        """
        count = len(plan.items)
        self.plan, self._hardware, self._alone = plan, hardware, alone
        self.start, self.end, self.visible = [0.0] * count, [0.0] * count, [0.0] * count
        self.turn, self._ready = [0.0] * count, [0.0] * count
        self.cause, self.blocker, self._waited = [NONE] * count, [-1] * count, [-1] * count
        self.busy = [0.0] * len(UNITS)
        self.lost = False
        self._limit = limit * _ROUNDING
        self._work = list(work) if limit < NEVER else None
        self.arrived: list[tuple[float, int]] = []
        self.joined: list[tuple[float, int]] = []
        self._missing = plan.missing.copy()
        self._left = count
        self._free, self._user = [0.0] * len(UNITS), [-1] * len(UNITS)
        ports = FIRST_BANK + hardware.banks
        self._port_free, self._port_user = [0.0] * ports, [-1] * ports
        queues = len(hardware.queues)
        self._done, self._moving = [0.0] * queues, [False] * queues
        self._fresh: list[list[tuple[float, int]]] = [[] for _ in range(queues)]
        self._backlog: list[deque[int]] = [deque() for _ in range(queues)]
        self._kinds = (self._engine, self._matmul, self._trigger)  # by the kind of the recipe
        self._transfers = Transfers()
        self._table = state.table
        self._clock_state = state.clock
        self._clock = Clock(target.throttle, state.clock) if Clock.limits(target.throttle) else None
        self._events = [(0.0, READY, position) for position in range(count) if not self._missing[position]]
        heapify(self._events)

    @property
    def over(self) -> bool:
        """Whether every instruction has completed."""
        return self._left == 0

    @property
    def next(self) -> float:
        """When something happens next; infinity if nothing does."""
        return min(self._events[0][0], self._transfers.next) if self._events else self._transfers.next

    @property
    def ns(self) -> float:
        """The length of the segment, once it is over."""
        return max(self._done)

    def state(self) -> SegmentState:
        """What the next segment starts with, at the end of this one."""
        clock = self._clock.state(self.ns) if self._clock else self._clock_state
        return SegmentState(self._table, clock)

    def advance(self, until: float = NEVER) -> None:
        """Process events up to a time; stops early when an instruction meets the other core, or other ranks."""
        events, transfers = self._events, self._transfers
        recipes, kinds = self.plan.recipes, self._kinds
        while not (self.lost or self.joined):
            # On a tie the transfer ends first, because what waits for it may start at that very time.
            if events and events[0][0] < transfers.next:
                if events[0][0] > until:
                    return
                now, what, position = heappop(events)
                if what == READY:
                    recipe = recipes[position]
                    if recipe.meets and not self._alone:
                        self.arrived.append((now, position))
                        return
                    kinds[recipe.kind](now, position, recipe)
                else:
                    self._other(now, what, position)
            elif transfers.next > until or transfers.next == NEVER:
                break
            else:
                self._moved(*transfers.end())
        if self._left == 0:
            self.busy[DMA] = transfers.busy

    def met(self, now: float, position: int) -> None:
        """Note the other core at a meeting, whose instruction is `position` on this one."""
        heappush(self._events, (now, MET, position))

    def _other(self, now: float, what: int, position: int) -> None:
        if what == ARRIVED:
            queue = self.plan.queue[position]
            if self._moving[queue]:
                self._backlog[queue].append(position)
            else:
                self._begin(now, position)
        elif what == CLEAR:
            self._move(now, position)
        else:
            if now > max(self._ready[position], self.turn[position]):
                self.cause[position] = CORE
            recipe = self.plan.recipes[position]
            self._kinds[recipe.kind](now, position, recipe)

    # --- kinds of instructions

    def _engine(self, now: float, position: int, recipe: Recipe) -> None:
        free, unit, start = self._free, recipe.chain[0][0], now
        if free[unit] > start:
            start = free[unit]
            self._blame(position, UNIT, self._user[unit])
        ports = self.plan.ports[position]
        if ports:
            start = self._at_ports(start, position, ports)
        if self._fresh[self.plan.queue[position]]:
            start = self._operands(start, position)
        if recipe.table is not None and recipe.table != self._table:
            start = self._load_table(start, position, recipe.table)
        if self._work is not None:
            self._look_ahead(start, unit, recipe, self._work)
        end = start + recipe.ns if len(recipe.chain) == 1 else self._chain(start, position, recipe)
        if end > free[unit]:
            free[unit] = end
        self._user[unit] = position
        for port in ports:
            self._port_free[port], self._port_user[port] = end, position
        self.start[position] = start
        self._release(position, end)
        self._complete(position, end)

    def _chain(self, start: float, position: int, recipe: Recipe) -> float:
        """Steps on different units, each when the result of the one before is visible; returns the end of the last."""
        before, end, visible = recipe.chain[0][0], start, start
        for unit, ns, latency in recipe.chain:
            begin = end if unit == before else max(visible, self._free[unit])
            end = begin + ns
            visible = end + latency
            self._free[unit], self._user[unit] = end, position
            before = unit
        return end

    def _matmul(self, now: float, position: int, recipe: Recipe) -> None:
        (_, load, depth), (_, work, _) = recipe.chain
        free = self._free
        begin = max(now + load + depth, free[TENSOR])
        if self._work is not None:
            self._look_ahead(begin, TENSOR, recipe, self._work)
        end = self._clock.multiply(begin, work) if self._clock else begin + work
        self.busy[TENSOR] += end - begin - work
        turn = max(now + load, begin - depth) if self._hardware.background_load else end
        free[TENSOR], self._user[TENSOR] = end, position
        self.start[position] = now
        self._release(position, turn)
        self._complete(position, end)

    def _trigger(self, now: float, position: int, recipe: Recipe) -> None:
        start = now
        if not recipe.chain:
            self.start[position] = start
            self._other(now, ARRIVED, position)
            return
        unit = recipe.chain[0][0]
        if self._free[unit] > start:
            start = self._free[unit]
            self._blame(position, UNIT, self._user[unit])
        self.start[position] = start
        if self._work is not None:
            self._look_ahead(start, unit, recipe, self._work)
        end = self._chain(start, position, recipe)
        self._release(position, end)
        heappush(self._events, (end + recipe.chain[-1][2], ARRIVED, position))

    # --- transfers

    def _begin(self, now: float, position: int, follows: bool = False) -> None:
        """The transfer's turn in its queue has come; it may follow another one at once."""
        queue = self.plan.queue[position]
        self._moving[queue] = True
        ready = now
        if self._fresh[queue]:
            recipe = self.plan.recipes[position]
            if recipe.dynamic:
                ready = self._addressed(now, position, recipe)
            ready = self._operands(ready, position, started=True)
        if ready > now:
            heappush(self._events, (ready, CLEAR, position))
        else:
            self._move(now, position, follows)

    def _move(self, now: float, position: int, follows: bool = False) -> None:
        recipe = self.plan.recipes[position]
        if self._work is not None:
            self.lost |= now + self._work[DMA] > self._limit
            self._work[DMA] -= recipe.work
        ns = recipe.ns - recipe.skew if follows else recipe.ns
        self._transfers.begin(now, position, ns, min(1.0, recipe.demand * recipe.ns / ns) if ns > 0.0 else 0.0)

    def _moved(self, now: float, position: int) -> None:
        queue = self.plan.queue[position]
        self._moving[queue] = False
        if not self.plan.recipes[position].chain:
            self._release(position, now)
        self._complete(position, now)
        if self._backlog[queue]:
            self._begin(now, self._backlog[queue].popleft(), follows=True)

    # --- giving up

    def _look_ahead(self, start: float, unit: int, recipe: Recipe, work: list[float]) -> None:
        """An instruction starts on a unit, which has to do all that is left after that, one after the other."""
        self.lost |= start + work[unit] > self._limit
        for each, ns in recipe.busy:
            work[each] -= ns

    # --- what holds an instruction up

    def _blame(self, position: int, cause: int, blocker: int) -> None:
        self.cause[position], self.blocker[position] = cause, blocker

    def _at_ports(self, start: float, position: int, ports: tuple[int, ...]) -> float:
        for port in ports:
            if self._port_free[port] > start:
                start = self._port_free[port]
                self._blame(position, PORT, self._port_user[port])
        return start

    def _operands(self, start: float, position: int, started: bool = False) -> float:
        """When an instruction can start after the results of its own queue that it reads."""
        plan, queue = self.plan, self.plan.queue[position]
        fresh = self._fresh[queue] = [item for item in self._fresh[queue] if item[0] > start]
        if fresh:
            needs = plan.needs(position)
            for until, producer in fresh:
                if until > start and plan.boxes.meet(plan.makes(producer), needs):
                    start = until
                    if not started:
                        self._blame(position, OPERAND, producer)
        return start

    def _addressed(self, now: float, position: int, recipe: Recipe) -> float:
        """When a transfer whose address is a result of its own queue can move: it is triggered after that result."""
        plan, queue = self.plan, self.plan.queue[position]
        index = indices(plan.items[position].arguments, recipe.touches)
        found = [until for until, producer in self._fresh[queue] if plan.boxes.meet(plan.makes(producer), index)]
        starting = sum(ns for _, ns, _ in recipe.chain) + (recipe.chain[-1][2] if recipe.chain else 0.0)
        return max(found, default=now) + starting if found else now

    def _load_table(self, start: float, position: int, table: str) -> float:
        self._table = table
        self.busy[SCALAR] += self._hardware.table_load
        self._blame(position, TABLE, -1)
        return start + self._hardware.table_load

    # --- what an instruction lets go on

    def _release(self, position: int, now: float) -> None:
        """Turn the queue of an instruction to the next one."""
        after = self.plan.after[position]
        if after >= 0:
            self.turn[after] = now
            missing = self._missing[after] - 1
            self._missing[after] = missing
            if not missing:
                self._may_start(after)

    def _complete(self, position: int, end: float) -> None:
        """Note that an instruction has left its unit; its queue completes instructions in order."""
        plan, done = self.plan, self._done
        recipe, queue = plan.recipes[position], plan.queue[position]
        visible = end + recipe.latency
        if recipe.chained > 0.0:
            self._fresh[queue].append((end + recipe.chained, position))
        if visible < done[queue]:
            visible = done[queue]
        else:
            done[queue] = visible
        self.end[position], self.visible[position] = end, visible
        self._left -= 1
        consumers = plan.consumers[position]
        if consumers is not None:
            seen, ready, missing = visible + recipe.signal, self._ready, self._missing
            for consumer in consumers:
                if seen > ready[consumer]:
                    ready[consumer], self._waited[consumer] = seen, position
                missing[consumer] -= 1
                if not missing[consumer]:
                    self._may_start(consumer)

    def _may_start(self, position: int) -> None:
        """Let an instruction start, for which nothing but time is missing."""
        ready, turn = self._ready[position], self.turn[position]
        if ready > turn:
            self._blame(position, WAIT, self._waited[position])
            turn = ready
        heappush(self._events, (turn, READY, position))


def work_of(recipes: Sequence[Recipe], tails: Sequence[float] = ()) -> list[float]:
    """The least ns for which each unit works, in whatever order, and what at least comes after that.

    Args:
        tails: for each instruction the ns from its end to the end of everything, at least.
    """
    work, after = [0.0] * len(UNITS), [NEVER] * len(UNITS)
    for recipe, tail in zip(recipes, tails or [recipe.latency for recipe in recipes], strict=True):
        for unit, ns in recipe.busy:
            work[unit] += ns
            beyond = tail if unit == recipe.unit else tail + least_ns(recipe)
            after[unit] = min(after[unit], beyond)
        if recipe.kind == TRANSFER:
            work[DMA] += recipe.work
            after[DMA] = min(after[DMA], tail)
    return [ns + beyond if beyond < NEVER else ns for ns, beyond in zip(work, after, strict=True)]


def least_ns(recipe: Recipe) -> float:
    """ns that the last step of an instruction takes at least; a transfer may follow another one at once."""
    return recipe.ns - max(0.0, recipe.skew)
