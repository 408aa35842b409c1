"""Running a program on a machine: blocks, loops, and the life of its buffers."""

from __future__ import annotations

from collections.abc import Callable, Set

from nki.core.errors import ExecutionError, NkiError
from nki.core.source import Location
from nki.core.tensor import Buffer
from nki.sim.lifetimes import Lifetimes
from nki.sim.machine import Machine
from nki.sim.memory import LiveStorage
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop

Claim = Callable[[Buffer], LiveStorage]
TRIP_LIMIT = 1 << 24
"""Trips after which a while loop counts as endless."""


def run_program(
    machine: Machine, program: Program, inputs: list[LiveStorage], claim: Claim, lifetimes: Lifetimes | None = None
) -> list[LiveStorage]:
    """Execute a program; returns the storages of its outputs.

    Args:
        claim: gives storage for shared_hbm buffers, which the cores of a launch have in common.
        lifetimes: of the program, from an earlier walk; None to find them.
    """
    lifetimes = Lifetimes(program) if lifetimes is None else lifetimes
    kept = {storage.buffer.id: storage for storage in inputs}
    returned = {view.buffer.id for view in program.outputs}
    held = _run_block(machine, program.body, claim, lifetimes, returned)
    return [kept.get(view.buffer.id) or held[view.buffer.id] for view in program.outputs]


def run_body(machine: Machine, program: Program, body: Block) -> None:
    """Execute a trip of a loop of a program that is being recorded."""
    _run_block(machine, body, machine.memory.allocate, Lifetimes(program))


def _run_block(
    machine: Machine, block: Block, claim: Claim, lifetimes: Lifetimes, keep: Set[int] = frozenset()
) -> dict[int, LiveStorage]:
    """Buffers come to life when the block first touches them and go after its last use, but for those to `keep`."""
    own, shared, begins, ends = lifetimes.of(block)
    live: dict[int, LiveStorage] = {buffer.id: claim(buffer) for buffer in shared}
    keep = keep | live.keys()
    for item, first, last in zip(block.items, begins, ends, strict=True):
        for buffer in first:
            live[buffer.id] = _allocate(machine, buffer)
        _run_item(machine, item, claim, lifetimes)
        for key in last:
            if key not in keep:
                live.pop(key, None)
    for key in keep & own.keys() - live.keys():
        live[key] = _allocate(machine, own[key])
    return live


def _allocate(machine: Machine, buffer: Buffer) -> LiveStorage:
    try:
        return machine.memory.allocate(buffer)
    except NkiError as error:
        error.location = buffer.location
        raise


def _run_item(machine: Machine, item: Issued | ForLoop | WhileLoop, claim: Claim, lifetimes: Lifetimes) -> None:
    match item:
        case Issued():
            machine.run(item)
        case ForLoop():
            lower, upper = bounds(machine, item)
            for value in range(lower, upper, item.step):
                machine.write_register(item.index, value)
                machine.trips[id(item)] += 1
                _run_block(machine, item.body, claim, lifetimes)
        case WhileLoop():
            trips = 0
            while machine.read_register(item.condition) != 0:
                machine.trips[id(item)] += 1
                _run_block(machine, item.body, claim, lifetimes)
                trips += 1
                check_trips(trips, item.location)


def bounds(machine: Machine, loop: ForLoop) -> tuple[int, int]:
    """First and last value of a loop's index, half open."""
    try:
        return machine.read_register(loop.lower), machine.read_register(loop.upper)
    except NkiError as error:
        error.location = loop.location
        raise


def check_trips(trips: int, where: Location) -> None:
    """Raise ExecutionError "loop.endless" if a while loop ran too often."""
    if trips > TRIP_LIMIT:
        raise ExecutionError(
            "loop.endless",
            f"a while loop ran {trips} times",
            fix="make the body set its condition to 0",
            location=where,
        )
