"""When the buffers of a program come to life and when they go: found once, for all walks over the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nki.core.tensor import Buffer, MemoryRegion
from nki.sim.memory import reach_of
from nki.spec.program import Block, ForLoop, Issued, Program, WhileLoop, depends_on_data, loops
from nki.spec.schedule import check_order


class BlockLifetimes(NamedTuple):
    """Lifetimes of the buffers that a block allocates whenever it runs.

    Attributes:
        own: all of them, by id.
        shared: those in shared_hbm, which live as long as the block runs.
        begins: for each item, the others that it touches first.
        ends: for each item, the ids of those that it touches last.
    """

    own: Mapping[int, Buffer]
    shared: tuple[Buffer, ...]
    begins: tuple[tuple[Buffer, ...], ...]
    ends: tuple[tuple[int, ...], ...]


class Lifetimes:
    """Lifetimes of the buffers of a program that does not change any more, with what else all walks over it need.

    Attributes:
        reach: how many bytes of each partition of a memory it uses.
    """

    def __init__(self, program: Program) -> None:
        """Raises ExecutionError "schedule.order" if the program's order breaks one of its edges."""
        check_order(program)
        self.reach: Mapping[MemoryRegion, int] = reach_of(program)
        self._blocks: dict[int, BlockLifetimes] = {}
        self._open = [(number, id(loop)) for number, loop in enumerate(loops(program.body)) if depends_on_data(loop)]

    def runs(self, counted: Mapping[int, int]) -> dict[int, float]:
        """What `Machine.trips` counted of the loops whose bounds depend on data, by the number of the loop."""
        return {number: float(counted.get(key, 0)) for number, key in self._open}

    def of(self, block: Block) -> BlockLifetimes:
        """The lifetimes of a block of the program; a loop asks in every trip."""
        found = self._blocks.get(id(block))
        if found is None:
            found = self._blocks[id(block)] = _lifetimes(block)
        return found


def _lifetimes(block: Block) -> BlockLifetimes:
    own = {buffer.id: buffer for buffer in block.buffers}
    shared = tuple(buffer for buffer in block.buffers if buffer.region is MemoryRegion.shared_hbm)
    live = {buffer.id for buffer in shared}
    begins: list[tuple[Buffer, ...]] = []
    last: dict[int, int] = {}
    for position, item in enumerate(block.items):
        touched = dict.fromkeys(_touched(item, own))
        begins.append(tuple(own[key] for key in touched if key not in live))
        live |= touched.keys()
        last.update(dict.fromkeys(touched, position))
    ends: list[list[int]] = [[] for _ in block.items]
    for key, position in last.items():
        ends[position].append(key)
    return BlockLifetimes(own, shared, tuple(begins), tuple(map(tuple, ends)))


def _touched(item: Issued | ForLoop | WhileLoop, own: Mapping[int, Buffer]) -> Iterator[int]:
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
