"""Allocation for the order in which a program will run: tensors that will be in use together get bytes of their own.

An allocation for the order in which a kernel was written gives the same bytes to tensors that follow each other, and
the scheduler cannot bring their instructions together any more. So segments are put into the order that the scheduler
would like best, and addresses are chosen for that. The further instructions move ahead, the more is live at once;
orders with a smaller window are tried as well, and what takes least time with addresses is chosen. Its schedule is kept
for the pass that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from nki.compiler import AddressRotation
from nki.core.errors import VerificationError
from nki.passes import allocate
from nki.passes.context import Context, Pass
from nki.passes.dependences import dependences, segments_of
from nki.passes.enough import about_least
from nki.passes.list_schedule import Manner, list_schedule
from nki.passes.relief import relieved
from nki.passes.reorder import NewOrder, reordered
from nki.passes.schedule import PATIENT, Foreseen, Tasks, foresee, hardware
from nki.spec.program import Program
from nki.target.model import Target

MANNERS = (
    Manner(window=64),
    Manner(window=112, written=True),
    Manner(),
    PATIENT,
    PATIENT._replace(window=16),
    Manner(window=128, written=True),
    Manner(window=128),
    Manner(window=24),
    Manner(window=48),
    Manner(written=True),
    Manner(window=16),
    Manner(window=32),
    PATIENT._replace(window=128),
    PATIENT._replace(window=24),
    PATIENT._replace(window=32),
    Manner(window=64, written=True),
    Manner(window=24, written=True),
    Manner(window=32, written=True),
)
"""Manners of the list scheduler that are tried, the most promising ones first."""
MOST_TRIED = 2000
"""Instructions of programs for which other orders are tried; larger ones take the order in which they were written."""
SMALL = 16
"""Instructions of segments in which there is nothing to gain."""
EFFORT = 1900
"""Instructions of all orders together after which no further one is tried."""
ENOUGH = 1.002
"""Makespan over about the least one with which no further order is tried."""


def run(program: Program, context: Context) -> Program:
    """The program with its `placement`, in an order that may differ from the one that came in.

    With `AddressRotation.DISABLE` tensors are packed tightly for the order in which the kernel was written. Where that
    order needs more than there is, whatever the configuration, one is looked for that does not; see `relief`.

    Raises:
        VerificationError: see `allocate.run`; of the order in which the kernel was written.
    """
    try:
        return _arranged(program, replace(context, config=replace(context.config, spill=False)))
    except VerificationError as error:
        if error.code != "memory.capacity":
            raise
        for other in relieved(program, context.target):
            with suppress(VerificationError):
                return _arranged(other, context)
        if context.config.spill:
            return allocate.run(program, context)
        raise


def _arranged(program: Program, context: Context) -> Program:
    """As `run`, of no other order than those of the scheduler."""
    count = sum(1 for _ in program.body.walk())
    if context.config.address_rotation is AddressRotation.DISABLE or count > MOST_TRIED:
        return allocate.run(program, context)
    if all(segment.after - segment.first <= SMALL for segment in segments_of(program)):
        return allocate.run(program, context)
    tasks = Tasks(context.target)
    orders = _Orders(program, context.target, tasks)
    best: tuple[Program, Foreseen] | None = None
    failure: VerificationError | None = None
    effort = 0
    least_effort = max(EFFORT, count + 1)  # one order at least beside the written one
    for candidate in orders.candidates():
        notes = len(context.notes)
        try:
            placed = allocate.run(candidate, context)
        except VerificationError as error:
            failure = failure or error
            continue
        effort += count
        found = foresee(placed, context.target, tasks)
        if best is None or found.makespan < best[1].makespan:
            best = placed, found
        else:
            del context.notes[notes:]
        if effort >= least_effort or best[1].makespan <= ENOUGH * orders.least:
            break
    if best is None:
        assert failure is not None, "nothing was placed"
        raise failure
    context.foreseen.append((best[0], best[1].program))
    return best[0]


class _Orders:
    """Orders for a program, chosen without regard to addresses.

    Attributes:
        least: ns that it takes about at least; 0 if it has loops.
    """

    def __init__(self, program: Program, target: Target, tasks: Tasks) -> None:
        self._program = program
        self._bare = replace(program, placement=None)
        self._machine = hardware(target)
        self._segments = [
            (
                segment,
                dependences(segment.items, self._bare, target, segment.edges, segment.fences),
                tasks.of(segment.items),
            )
            for segment in segments_of(self._bare)
        ]
        self.least = 0.0
        if len(self._segments) == 1 and len(self._segments[0][0].items) == len(program.body.items) <= EFFORT // 2:
            _, producers, seen = self._segments[0]
            self.least = about_least(seen, producers, self._machine.signal)

    def candidates(self) -> Iterator[Program]:
        """The program as it was written, then in the orders of the scheduler."""
        yield self._program
        grouped = any(len({task.group for task in seen} - {""}) > 1 for _, _, seen in self._segments)
        known = set()
        for manner in MANNERS:
            if manner.patience and not grouped:
                continue
            orders = {
                (id(segment.block), segment.first): NewOrder(
                    segment.walk, list_schedule(seen, producers, self._machine, manner).order, None
                )
                for segment, producers, seen in self._segments
            }
            key = tuple(tuple(new.order) for new in orders.values())
            if key not in known:
                known.add(key)
                yield reordered(self._bare, orders)


PASS = Pass("allocate", allocate.PASS.summary, run)
