"""What each core does of a model's steps, and before which steps the cores meet.

A kernel is cut in two where that pays, by the timing model's word. The cores go on by themselves until one of them
needs what the other one wrote since they last met, or would overwrite what it wrote or reads. All ways to divide the
steps are too many; the best few for the steps so far are followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from nki.graph.link.plan import MemoryPlan
from nki.graph.link.shares import CORES, Shares, StepShare, blocks
from nki.graph.link.steps import Choice, KernelRun, ModelLoop, ModelSteps, Step, ValueCopy, walk
from nki.graph.partition.candidates import Way, Ways, collide
from nki.graph.partition.halves import Divisible
from nki.target.model import Target

_FOLLOWED = 24
"""Ways to divide the steps so far."""

_OPEN = 96
"""Steps after which the cores meet anyway: every step is compared with all those since the last meeting."""

_TRIPS = 8
"""Trips of a loop that are taken into account; how many there will be is not known."""

_DEAR = "the cores would meet more often, for longer than it saves"
_FIRST = "it runs on the first core"


@dataclass(frozen=True, slots=True)
class Division:
    """All steps of a model on two cores.

    Attributes:
        shares: of its steps.
        split: how many kernels both cores run a half of.
        reasons: (kind of kernel, why it is not cut in two) and how often.
        ns: that one core and two take by the times of single kernels.
    """

    shares: Shares
    split: int
    reasons: Mapping[tuple[str, str], int]
    ns: tuple[float, float]

    @property
    def is_divided(self) -> bool:
        """Whether the second core has anything to do by itself."""
        return any(share.programs[1] is not None or share.inner is not None for share in self.shares)


_Open = tuple[tuple[int, int], ...]
"""(atom, way) of what was done since the last meeting."""


class _Division(NamedTuple):
    """Some steps, divided in some way.

    Attributes:
        times: ns of both cores.
        open: what was done since the last meeting.
        share: of the last step; `before` is the state before it.
        meetings: so far.
    """

    times: tuple[float, float]
    open: _Open
    share: StepShare | None = None
    before: _Division | None = None
    meetings: int = 0

    @property
    def cost(self) -> tuple[float, int, float]:
        return max(self.times), self.meetings, sum(self.times)

    @property
    def shares(self) -> Shares:
        """What the cores do of all steps."""
        found, here = [], self
        while here.share is not None and here.before is not None:
            found.append(here.share)
            here = here.before
        return tuple(reversed(found))


class _Atom(NamedTuple):
    """A step with what came of dividing the steps in it.

    Attributes:
        ways: to run it.
        inner: for each way the shares of the steps in it.
        after: for each way what is open after it; None for the way itself.
    """

    ways: Sequence[Way]
    inner: Sequence[tuple[Shares, ...] | None]
    after: Sequence[_Open | None]


def divide(
    steps: ModelSteps, plan: MemoryPlan, cuts: Mapping[int, Divisible], pause: float, target: Target
) -> Division:
    """Divide the steps of a model between two cores.

    Args:
        cuts: of kernels, by the identity of their programs.
        pause: ns that a meeting costs.
    """
    divider = _Divider(Ways(steps, plan, cuts, target), pause)
    best = divider.divided(steps.steps, ())
    pairs = list(_pairs(steps.steps, best.shares))
    split = sum(None not in share.programs for _, share in pairs)
    reasons = Counter(_why(step, share, cuts) for step, share in pairs if _lone(step, share))
    return Division(best.shares, split, dict(reasons), (divider.alone(steps.steps), max(best.times)))


class _Divider:
    def __init__(self, ways: Ways, pause: float) -> None:
        self._ways, self._pause = ways, pause
        self._atoms: list[_Atom] = []
        self._conflicts: dict[tuple[tuple[int, int], tuple[int, int]], bool] = {}

    def divided(self, steps: Sequence[Step], entry: _Open) -> _Division:
        """The best state after steps, of those that were followed to the end.

        Args:
            entry: what was done since the last meeting before the steps.
        """
        states = [_Division((0.0, 0.0), entry)]
        for step in steps:
            number = self._add(self._atom(step))
            found: dict[_Open, _Division] = {}
            for state in states:
                for way in range(len(self._atoms[number].ways)):
                    made = self._next(state, number, way)
                    # What can still collide depends only on what is open: of equal ones the cheapest goes on. The cut
                    # below is a beam: the best division of all may get lost.
                    known = found.get(made.open)
                    if known is None or made.cost < known.cost:
                        found[made.open] = made
            states = sorted(found.values(), key=lambda state: state.cost)[:_FOLLOWED]
        return states[0]

    def _add(self, atom: _Atom) -> int:
        self._atoms.append(atom)
        return len(self._atoms) - 1

    def _next(self, state: _Division, number: int, way: int) -> _Division:
        """One more step."""
        atom, key = self._atoms[number], (number, way)
        made = atom.ways[way]
        meets = made.meets or len(state.open) > _OPEN or any(self._conflict(key, other) for other in state.open)
        first, second = state.times
        if meets:
            first = second = max(state.times) + self._pause
        times = first + made.ns[0], second + made.ns[1]
        after = atom.after[way]
        if after is None and made.leaves:
            after = (key,) if meets else (*state.open, key)
        return _Division(
            times, after or (), StepShare(meets, made.programs, atom.inner[way]), state, state.meetings + meets
        )

    def _conflict(self, one: tuple[int, int], other: tuple[int, int]) -> bool:
        found = self._conflicts.get((one, other))
        if found is None:
            found = collide(self._atoms[one[0]].ways[one[1]], self._atoms[other[0]].ways[other[1]])
            self._conflicts[one, other] = found
        return found

    # --- steps with steps in them

    def _atom(self, step: Step) -> _Atom:
        ways = self._ways.of(step)
        if not isinstance(step, ModelLoop | Choice):
            return _Atom(ways, [None] * len(ways), [None] * len(ways))
        load = self._load(step)
        inner, after, times = self._loop(step, load) if isinstance(step, ModelLoop) else self._choice(step, load)
        both = Way((None, None), times, ways[0].touched, meets=True)
        if any(isinstance(each, KernelRun) and len(each.programs) > 1 for each in walk([step])):
            return _Atom([both], [inner], [after])  # the first core cannot run it alone
        alone = ways[0]._replace(ns=(self._alone(step), 0.0))
        return _Atom([alone, both], [None, inner], [None, after])

    def _load(self, step: ModelLoop | Choice) -> _Open:
        """Both cores load what decides how the step goes on, right after a meeting."""
        way = self._ways.loaded(step.test if isinstance(step, ModelLoop) else step.index, by=CORES)
        return ((self._add(_Atom([way], [None], [None])), 0),)

    def _loop(self, loop: ModelLoop, load: _Open) -> tuple[tuple[Shares, ...], _Open, tuple[float, float]]:
        condition = self.divided(loop.condition, ())
        body = self.divided([*loop.body, *loop.condition], load)
        ns = max(condition.times) + self._pause + _TRIPS * (max(body.times) + self._pause)
        return (condition.shares, body.shares), load, (ns, ns)

    def _choice(self, choice: Choice, load: _Open) -> tuple[tuple[Shares, ...], _Open, tuple[float, float]]:
        branches = [self.divided(branch, load) for branch, _ in choice.branches]
        ns = max(max(branch.times) for branch in branches) + self._pause
        return tuple(branch.shares for branch in branches), load, (ns, ns)

    def _alone(self, step: Step) -> float:
        """ns that a step takes on the first core."""
        if isinstance(step, ModelLoop):
            return self.alone(step.condition) + _TRIPS * self.alone([*step.body, *step.condition])
        if isinstance(step, Choice):
            return max(self.alone(branch) for branch, _ in step.branches)
        return self._ways.of(step)[0].ns[0]

    def alone(self, steps: Sequence[Step]) -> float:
        """ns that steps take on the first core."""
        return sum(map(self._alone, steps))


def _pairs(steps: Sequence[Step], shares: Shares) -> Iterator[tuple[Step, StepShare]]:
    """All steps with their shares, each before those in it."""
    for step, share in zip(steps, shares, strict=True):
        yield step, share
        if share.inner is not None:
            for block, inner in zip(blocks(step), share.inner, strict=True):
                yield from _pairs(block, inner)


def _lone(step: Step, share: StepShare) -> bool:
    """Whether one core runs a step that could be thought of as two halves."""
    return share.inner is None and not (
        isinstance(step, KernelRun) and (len(step.programs) > 1 or None not in share.programs)
    )


def _why(step: Step, share: StepShare, cuts: Mapping[int, Divisible]) -> tuple[str, str]:
    if isinstance(step, KernelRun):
        return step.kind, cuts[id(step.programs[0])].why or _DEAR
    return _KINDS[type(step)], _FIRST if isinstance(step, ValueCopy) else _DEAR


_KINDS: Mapping[type, str] = MappingProxyType({ValueCopy: "copy", ModelLoop: "loop", Choice: "choice"})
"""What the steps that are no kernels are called in reports."""
