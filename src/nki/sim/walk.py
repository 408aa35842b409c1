"""Running a program on a machine: blocks, loops, and the life of its buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from nki.core.errors import ExecutionError, NkiError
from nki.core.source import Location
from nki.core.tensor import Buffer, MemoryRegion
from nki.sim.machine import Machine
from nki.sim.memory import LiveStorage
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop, depends_on_data, loops
from nki.spec.schedule import check_order

Claim = Callable[[Buffer], LiveStorage]
TRIP_LIMIT = 1 << 24
"""Trips after which a while loop counts as endless."""


def run_program(machine: Machine, program: Program, inputs: list[LiveStorage], claim: Claim) -> list[LiveStorage]:
    """Execute a program; returns the storages of its outputs.

    `claim` gives storage for shared_hbm buffers, which the cores of a launch have in common.
    """
    check_order(program)
    kept = {storage.buffer.id: storage for storage in inputs}
    returned = {view.buffer.id for view in program.outputs}
    held = _run_block(machine, program.body, claim, returned)
    return [kept.get(view.buffer.id) or held[view.buffer.id] for view in program.outputs]


def _run_block(machine: Machine, block: Block, claim: Claim, keep: set[int]) -> dict[int, LiveStorage]:
    """Buffers come to life when the block first touches them and go after its last use."""
    own = {buffer.id: buffer for buffer in block.buffers}
    for buffer in block.buffers:
        if buffer.region is MemoryRegion.shared_hbm:
            keep = keep | {buffer.id}
    live: dict[int, LiveStorage] = {
        buffer.id: claim(buffer) for buffer in block.buffers if buffer.region is MemoryRegion.shared_hbm
    }
    last = _last_uses(block, own)
    for position, item in enumerate(block.items):
        for key in _touched(item, own):
            if key not in live:
                live[key] = _allocate(machine, own[key])
        _run_item(machine, item, claim)
        for key in last.get(position, ()):
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


def _run_item(machine: Machine, item: Issued | ForLoop | WhileLoop, claim: Claim) -> None:
    match item:
        case Issued():
            machine.run(item)
        case ForLoop():
            lower, upper = bounds(machine, item)
            for value in range(lower, upper, item.step):
                machine.write_register(item.index, value)
                machine.trips[id(item)] += 1
                _run_block(machine, item.body, claim, set())
        case WhileLoop():
            trips = 0
            while machine.read_register(item.condition) != 0:
                machine.trips[id(item)] += 1
                _run_block(machine, item.body, claim, set())
                trips += 1
                check_trips(trips, item.location)


def runs_of(program: Program, counted: Mapping[int, int]) -> dict[int, float]:
    """What `Machine.trips` counted of the loops whose bounds depend on data, by the number of the loop."""
    return {
        number: float(counted.get(id(loop), 0))
        for number, loop in enumerate(loops(program.body))
        if depends_on_data(loop)
    }


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


def _touched(item: Issued | ForLoop | WhileLoop, own: dict[int, Buffer]) -> Iterator[int]:
    for issued in (item,) if isinstance(item, Issued) else item.body.walk():
        for key in _buffers_of(issued):
            if key in own:
                yield key


def _buffers_of(issued: Issued) -> Iterator[int]:
    for _, view in issued.views():
        yield view.buffer.id
        index = view.dynamic.indices if view.dynamic is not None else None
        if isinstance(index, tuple):
            yield index.buffer.id


def _last_uses(block: Block, own: dict[int, Buffer]) -> dict[int, list[int]]:
    last: dict[int, int] = {}
    for position, item in enumerate(block.items):
        for key in _touched(item, own):
            last[key] = position
    result: dict[int, list[int]] = {}
    for key, position in last.items():
        result.setdefault(position, []).append(key)
    return result
