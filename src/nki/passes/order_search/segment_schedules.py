"""Schedules for a segment whose tensors have addresses: the order that it has, and those of the list scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nki.passes.order_search.choice import MOST_TIMED
from nki.passes.order_search.heuristics import PATIENT
from nki.passes.scheduling.list_schedule import Dependent, Heuristic, Machine, Schedule, Task, in_order

CLOSE = 1.15
"""Length over the shortest one, by the scheduler's estimate, up to which the timeline compares schedules of larger
segments."""

SegmentSchedules = Callable[[Sequence[Task], Sequence[Sequence[int]], Machine], Sequence[Schedule]]
"""Schedules for tasks with their producers on a machine, those that are preferred first."""


def segment_schedules(
    tasks: Sequence[Task], producers: Sequence[Sequence[int]], machine: Machine
) -> Sequence[Schedule]:
    """Different schedules; the order that the segment has comes first: it stays unless another one is shorter.

    The list scheduler has few choices left, because addresses are given. Of large segments those are left out that it
    estimates to be much longer than its best: the timeline costs more than the scheduler.
    """
    found = [in_order(tasks, producers, machine)]
    heuristics = [Heuristic()]
    if len(tasks) <= MOST_TIMED:
        found.append(in_order(tasks, producers, machine, spread=False))
        heuristics.append(Heuristic(written=True))
    if len({task.group for task in tasks} - {""}) > 1:
        heuristics.append(PATIENT)
    work = Dependent(tasks, producers, machine)
    for heuristic in heuristics:
        made = work.list_schedule(heuristic)
        if all(made[:2] != other[:2] for other in found):
            found.append(made)
    if len(tasks) <= MOST_TIMED:
        return found
    shortest = min(schedule.makespan for schedule in found)
    return [schedule for schedule in found if schedule.makespan <= CLOSE * shortest]
