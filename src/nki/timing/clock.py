"""How fast the Tensor engine may multiply: the limit on its current after times of little work.

From the start of work the engine runs at ``throttle.start_utilization`` for ``throttle.ramp_ns``. A multiplication that
starts after a gap finds the limit back if the engine was busy for less than ``release_utilization`` of the last
``window_ns`` (tools/neuron-explorer/glossary.rst, dI/dt). The glossary has the rate rise over the ramp; that it rises
at its end is how published profiles look (50 % for the first 3 us), and the slower of both readings.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from nki.target.model import Throttle


class ClockState(NamedTuple):
    """What a clock remembers between segments; times count from the barrier between them, so that they are negative.

    Attributes:
        ramp: ns that the limit still lasts.
        busy: ``(start, end)`` of work within the last window.
    """

    ramp: float = 0.0
    busy: tuple[tuple[float, float], ...] = ()


class Clock:
    """The limit during a segment, whose time starts at 0."""

    def __init__(self, throttle: Throttle, state: ClockState) -> None:
        self._rate = throttle.start_utilization
        self._ramp_ns = throttle.ramp_ns
        self._window = throttle.window_ns
        self._least = throttle.release_utilization * throttle.window_ns
        self._until = state.ramp
        self._busy = deque(state.busy)
        self._sum = sum(end - start for start, end in state.busy)

    @staticmethod
    def limits(throttle: Throttle) -> bool:
        """Whether the target has a limit at all."""
        return throttle.start_utilization < 1.0 and throttle.ramp_ns > 0.0

    def multiply(self, start: float, work: float) -> float:
        """The end of a multiplication that takes `work` ns at full rate; starts come in order."""
        busy = self._busy
        gap = not busy or start > busy[-1][1]
        if gap and start >= self._until and self._recent(start) < self._least:
            self._until = start + self._ramp_ns
        end = start + work
        if start < self._until:
            slow = start + work / self._rate
            end = slow if slow <= self._until else end + (self._until - start) * (1.0 - self._rate)
        if gap:
            busy.append((start, end))
        else:
            busy[-1] = (busy[-1][0], end)
        self._sum += end - start
        return end

    def _recent(self, now: float) -> float:
        """ns of work within the last window."""
        busy, first = self._busy, now - self._window
        while busy and busy[0][1] <= first:
            start, end = busy.popleft()
            self._sum -= end - start
        if not busy:
            self._sum = 0.0  # what rounding left over
            return 0.0
        return self._sum - max(0.0, first - busy[0][0])

    def state(self, now: float) -> ClockState:
        """What is left for a segment that starts then."""
        first = now - self._window
        recent = tuple((max(start, first) - now, end - now) for start, end in self._busy if end > first)
        return ClockState(max(0.0, self._until - now), recent)
