"""One core in time as a whole, without the times of its instructions."""

from __future__ import annotations

from typing import NamedTuple

from nki.spec.program import Program, depends_on_data, loops
from nki.spec.step import UNITS
from nki.timing.loops import Spent


class CoreTime(NamedTuple):
    """What the program of one core takes.

    Attributes:
        spent: its time and its work.
        assumed: whether a loop counts as one trip because nothing tells how many it has.
    """

    spent: Spent
    assumed: bool

    @property
    def bound_by(self) -> str:
        """The unit that works longest; of DMA the part of its engines that transfers use counts."""
        work = dict(zip(UNITS, self.spent.busy, strict=True)) | {"dma": self.spent.moved}
        return max(UNITS, key=lambda unit: work[unit])


def core_time(program: Program, spent: Spent) -> CoreTime:
    """The time of a program that spends so much."""
    return CoreTime(spent, any(depends_on_data(loop) for loop in loops(program.body)))
