"""When a schedule is good enough: about the time that no other one can beat."""

from __future__ import annotations

from collections.abc import Sequence

from nki.passes.scheduling.list_schedule import Task
from nki.spec.queue import DMA


def about_least(tasks: Sequence[Task], producers: Sequence[Sequence[int]], signal: float) -> float:
    """ns that instructions take about at least, as the list scheduler sees them.

    A queue begins when the first operands of one of its instructions are there, works, and leaves something to be done
    after it.

    Args:
        signal: ns from a completion on one queue to a start on another.
    """
    head, tail = [0.0] * len(tasks), [task.latency for task in tasks]
    for position, before in enumerate(producers):
        queue = tasks[position].queue
        for producer in before:
            other = tasks[producer]
            far = 0.0 if other.queue == queue else other.latency + signal
            head[position] = max(head[position], head[producer] + other.busy + far)
    for position in range(len(tasks) - 1, -1, -1):
        task = tasks[position]
        beyond = task.busy + tail[position]
        for producer in producers[position]:
            other = tasks[producer]
            far = 0.0 if other.queue == task.queue else other.latency + signal
            tail[producer] = max(tail[producer], far + beyond)
    first: dict[str, float] = {}
    works: dict[str, float] = {}
    last: dict[str, float] = {}
    for task, before_it, after_it in zip(tasks, head, tail, strict=True):
        queue = task.queue
        first[queue] = min(first.get(queue, before_it), before_it)
        last[queue] = min(last.get(queue, after_it), after_it)
        works[queue] = works.get(queue, 0.0) + (task.moves if queue == DMA else task.busy)
    longest = max((h + task.busy + t for h, task, t in zip(head, tasks, tail, strict=True)), default=0.0)
    return max([longest, *(first[queue] + works[queue] + last[queue] for queue in works)])
