"""Steps of attention in stages, so that each engine has work while it waits for another one's results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Step(NamedTuple):
    """What some queries and keys need, in stages of which each uses results that engines have to bring first."""

    stages: tuple[Callable[[], None], ...]


def run(steps: Iterable[Step], lag: int) -> None:
    """Issue the stages of all steps, each stage of a step after the stage before of `lag` later steps.

    So an engine has other work while a result that it needs comes from another engine.

    Args:
        steps: in the order in which they begin.
        lag: steps of several stages between two stages of one.
    """
    started: deque[tuple[int, Step]] = deque()
    number = 0
    for step in steps:
        step.stages[0]()
        if len(step.stages) > 1:
            started.append((number, step))
            _issue(started, number, lag)
            number += 1
    while started:
        _issue(started, number, lag)
        number += 1


def _issue(started: deque[tuple[int, Step]], number: int, lag: int) -> None:
    """Stages that are due, those of the oldest step first."""
    for begun, step in list(started):
        stage, early = divmod(number - begun, max(1, lag))
        if 0 < stage < len(step.stages) and not early:
            step.stages[stage]()
    while started and number - started[0][0] >= (len(started[0][1].stages) - 1) * max(1, lag):
        started.popleft()
