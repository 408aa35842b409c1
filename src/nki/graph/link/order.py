"""The order of a model's steps: what needs no collective that is under way runs beside it.

Queues take their instructions in order, so that one that waits for a collective keeps back all behind it. Here a step
whose operands are still on their way comes after those that could begin, as far as the predicted times say that it
would wait for them anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from nki.graph.link.steps import Choice, KernelRun, ModelLoop, ModelSteps, Step
from nki.spec.program import Program
from nki.target.model import Target
from nki.timing.cores import spent_by_cores

_RANKS = "ranks"
_ALONE = frozenset({"accumulator"})  # what no other kernel sees
_AHEAD = 2
"""Collectives that may begin before their turn while nobody has read them, since what they bring takes memory."""


def beside_collectives(steps: ModelSteps, target: Target) -> None:
    """Put a model's steps, also those in its loops and branches, in such an order; one without collectives stays."""
    if steps.collectives:
        steps.steps = _Orders(steps, target).block(steps.steps)


class _Orders:
    """Makes orders; times and effects of a kernel are found once."""

    def __init__(self, steps: ModelSteps, target: Target) -> None:
        self._root, self._target = steps.root, target
        self._times: dict[int, float] = {}
        self._effects: dict[int, frozenset[str]] = {}

    def block(self, steps: Sequence[Step]) -> list[Step]:
        """Steps in order. Loops and branches stay where they are, as all queues wait for them."""
        made: list[Step] = []
        run: list[KernelRun] = []
        for step in steps:
            if isinstance(step, KernelRun):
                run.append(step)
                continue
            made += self._ordered(run)
            run = []
            self._within(step)
            made.append(step)
        return made + self._ordered(run)

    def _within(self, step: Step) -> None:
        if isinstance(step, ModelLoop):
            step.condition, step.body = self.block(step.condition), self.block(step.body)
        elif isinstance(step, Choice):
            step.branches = tuple((self.block(inner), made) for inner, made in step.branches)

    def _ordered(self, run: Sequence[KernelRun]) -> list[Step]:
        collective = [_RANKS in self._effects_of(step) for step in run]
        if not any(collective):
            return list(run)
        times = [self._ns(step.programs[0]) for step in run]
        return [run[number] for number in _order(self._needs(run), times, collective)]

    def _needs(self, run: Sequence[KernelRun]) -> list[set[int]]:
        """For each step those before it that it needs: makers of what it reads, and who did something in order."""
        maker: dict[int, int] = {}
        needs: list[set[int]] = []
        last = -1
        for number, step in enumerate(run):
            found = {maker[id(root)] for root in map(self._root, step.reads) if id(root) in maker}
            if self._effects_of(step):
                found |= {last} - {-1}
                last = number
            maker.update((id(self._root(value)), number) for value in step.writes)
            needs.append(found)
        return needs

    def _effects_of(self, step: KernelRun) -> frozenset[str]:
        key = id(step.programs[0])
        if key not in self._effects:
            self._effects[key] = frozenset(_effects(step.programs)) - _ALONE
        return self._effects[key]

    def _ns(self, program: Program) -> float:
        if id(program) not in self._times:
            self._times[id(program)] = spent_by_cores([program], self._target)[0].ns
        return self._times[id(program)]


def _effects(programs: Sequence[Program]) -> Iterator[str]:
    for program in programs:
        for issued in program.body.walk():
            yield from issued.instruction.effects(issued.arguments)


def _order(needs: Sequence[set[int]], times: Sequence[float], collective: Sequence[bool]) -> list[int]:
    """The numbers of steps in a new order, that of the model among steps that could begin at the same time."""
    order = _Order(needs, times, collective)
    while (number := order.next()) >= 0:
        order.take(number)
    return order.made


class _Order:
    """An order while it is made, as time goes by.

    Attributes:
        made: the steps so far.
    """

    def __init__(self, needs: Sequence[set[int]], times: Sequence[float], collective: Sequence[bool]) -> None:
        self._needs, self._times, self._collective = needs, times, collective
        self._users: list[set[int]] = [set() for _ in needs]
        for number, found in enumerate(needs):
            for each in found:
                self._users[each].add(number)
        self._missing = [len(found) for found in needs]
        self._done = [0.0] * len(needs)
        self._late = [(0.0, number) for number, count in enumerate(self._missing) if not count]
        self._ready: tuple[list[int], list[int]] = ([], [])  # kernels, and collectives
        self._now = self._wire = 0.0
        self._open: set[int] = set()  # collectives that somebody still has to read
        self._taken: set[int] = set()
        self._left = list(range(len(needs)))[::-1]
        self.made: list[int] = []

    def next(self) -> int:
        """The step that comes next; -1 if there is none."""
        while True:
            while self._late and self._late[0][0] <= self._now:
                number = heappop(self._late)[1]
                heappush(self._ready[self._collective[number]], number)
            kernels, collectives = self._ready
            if collectives and (len(self._open) < _AHEAD or collectives[0] == self._first()):
                return heappop(collectives)
            if kernels:
                return heappop(kernels)
            if not self._late:
                return heappop(collectives) if collectives else -1
            self._now = self._late[0][0]

    def take(self, number: int) -> None:
        """Let a step run, and those that need it become ready when it is done."""
        self.made.append(number)
        if self._collective[number]:
            self._done[number] = self._wire = max(self._now, self._wire) + self._times[number]
            self._open.add(number)
        else:
            self._done[number] = self._now = self._now + self._times[number]
        self._note(number)
        for user in self._users[number]:
            self._missing[user] -= 1
            if not self._missing[user]:
                heappush(self._late, (max(self._done[each] for each in self._needs[user]), user))

    def _note(self, number: int) -> None:
        """Note that a step runs: collectives that nobody else has to read are over."""
        self._taken.add(number)
        self._open = {each for each in self._open if not self._users[each] <= self._taken}

    def _first(self) -> int:
        """The first step of the model that has not run."""
        while self._left and self._left[-1] in self._taken:
            self._left.pop()
        return self._left[-1] if self._left else -1
