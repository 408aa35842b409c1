"""Whether the compiler finds room on chip for programs: what a call refuses, for those who do not compile."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core.errors import NkiError, VerificationError
from nki.passes import allocate_and_schedule
from nki.passes.allocation import addresses
from nki.passes.analysis.memory_demand import memories
from nki.passes.context import Context
from nki.passes.pipeline import PIPELINE, compile_programs
from nki.spec.program import Program
from nki.target.model import Target

CODE = "memory.capacity"


def capacity_error(programs: Sequence[Program], context: Context) -> VerificationError | None:
    """The error ``memory.capacity`` with which a call of these traced programs is refused; None if they have room.

    Compiling ends with the same error, by the same passes. A program that fits as it was traced costs an allocation,
    because no pass before takes room that is not there, and one whose tensors fit all at once costs nothing. Whatever
    else the passes refuse is not asked here.
    """
    for program in programs:
        if _all_fit(program, context.target):
            continue
        try:
            _allocated(program, context)
        except VerificationError as error:
            if error.code == CODE:
                return error
        except NkiError:
            continue
    return None


def _all_fit(program: Program, target: Target) -> bool:
    """Whether all tensors fit beside each other, even if as much again is lost between them."""
    for memory in memories(target):
        own = [buffer for buffer in program.body.all_buffers() if buffer.region is memory.region]
        free = [buffer for buffer in own if buffer.address is None]
        if free and (len(free) < len(own) or 2 * sum(memory.size(buffer) for buffer in free) > memory.limit):
            return False
    return True


def _allocated(program: Program, context: Context) -> None:
    """Allocate a program as it was traced; if that has no room, run the passes, and have them try what they can."""
    try:
        addresses.allocate(program, context)
    except VerificationError as error:
        if error.code != CODE:
            raise
        compile_programs([program], context, PIPELINE[: PIPELINE.index(allocate_and_schedule.PASS) + 1])
