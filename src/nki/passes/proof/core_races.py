"""Conflicts between two cores of one kernel: accesses to the same device memory that no meeting of the cores orders.

All that a core does to device memory before a rendezvous (`nisa.core_barrier`, `nisa.sendrecv`, ...) happens before
what the other one does after it; `happens_before` proves that for each core alone. So two accesses of different cores
can only collide if both cores are on their way from one rendezvous to the same next one.

Accesses at dynamic addresses are left out: cores usually take different parts of a tensor that way, and a false alarm
would refuse a correct kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from nki.core.tensor import MemoryRegion
from nki.passes.analysis.footprints import Accesses, Footprint, Space, Touched
from nki.passes.analysis.loop_views import spread_out
from nki.passes.proof.conflicts import Conflict, Conflicts, Doer
from nki.passes.proof.faults import Race, broken, unordered
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop
from nki.target.model import Target

_MOST = 20
_MOST_MEETINGS = 1 << 16
_START, _END = 0, -1

_Accessed = tuple[list[Footprint], list[Footprint]]
_Shape = tuple[Any, ...]
_Stretch = tuple[int, int]
"""From one rendezvous to the next, both by number."""

_State = dict[int, dict[int, None]]
"""At a place of a program: for each rendezvous that may be the last one, the instructions that may have run since."""


@dataclass(slots=True)
class _CoreAccesses:
    """What one core does to shared memory between its meetings; 0 is the start, -1 the end.

    Attributes:
        instructions: in the order of the walk.
        accesses: shared bytes that each of them reads, and writes.
        meetings: the rendezvous, in the order of the walk; number k is ``meetings[k - 1]``.
        stretches: for each way from a rendezvous to the next one the instructions on it that access shared memory.
        shape: the number of each rendezvous, and a tuple of trips and shape for each loop that has some.
    """

    instructions: list[Issued] = field(default_factory=list)
    accesses: list[_Accessed] = field(default_factory=list)
    meetings: list[Issued] = field(default_factory=list)
    stretches: dict[_Stretch, dict[int, None]] = field(default_factory=dict)
    shape: _Shape = ()


def between_cores(programs: Sequence[Program], target: Target) -> list[Race]:
    """Conflicting accesses of two cores that no rendezvous orders, in programs as traced or as scheduled."""
    races: list[Race] = []
    for at, first in enumerate(programs):
        for second in programs[at + 1 :]:
            races += _between(first, second, target)
    return races


def _between(first: Program, second: Program, target: Target) -> list[Race]:
    cores = (_Surveyor(first, target).core, _Surveyor(second, target).core)
    pairs, races = _pairs(cores, first, second)
    races += _unlike(cores)
    found: dict[tuple[int, int], Race] = {}
    for one, two in pairs:
        for conflict in _collisions(cores, cores[0].stretches.get(one, {}), cores[1].stretches.get(two, {})):
            a, b = cores[0].instructions[conflict.earlier], cores[1].instructions[~conflict.later]
            found.setdefault((conflict.earlier, conflict.later), unordered(a, b, conflict, first.core, second.core))
        if len(found) > _MOST:
            break
    return races + list(found.values())


def _collisions(
    cores: tuple[_CoreAccesses, _CoreAccesses], mine: Iterable[int], others: Iterable[int]
) -> list[Conflict]:
    """Conflicts between some instructions of the first core and some of the second, which are called ~position."""
    accesses = [(cores[0].accesses[i], 0, i) for i in mine] + [(cores[1].accesses[i], 1, i) for i in others]
    written = {f.space for (_, writes), _, _ in accesses for f in writes}
    memory = Conflicts(f for (reads, writes), _, _ in accesses for f in (*reads, *writes) if f.space in written)
    found: list[Conflict] = []
    for step, ((reads, writes), core, position) in enumerate(accesses):
        doer = Doer(~position if core else position, core, step + 1)
        clock = (step, 0) if core == 0 else (0, step)  # each core in its own order, and no word of the other
        for footprint in reads:
            if footprint.static and footprint.space in written:
                memory.read(doer, footprint, clock, found)
        for footprint in writes:
            if footprint.static:
                memory.write(doer, footprint, clock, found)
    return found


def _pairs(
    cores: tuple[_CoreAccesses, _CoreAccesses], first: Program, second: Program
) -> tuple[list[tuple[_Stretch, _Stretch]], list[Race]]:
    """Which stretches of both cores run at the same time, and what is wrong if the cores cannot always meet."""
    one, two = cores
    if one.shape == two.shape:
        return [(stretch, stretch) for stretch in one.stretches], []
    a, b = _sequence(one.shape), _sequence(two.shape)
    if a is None or b is None:
        return _reachable(one, two), []
    ways = [list(pairwise([_START, *sequence, _END])) for sequence in (a, b)]
    pairs = list(dict.fromkeys(zip(*ways, strict=False)))
    if len(a) == len(b):
        return pairs, []
    met = min(len(a), len(b))
    longer = (one, a, first) if len(a) > met else (two, b, second)
    text = f"the other core meets {met} times in all, and this is meeting {met + 1}"
    return pairs, [broken("meeting", longer[0].meetings[longer[1][met] - 1], None, longer[2].core, text)]


def _unlike(cores: tuple[_CoreAccesses, _CoreAccesses]) -> list[Race]:
    """Meetings of both cores that do not fit each other: a barrier and a sendrecv, or sendrecvs of two sizes."""
    one, two = cores
    if one.shape == two.shape:
        pairs = [(number, number) for number in range(1, len(one.meetings) + 1)]
    else:
        a, b = _sequence(one.shape), _sequence(two.shape)
        pairs = [] if a is None or b is None else list(zip(a, b, strict=False))
    for mine, other in pairs:
        first, second = one.meetings[mine - 1], two.meetings[other - 1]
        wrong = _misfit(first, second)
        if wrong:
            return [broken("meeting", second, None, 1, wrong)]  # later ones meet others than they should
    return []


def _misfit(first: Issued, second: Issued) -> str:
    """Why two meetings do not belong together; empty if they do."""
    names = [each.instruction.name for each in (first, second)]
    where = f"core 0 is at {first.instruction.label} at {first.location}"
    if ("sendrecv" in names) and names[0] != names[1]:
        return f"this meets another instruction: {where}"
    if names[0] != "sendrecv":
        return ""
    a, b = first.arguments, second.arguments
    if a.pipe_id != b.pipe_id:
        return f"pipe_id is {b.pipe_id} here and {a.pipe_id} on the other core: {where}"
    for sent, taken in ((a.src, b.dst), (b.src, a.dst)):
        if (sent.shape, sent.dtype) != (taken.shape, taken.dtype):
            return f"one core sends {sent.describe()}, and the other one receives {taken.describe()}: {where}"
    return ""


def _sequence(shape: _Shape) -> list[int] | None:
    """Numbers of the meetings in the order in which they happen, if that is known and not too long."""
    found: list[int] = []
    for item in shape:
        if isinstance(item, int):
            found.append(item)
            continue
        trips, inner = item[0], _sequence(item[1:])
        if trips is None or inner is None or len(inner) * trips > _MOST_MEETINGS:
            return None
        found += inner * trips
    return found


def _reachable(one: _CoreAccesses, two: _CoreAccesses) -> list[tuple[_Stretch, _Stretch]]:
    """Pairs of stretches that may run at the same time if nothing is known of how often loops run."""
    ways: list[dict[int, list[int]]] = [{}, {}]
    for core, way in zip((one, two), ways, strict=True):
        for begin, end in core.stretches:
            way.setdefault(begin, []).append(end)
    seen = {(_START, _START)}
    todo = [(_START, _START)]
    pairs: list[tuple[_Stretch, _Stretch]] = []
    while todo:
        a, b = todo.pop()
        for pair in [(x, y) for x in ways[0].get(a, ()) for y in ways[1].get(b, ())]:
            pairs.append(((a, pair[0]), (b, pair[1])))
            if pair not in seen:
                seen.add(pair)
                todo.append(pair)
    return pairs


# --- what a core does between meetings


class _Surveyor:
    """Walks over a program and knows at each place what may have run since the last rendezvous."""

    def __init__(self, program: Program, target: Target) -> None:
        program = spread_out(program, lambda loop: not any(_meets(issued) for issued in loop.body.walk()))
        accesses = Accesses(program, target)
        self._shared = _shared_buffers(program)
        self._renamed: dict[Footprint, Footprint] = {}
        self._meeting: dict[int, int] = {}
        self.core = _CoreAccesses()
        for position, issued in enumerate(program.body.walk()):
            touched = accesses.of(issued)
            if touched.rendezvous:
                self.core.meetings.append(issued)
                self._meeting[position] = len(self.core.meetings)
            self.core.instructions.append(issued)
            self.core.accesses.append(self._of_both(touched))
        state, _, self.core.shape = self._block(program.body, 0, {_START: {}})
        self._arrive(state, _END)

    def _block(self, block: Block, walk: int, state: _State) -> tuple[_State, int, _Shape]:
        """Go through a block: the state after it, the walk's position, and its shape. `state` is used up."""
        shape: list[Any] = []
        for item in block.items:
            if not isinstance(item, Issued):
                state, walk, inner = self._loop(item, walk, state)
                shape += inner
                continue
            number = self._meeting.get(walk)
            if number is not None:
                self._arrive(state, number)
                state = {number: {}}
                shape.append(number)
            elif self.core.accesses[walk] != ([], []):
                for since in state.values():
                    since[walk] = None
            walk += 1
        return state, walk, tuple(shape)

    def _loop(self, loop: ForLoop | WhileLoop, walk: int, state: _State) -> tuple[_State, int, list[_Shape]]:
        trips = _trips(loop)
        after = walk + sum(1 for _ in loop.body.walk())
        if trips == 0:
            return state, after, []
        if not any(position in self._meeting for position in range(walk, after)):
            return self._block(loop.body, walk, state)[0], after, []
        left: _State = _copy(state) if trips is None else {}
        seen: _State = {}
        inner: _Shape = ()
        todo = state
        # States only grow, by instructions of the program and meetings, so that this ends also if nobody knows the
        # trips.
        while todo:  # later trips begin where earlier ones ended
            _merge(seen, todo)
            out, _, inner = self._block(loop.body, walk, _copy(todo))
            _merge(left, out)
            todo = {r: since for r, since in out.items() if r not in seen or not since.keys() <= seen[r].keys()}
            if trips == 1:
                break
        return left, after, [(trips, *inner)]

    def _arrive(self, state: _State, number: int) -> None:
        for before, since in state.items():
            self.core.stretches.setdefault((before, number), {}).update(since)

    def _of_both(self, touched: Touched) -> _Accessed:
        """The accesses to memory that both cores see, under the name that it has on both; a meeting itself has none."""
        if touched.rendezvous:
            return [], []
        return (
            [self._rename(f) for f in touched.reads if f.space in self._shared],
            [self._rename(f) for f in touched.writes if f.space in self._shared],
        )

    def _rename(self, f: Footprint) -> Footprint:
        found = self._renamed.get(f)
        if found is None:
            space = self._shared[f.space]
            found = Footprint(space, f.label, (f.first, f.after), f.low, f.dims, f.run, hbm=True, static=f.static)
            self._renamed[f] = found
        return found


def _meets(issued: Issued) -> bool:
    return "rendezvous" in issued.instruction.effects(issued.arguments)


def _copy(state: _State) -> _State:
    return {number: since.copy() for number, since in state.items()}


def _merge(into: _State, more: _State) -> None:
    for number, since in more.items():
        into.setdefault(number, {}).update(since)


def _shared_buffers(program: Program) -> dict[Space, str]:
    """Names under which both cores know their buffers: inputs pair by position, shared_hbm by order of allocation."""
    both = [b for b in program.body.all_buffers() if b.region is MemoryRegion.shared_hbm]
    names: dict[Space, str] = {buffer.id: f"input {number}" for number, buffer in enumerate(program.inputs)}
    return names | {buffer.id: f"shared {number}" for number, buffer in enumerate(both)}


def _trips(loop: ForLoop | WhileLoop) -> int | None:
    """How often a loop runs, if that is known."""
    if isinstance(loop, ForLoop) and isinstance(loop.lower, int) and isinstance(loop.upper, int):
        return len(range(loop.lower, loop.upper, loop.step))
    return None
