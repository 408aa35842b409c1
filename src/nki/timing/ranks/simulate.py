"""All classes of ranks side by side: programs and messages begin when they can, and meetings when all are there.

Cores share nothing but meetings. So a core that waits for none runs freely to its next one. If all of them wait, the
one whose next event is first goes on, up to the next event of the others: nothing that they do can reach it before.
"""

from __future__ import annotations

from collections import defaultdict, deque
from heapq import heappop, heappush

from nki.core.errors import LaunchError
from nki.core.source import UNKNOWN
from nki.spec.program import Program
from nki.target.model import Target
from nki.timing.bandwidth import NEVER
from nki.timing.plan import TimingPlanner
from nki.timing.ranks.classes import Classes, Meeting, Participant
from nki.timing.ranks.core import RankCore
from nki.timing.ranks.past import Arrival, Call, ClassPast, Met, Ran
from nki.timing.ranks.step import Message, Run, Step


def simulate(step: Step, classes: Classes, target: Target) -> list[ClassPast]:
    """What each class does.

    Raises:
        LaunchError: ranks wait for each other in a circle (``step.deadlock``).
        VerificationError: as `nki.timing.cores.timelines`.
    """
    return _Simulation(step, classes, target).run()


class _Simulation:
    """A step on its way."""

    def __init__(self, step: Step, classes: Classes, target: Target) -> None:
        self._target, self._meetings = target, classes.meetings
        self._classes = [
            ClassPast(number, step.programs[step.of[ranks[0]]], step.slowdown.get(ranks[0], 1.0))
            for number, ranks in enumerate(classes.members)
        ]
        self._places: dict[tuple[int, int], list[Participant]] = defaultdict(list)
        for participant in self._meetings:
            self._places[participant[0], participant[1][0]].append(participant)
        self._again: dict[tuple[object, ...], Ran] = {}
        self._arrivals: dict[tuple[int, int], dict[Call, Arrival]] = defaultdict(dict)
        self._of: dict[RankCore, tuple[ClassPast, int]] = {}
        self._plans: dict[int, TimingPlanner] = {}
        self._awake: deque[ClassPast] = deque()
        self._free: dict[RankCore, None] = {}
        self._held: list[tuple[float, int, RankCore]] = []
        self._pushes = 0

    def run(self) -> list[ClassPast]:
        """To the end of all ranks."""
        self._awake.extend(self._classes)
        while self._awake or self._of:
            while self._awake:
                self._progress(self._awake.popleft())
            if self._of:
                core = self._free.popitem()[0] if self._free else self._first()
                core.advance(NEVER if not core.pending else self._others(core))
                self._look(core)
        if any(None in each.tasks for each in self._classes):
            raise self._deadlock()
        return self._classes

    # --- whose turn it is

    def _queue(self, core: RankCore) -> None:
        if not core.pending:
            self._free[core] = None
        else:
            self._pushes += 1
            heappush(self._held, (core.next, self._pushes, core))

    def _first(self) -> RankCore:
        """The core whose next event comes first, of those that wait for a meeting."""
        at, core = self._peek(None)
        if core is None or at == NEVER:
            raise self._deadlock()
        heappop(self._held)
        return core

    def _others(self, core: RankCore) -> float:
        """The next event of all other cores."""
        return self._peek(core)[0]

    def _peek(self, but: RankCore | None) -> tuple[float, RankCore | None]:
        """The first entry that still holds; a core that went on since has another one."""
        while self._held:
            at, _, core = self._held[0]
            if core is not but and core.pending and not core.over and at == core.next:
                return at, core
            heappop(self._held)
        return NEVER, None

    # --- what a core has come to

    def _look(self, core: RankCore) -> None:
        past, number = self._of[core]
        if not core.pending and not core.over and core.next == NEVER:
            core.go_on()  # which says why nothing happens any more
        if core.waiting and all(each.waiting for each in past.cores):
            now = max(each.true(each.base + each.waiting[0][0]) for each in past.cores)
            for each in past.cores:
                each.meet(now)
                if each is not core:
                    self._queue(each)
        for joined in core.joining:
            call = past.call((past.running, number, joined.position))
            self._join(call, Arrival(joined.at, core, joined))
        core.joining.clear()
        if all(each.over for each in past.cores):
            self._ran(past)
        elif not core.over:
            self._queue(core)

    def _join(self, call: Call, arrival: Arrival) -> None:
        """Note a call; if it is the last one of its meeting, that takes place."""
        number, place, times = call
        meeting = self._meetings[number, place]
        arrivals = self._arrivals[meeting.number, times]
        arrivals[call] = arrival
        if len(arrivals) < len(meeting.participants):
            return
        del self._arrivals[meeting.number, times]
        begun = max(each.at for each in arrivals.values())
        met = Met(meeting, arrivals, begun, begun + meeting.ns)
        for each, there in arrivals.items():
            past = self._classes[each[0]]
            if there.core is None or there.joined is None:
                past.tasks[each[1][0]] = met
                self._awake.append(past)
            else:
                past.met[each] = met
                there.core.gathered(there.joined, begun, meeting.ns)
                self._queue(there.core)

    # --- tasks

    def _progress(self, past: ClassPast) -> None:
        """Begin all tasks that can begin."""
        for number, task in enumerate(past.program.tasks):
            if past.tasks[number] is not None or past.ready(number) == NEVER:
                continue
            if isinstance(task, Run):
                if not past.cores:
                    self._begin(past, number, task, past.ready(number))
            elif number not in past.said:
                past.said.add(number)
                self._say(past, number, task, past.ready(number))

    def _say(self, past: ClassPast, number: int, task: Message, at: float) -> None:
        place = (number, 0, -1)
        if (past.number, place) in self._meetings:
            self._join(past.call(place), Arrival(at))
        else:
            past.tasks[number] = Met(Meeting(-1, (), 0.0), {}, at, at)

    def _begin(self, past: ClassPast, number: int, task: Run, start: float) -> None:
        key = self._alone(past, number, task)
        known = None if key is None else self._again.get(key)
        if known is not None:
            past.tasks[number] = Ran(start, start + known.end - known.start, known.cores, known.met)
            return
        places = self._places[past.number, number]
        past.running, past.met = number, {}
        past.cores = tuple(
            RankCore(
                self._plan(program),
                self._target,
                start,
                past.slow,
                len(task.programs) == 1,
                frozenset(place[2] for _, place in places if place[1] == core),
            )
            for core, program in enumerate(task.programs)
        )
        for core, each in enumerate(past.cores):
            self._of[each] = past, core
            if not each.over:
                self._queue(each)
        if all(each.over for each in past.cores):
            self._ran(past)

    def _plan(self, program: Program) -> TimingPlanner:
        found = self._plans.get(id(program))
        if found is None:
            found = self._plans[id(program)] = TimingPlanner(program, self._target, None)
        return found

    def _alone(self, past: ClassPast, number: int, task: Run) -> tuple[object, ...] | None:
        """What a run depends on if it meets nobody but ranks of its class at the same places; else None."""
        meetings = []
        for participant in self._places[past.number, number]:
            meeting = self._meetings[participant]
            if any(other[0] != past.number or other[1][::2] != participant[1][::2] for other in meeting.participants):
                return None
            meetings.append((participant[1][1:], meeting.ns))
        return (*map(id, task.programs), past.slow, *sorted(meetings))

    def _ran(self, past: ClassPast) -> None:
        """A program is over on all cores of a class."""
        task = past.program.tasks[past.running]
        start, end = past.cores[0].begun, max(core.end for core in past.cores)
        made = past.tasks[past.running] = Ran(start, end, past.cores, past.met)
        key = self._alone(past, past.running, task) if isinstance(task, Run) else None
        if key is not None:
            self._again[key] = made
        for core in past.cores:
            del self._of[core]
        past.cores = ()
        self._awake.append(past)

    def _deadlock(self) -> LaunchError:
        waiting = [call for arrivals in self._arrivals.values() for call in arrivals]
        shown = ", ".join(f"class {number} in task {place[0]}" for number, place, _ in waiting[:4])
        return LaunchError(
            "step.deadlock",
            f"ranks wait for each other: {shown or 'no task can begin'}",
            rule="ranks come to the same meetings in the same order",
            fix="correct the order of collectives and messages",
            location=UNKNOWN,
        )
