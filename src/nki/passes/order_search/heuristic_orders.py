"""Orders for a start that the list scheduler makes as if every tensor had bytes of its own.

Addresses come afterwards. So these orders show which instructions would like to run together, and addresses are chosen
that let them.
"""

from __future__ import annotations

from dataclasses import replace

from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.order_search.candidates import Order
from nki.passes.scheduling.list_schedule import Dependent, Heuristic, Schedule
from nki.passes.scheduling.lower_bound import about_least
from nki.passes.scheduling.psum_pressure import psum_needs
from nki.passes.scheduling.tasks import Tasks, machine_of
from nki.spec.program import Program
from nki.target.model import Target


def written_order(program: Program) -> Order:
    """The order that a program has."""
    return Order(tuple(tuple(range(len(segment.items))) for segment in segments_of(program)))


class ListOrders:
    """The segments of a program as the list scheduler sees them, to be put into orders.

    Attributes:
        sums: whether the program has tensors in PSUM that get an address.
    """

    def __init__(self, program: Program, target: Target, tasks: Tasks) -> None:
        free = replace(program, placement=None)
        found = list(segments_of(free))
        needs = [dependences(each.items, free, target, each.edges, each.fences, tasks.outlines) for each in found]
        psum = psum_needs(found, needs, target)
        seen = [tasks.of(each.items) for each in found]
        machine = machine_of(target)
        self._segments = [
            (Dependent(mine, before, machine), room) for mine, before, room in zip(seen, needs, psum, strict=True)
        ]
        self._needs = needs
        self._has_loops = len(found) != 1 or len(found[0].items) != len(free.body.items)
        self._has_groups = any(len({task.group for task in each} - {""}) > 1 for each in seen)
        self.sums = any(each is not None for each in psum)

    def least(self) -> float:
        """ns that the program takes about at least; 0 if it has loops."""
        if self._has_loops:
            return 0.0
        ((work, _),) = self._segments
        return about_least(work.tasks, self._needs[0], work.machine.signal)

    def under(self, heuristic: Heuristic) -> Order | None:
        """The order under a heuristic; None if it is of no use to the program, or finds no order that PSUM can hold.

        Patience is of no use where there is one activation table, nor room to spare in PSUM where nothing is placed.
        """
        if (heuristic.patience and not self._has_groups) or (heuristic.spare and not self.sums):
            return None
        schedules: list[Schedule] = []
        for work, psum in self._segments:
            schedule: Schedule | None
            if heuristic.spare and psum is not None:
                schedule = work.schedule_within(heuristic, psum)
            else:
                schedule = work.list_schedule(heuristic)
            if schedule is None:
                return None
            schedules.append(schedule)
        positions = tuple(tuple(schedule.order) for schedule in schedules)
        return Order(positions, heuristic, sum(schedule.makespan for schedule in schedules))
