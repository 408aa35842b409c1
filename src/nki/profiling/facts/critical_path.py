"""The critical path: intervals without gaps from the start of a program to its end, each with what it was spent on.

It is found from the end: whoever was visible last, before that what let it start, and so on. Its length is the makespan
by construction, and its parts say which instructions a change has to make faster.
"""

from __future__ import annotations

from typing import NamedTuple

from nki.profiling.facts.extents import LoopSpan, SegmentSpan, Span, inside, top
from nki.profiling.facts.timed_core import (
    CORE,
    EPS,
    OPERAND,
    PORT,
    UNIT,
    WAIT,
    CoreFacts,
    is_matmul,
    is_transfer,
    multiplies_from,
)


class Piece(NamedTuple):
    """An interval of the path; `kind` is one of `nki.profiling.schema.PATHS`, `position` the instruction or -1."""

    start: float
    end: float
    kind: str
    position: int


def critical_path(core: CoreFacts) -> list[Piece]:
    """The path of one core, from 0 to its makespan."""
    found: list[Piece] = []
    for span in top(core):
        found += _of_span(core, span)
    return found


def _of_span(core: CoreFacts, span: Span) -> list[Piece]:
    return _of_loop(core, span) if isinstance(span, LoopSpan) else _CriticalPathWalk(core, span).pieces()


def _of_loop(core: CoreFacts, loop: LoopSpan) -> list[Piece]:
    first = min(loop.first, loop.end)
    found = [Piece(loop.start, first, "barrier", -1)]
    at = first
    if loop.whole:
        for span in inside(core, loop):
            found += _of_span(core, span)
        at = loop.first + loop.trip
        found.append(Piece(at - core.plan.hardware.barrier, at, "barrier", -1))
    if loop.end > at + EPS:
        found.append(Piece(at, loop.end, "repeat", -1))
    return found


class _CriticalPathWalk:
    """Back through one segment."""

    def __init__(self, core: CoreFacts, span: SegmentSpan) -> None:
        self._core, self._span = core, span
        self._found: list[Piece] = []

    def pieces(self) -> list[Piece]:
        """The path of the segment, in the order of time."""
        core, span = self._core, self._span
        positions = range(span.plan.first, span.plan.first + len(span.plan.items))
        position = max(positions, key=lambda at: (core.visible[at], -at))
        time = span.end
        # Steps lead to earlier times or causes. The bound only ends a circle that rounding might make of equal times;
        # what is left then is shown as idle.
        for _ in range(4 * len(positions) + 4):
            if position < 0:
                break
            position, time = self._back(position, time)
        self._emit(span.start, time, "idle", -1)
        self._found.reverse()
        return self._found

    def _emit(self, start: float, end: float, kind: str, position: int) -> float:
        """Note an interval and go back to its start."""
        if end > start:
            self._found.append(Piece(start, end, kind, position))
            return start
        return end

    def _back(self, position: int, time: float) -> tuple[int, float]:
        """From a time in the life of an instruction to what let it start then."""
        core = self._core
        end, recipe = core.end[position], core.recipes[position]
        if time > end:
            if core.visible[position] > end + recipe.latency + EPS:  # its queue completes in order
                same = self._seen_before(position)
                if same >= 0:
                    return same, time
            time = self._emit(end, time, "latency", position)
        if is_transfer(core, position):
            other = self._moving(position, time)
        elif is_matmul(core, position):
            other = self._multiplying(position, time)
        else:
            other = None
            time = self._emit(core.start[position], time, "run", position)
        if other is not None:
            return other
        return self._started(position, min(time, core.start[position]))

    def _seen_before(self, position: int) -> int:
        """The earlier instruction of its queue whose completion it had to await."""
        core, visible, other = self._core, self._core.visible[position], self._core.before[position]
        while other >= 0:
            if core.end[other] + core.recipes[other].latency >= visible - EPS:
                return other
            other = core.before[other]
        return -1

    def _moving(self, position: int, time: float) -> tuple[int, float] | None:
        """Through a transfer; the instruction that its data waited for, or None if that was its trigger."""
        core = self._core
        time = self._emit(core.move[position], time, "run", position)
        if time > core.arrival[position] + EPS:
            last = core.moved[position]
            if last >= 0 and core.end[last] >= time - EPS:
                return last, time
            for producer in core.needs[position]:
                if abs(core.visible[producer] - time) <= EPS or abs(core.end[producer] - time) <= EPS:
                    return producer, time
            time = self._emit(core.arrival[position], time, "idle", position)
        self._emit(core.start[position], time, "trigger", position)
        return None

    def _multiplying(self, position: int, time: float) -> tuple[int, float] | None:
        """Through a matmul; the one before it if the array was not free when its weights were there."""
        core, other = self._core, self._core.before[position]
        begin = multiplies_from(core, position)
        (_, load, _), _ = core.recipes[position].chain
        if other >= 0 and core.end[other] > begin + EPS and time > core.start[position] + load + EPS:
            return other, min(self._emit(core.end[other], time, "run", position), core.end[other])
        self._emit(core.start[position], time, "run", position)
        return None

    def _started(self, position: int, time: float) -> tuple[int, float]:
        """What let an instruction start."""
        core = self._core
        if core.table[position]:
            time = self._emit(time - core.table[position], time, "table", position)
        cause, blocker, turn = core.cause[position], core.blocker[position], core.turn[position]
        if time <= turn + EPS:
            return core.before[position], min(time, turn)
        if core.table[position]:
            cause, blocker = self._signal(position)
        if cause == CORE:
            cause, blocker = self._signal(position)
            since = core.visible[blocker] + core.recipes[blocker].signal if blocker >= 0 else turn
            time = self._emit(max(turn, since), time, "core", position)
            if time <= turn + EPS:
                return core.before[position], min(time, turn)
        return self._blocked(position, time, cause, blocker)

    def _blocked(self, position: int, time: float, cause: int, blocker: int) -> tuple[int, float]:
        core = self._core
        if cause == WAIT and blocker >= 0:
            return blocker, self._emit(core.visible[blocker], time, "signal", position)
        if cause == OPERAND and blocker >= 0:
            return blocker, self._emit(core.end[blocker], time, "operand", position)
        if cause in (UNIT, PORT) and blocker >= 0:
            return blocker, time
        return core.before[position], self._emit(core.turn[position], time, "idle", position)

    def _signal(self, position: int) -> tuple[int, int]:
        """The last signal that it waited for, if that came after its turn."""
        core = self._core
        found = [(core.visible[p] + core.recipes[p].signal, p) for p in core.signals[position]]
        last = max(found, default=(0.0, -1))
        return (WAIT, last[1]) if last[0] > core.turn[position] + EPS else (0, -1)
