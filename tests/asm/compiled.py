"""Programs as a compiler leaves them: with a schedule and addresses, made in the simplest way."""

from __future__ import annotations

from functools import cache
from typing import Any

from nki.core.tensor import MemoryRegion
from nki.spec.program import Block, Issued, Program, Sync, Wait
from nki.spec.queue import DMA, queue_class
from tests.ir.kernels import array, dynamic_program, looped, scaled_sum, traced
from tests.isa.test_registry import LEGAL

DMA_QUEUES = 3


def schedule(block: Block) -> None:
    """Everything signals, and waits for what came before it if that is in another queue."""
    block.sync = []
    signals: dict[str, int] = {}
    before = ""
    for number, item in enumerate(block.items):
        if not isinstance(item, Issued):
            schedule(item.body)
            block.sync.append(None)
            signals, before = {}, ""
            continue
        family = queue_class(item)
        queue = f"{DMA}{number % DMA_QUEUES}" if family == DMA else family
        waits = (Wait(before, signals[before]),) if before not in ("", queue) else ()
        block.sync.append(Sync(queue, waits, True))
        signals[queue] = signals.get(queue, 0) + 1
        before = queue


def compiled(program: Program) -> Program:
    """The program with everything that a compiler adds."""
    schedule(program.body)
    program.placement = {
        buffer.id: (0, 64 * (buffer.id % 8) if buffer.region is MemoryRegion.sbuf else 0)
        for buffer in program.body.all_buffers()
        if buffer.on_chip and buffer.address is None
    }
    program.passed = ("allocate_and_schedule", "schedule")
    return program


@cache
def examples() -> tuple[Program, ...]:
    """All legal examples of all instructions, on one target each, and kernels with loops and dynamic addresses."""
    last = {id(example): (example, target) for example, target in LEGAL}.values()
    found = [
        compiled(program)
        for example, target in last
        for program in traced(example.kernel, *example.arguments(), target=target, lnc=example.lnc)
    ]
    return (*found, *(compiled(program) for program in (loops(), summed(), dynamic_program())))


def loops() -> Program:
    """Nested loops with constant and register bounds, a while loop, a tensor that lives in a loop."""
    return traced(looped, array())[0]


def summed() -> Program:
    """A straight line of five instructions."""
    return traced(scaled_sum, array(), array())[0]


def replaced(program: Program, position: int, **arguments: Any) -> Program:
    """The program with other arguments of one instruction of its body."""
    issued = program.body.items[position]
    assert isinstance(issued, Issued)
    program.body.items[position] = issued._replace(arguments=issued.arguments._replace(**arguments))
    return program
