"""Sketches of synchronized programs, and a trivial way to synchronize a traced one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from nki.core.dtypes import float32
from nki.core.nki_tensor import NkiTensor
from nki.core.source import UNKNOWN
from nki.core.tensor import Buffer, MemoryRegion, View, whole
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.spec.engine import engine
from nki.spec.instruction import Instruction
from nki.spec.operand import ON_CHIP, out, source
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, Wait, WhileLoop
from nki.spec.queue import by_dma, dma_queues
from nki.spec.step import Cost, Step
from nki.target.load import load_target
from nki.target.model import Target


def _toy(
    dst: Annotated[NkiTensor, out(ON_CHIP)], src: Annotated[NkiTensor, source(ON_CHIP)]
) -> None:  # never executed: only its cost counts
    """An instruction."""


def toy(steps: Sequence[Step], runs_on: engine, effects: tuple[str, ...] = ()) -> Instruction[Any]:
    """An instruction with these steps, which no registry knows."""
    kept = tuple(steps)
    cost = Cost(lambda a, t, e: kept, "a test")
    return Instruction(_toy, (runs_on,), None, (), "", "", (), False, True, cost, effects)


def tensor(number: int, region: str = "sbuf", address: tuple[int, int] | None = None, columns: int = 8) -> View:
    """All of a float32 tensor of 128 partitions."""
    shape = (128, columns)
    return whole(Buffer(number, f"t{number}", MemoryRegion[region], shape, float32, address))


class Sketch:
    """A segment that grows; `after` names positions whose completion is awaited."""

    def __init__(self) -> None:
        self.items: list[Issued] = []
        self.queues: list[str] = []
        self.after: list[tuple[int, ...]] = []

    def add(
        self,
        queue: str,
        *steps: Step,
        after: Sequence[int] = (),
        dst: View | None = None,
        src: View | None = None,
        effects: tuple[str, ...] = (),
    ) -> int:
        """Append an instruction; returns its position. Without operands it touches tensors of its own."""
        number = len(self.items)
        target = engine.dma if queue.startswith("dma") else engine[queue]
        declared = toy(steps, target, effects)
        arguments = declared.arguments(dst or tensor(2 * number), src or tensor(2 * number + 1))
        self.items.append(Issued(declared, arguments, UNKNOWN, target))
        self.queues.append(queue)
        self.after.append(tuple(after))
        return number

    def issue(self, queue: str, issued: Issued, after: Sequence[int] = ()) -> int:
        """Append a real instruction."""
        self.items.append(issued)
        self.queues.append(queue)
        self.after.append(tuple(after))
        return len(self.items) - 1

    def block(self) -> Block:
        """The segment with its waits; producers of the same queue need none."""
        awaited = {
            p for position, before in enumerate(self.after) for p in before if self.queues[p] != self.queues[position]
        }
        counts: dict[str, int] = {}
        given = []
        for position, queue in enumerate(self.queues):
            counts[queue] = counts.get(queue, 0) + (position in awaited)
            given.append(counts[queue])
        syncs: list[Sync | None] = []
        for position, queue in enumerate(self.queues):
            waits: dict[str, int] = {}
            for producer in self.after[position]:
                other = self.queues[producer]
                if other != queue:
                    waits[other] = max(waits.get(other, 0), given[producer])
            pairs = tuple(Wait(name, waits[name]) for name in sorted(waits))
            syncs.append(Sync(queue, pairs, position in awaited))
        return Block([], list(self.items), syncs)

    def program(self, target: Target | None = None) -> Program:
        """The segment as a program."""
        return program(self.block())


def program(*blocks: Block | ForLoop | WhileLoop) -> Program:
    """Blocks and loops one after another, as one program."""
    body = Block([], [], [])
    assert body.sync is not None
    for block in blocks:
        if isinstance(block, Block):
            assert block.sync is not None
            body.items += block.items
            body.sync += block.sync
        else:
            body.items.append(block)
            body.sync.append(None)
    return Program("sketch", "trn2", 0, 1, body=body)


def traced(kernel: Callable[..., Any], *args: Any, target: Target | None = None, lnc: int | None = None) -> Any:
    """The traced programs of a kernel, one for each core."""
    chosen = target or load_target("trn2")
    return [tracer.program for tracer in trace_only(Launch(kernel, lnc=lnc), args, {}, chosen, Options())]


def trivially(source: Program, target: Target) -> Program:
    """Program order; every instruction waits for all earlier ones of other queues; DMA queues take turns."""
    turn = iter(range(1 << 30))
    return replace(source, body=_synchronized(source.body, dma_queues(target), turn))


def _synchronized(block: Block, queues: tuple[str, ...], turn: Any) -> Block:
    syncs: list[Sync | None] = []
    items: list[Any] = []
    counts: dict[str, int] = {}
    for item in block.items:
        if isinstance(item, Issued):
            queue = queues[next(turn) % len(queues)] if by_dma(item) else item.engine.name
            waits = tuple(Wait(name, counts[name]) for name in sorted(counts) if name != queue)
            counts[queue] = counts.get(queue, 0) + 1
            syncs.append(Sync(queue, waits, True))
            items.append(item)
        else:
            counts = {}
            syncs.append(None)
            items.append(replace(item, body=_synchronized(item.body, queues, turn)))
    return Block(list(block.buffers), items, syncs)
