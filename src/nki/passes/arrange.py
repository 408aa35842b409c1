"""Allocation for the order in which a program will run: tensors that will be in use together get bytes of their own.

An allocation for the order in which a kernel was written gives the same bytes to tensors that follow each other, and
the scheduler cannot bring their instructions together any more. So segments are put into the order that the scheduler
would like best, and addresses are chosen for that. The further instructions move ahead, the more is live at once;
orders with a smaller window are tried as well, and what takes least time with addresses is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nki.compiler import AddressRotation
from nki.core.errors import VerificationError
from nki.passes import allocate, schedule
from nki.passes.context import Context, Pass
from nki.passes.dependences import dependences, segments_of
from nki.passes.list_schedule import Manner, list_schedule
from nki.passes.reorder import NewOrder, reordered
from nki.passes.schedule import PATIENT, hardware, tasks_of
from nki.spec.program import Program
from nki.target.model import Target
from nki.timing.timeline import timeline

MANNERS = (Manner(), Manner(window=64), PATIENT, Manner(window=128), Manner(window=32), PATIENT._replace(window=128))
"""Manners of the list scheduler that are tried, the most promising ones first."""
MOST_TRIED = 2000
"""Instructions of programs for which other orders are tried; larger ones take the order in which they were written."""
SMALL = 16
"""Instructions of segments in which there is nothing to gain."""
EFFORT = 2000
"""Instructions of all orders together after which no further one is tried."""


def run(program: Program, context: Context) -> Program:
    """The program with its `placement`, in an order that may differ from the one that came in.

    With `AddressRotation.DISABLE` tensors are packed tightly for the order in which the kernel was written.

    Raises:
        VerificationError: see `allocate.run`.
    """
    count = sum(1 for _ in program.body.walk())
    if context.config.address_rotation is AddressRotation.DISABLE or context.config.spill or count > MOST_TRIED:
        return allocate.run(program, context)
    if not _worthwhile(program, context):
        return allocate.run(program, context)
    best, shortest = None, 0.0
    failure: VerificationError | None = None
    effort = 0
    for candidate in _candidates(program, context.target):
        if best is not None and effort >= EFFORT:
            break
        notes = len(context.notes)
        try:
            placed = allocate.run(candidate, context)
        except VerificationError as error:
            failure = failure or error
            continue
        effort += count
        length = timeline(schedule.run(placed, context), context.target).makespan
        if best is None or length < shortest:
            best, shortest = placed, length
        else:
            del context.notes[notes:]
    if best is None:
        assert failure is not None, "nothing was placed"
        raise failure
    return best


def _worthwhile(program: Program, context: Context) -> bool:
    """False if addresses for the written order keep nothing apart that could run together without them."""
    if all(segment.after - segment.first <= SMALL for segment in segments_of(program)):
        return False
    notes = len(context.notes)
    try:
        placed = allocate.run(program, context)
    except VerificationError:
        return True
    finally:
        del context.notes[notes:]
    return _producers(placed, context.target) != _producers(replace(program, placement=None), context.target)


def _producers(program: Program, target: Target) -> list[list[tuple[int, ...]]]:
    return [dependences(s.items, program, target, s.edges, s.fences) for s in segments_of(program)]


def _candidates(program: Program, target: Target) -> Iterator[Program]:
    """The program as it was written, then in the orders of the scheduler."""
    yield program
    machine = hardware(target)
    bare = replace(program, placement=None)
    segments = [
        (segment, producers, tasks_of(segment.items, target))
        for segment, producers in zip(segments_of(bare), _producers(bare, target), strict=True)
    ]
    seen = set()
    for manner in MANNERS:
        orders = {
            (id(segment.block), segment.first): NewOrder(
                segment.walk, list_schedule(tasks, producers, machine, manner).order, None
            )
            for segment, producers, tasks in segments
        }
        key = tuple(tuple(new.order) for new in orders.values())
        if key not in seen:
            seen.add(key)
            yield reordered(bare, orders)


PASS = Pass("allocate", allocate.PASS.summary, run)
