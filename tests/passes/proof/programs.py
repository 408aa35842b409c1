"""Random small programs of real instructions on tensors that overlap in every way, with good and bad waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any

import nki.language as nl
from nki.core.dtypes import uint8, uint16, uint32
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.core.tensor import Buffer, FreeIndirection, MemoryRegion, ScalarOffset, VectorOffset, View
from nki.spec.engine import engine
from nki.spec.instruction import REGISTRY, Instruction
from nki.spec.operand import Operand
from nki.spec.program import Block, Issued, Program, Sync, Wait
from tests.passes.proof.oracle import GRANULE, Does, conflict, does


def everything(name: Annotated[str | None, Operand("text")] = None) -> None:
    """An instruction that touches memory which is not an operand."""


FENCE: Instruction[Any] = Instruction(
    everything, (engine.gpsimd,), None, (), "", "", (), False, False, None, ("fence",)
)


KINDS = {
    "tensor_copy": 6,
    "tensor_tensor": 5,
    "memset": 3,
    "dma_copy": 7,
    "tensor_copy_predicated": 1,
    "activation_reduce": 2,
    "nc_matmul": 3,
    "register_move": 2,
    "register_load": 2,
    "register_store": 2,
    "rand2": 1,
    "device_print": 1,
    "core_barrier": 1,
    "everything": 0.4,
}
"""Instructions of random programs, and how often they come."""


def issue(name: str, by: engine | None = None, **arguments: Any) -> Issued:
    """A record of an instruction with defaults for what is not given; nothing is verified."""
    instruction = FENCE if name == "everything" else REGISTRY[name]
    missing = {n: None for n in instruction.__signature__.parameters if n not in arguments}
    defaults = {n: p.default for n, p in instruction.__signature__.parameters.items() if p.default is not p.empty}
    made = instruction.arguments(**{**missing, **defaults, **arguments})
    return Issued(instruction, made, UNKNOWN, by or instruction.engines[0])


@dataclass(frozen=True)
class Made:
    """A program of one segment, what its instructions do, and the queue of each."""

    program: Program
    does: list[Does]
    queues: list[str]

    @property
    def items(self) -> list[Any]:
        return self.program.body.items

    def conflicts(self) -> list[tuple[int, int]]:
        """Pairs of positions that must keep their order, and edges."""
        found = [(i, j) for j in range(len(self.does)) for i in range(j) if conflict(self.does[i], self.does[j])]
        return sorted({*found, *self.program.edges})


def tensors(random: Random) -> tuple[list[Buffer], dict[int, tuple[int, int]] | None]:
    """Buffers in a few bytes of memory, some placed on top of each other."""
    placed = random.random() < 0.7
    buffers, placement = [], {}
    for key in range(random.randint(2, 4)):
        region = random.choice([MemoryRegion.sbuf] * 3 + [MemoryRegion.psum, MemoryRegion.private_hbm])
        dtype = random.choice([uint8, uint8, uint16])
        shape = (random.randint(1, 3), random.choice([4, 6, 8]))
        address = (random.randint(0, 1), 2 * random.randint(0, 3)) if random.random() < 0.3 else None
        if not region.on_chip:
            address = None
        buffers.append(Buffer(key, f"t{key}", region, shape, dtype, address))
        if region.on_chip and address is None:
            placement[key] = (0, 2 * random.randint(0, 5))
    return buffers, placement if placed else None


def view(random: Random, buffer: Buffer, registers: Sequence[VirtualRegister] = ()) -> View:
    """Some elements: a slice, steps, two steps, or a dynamic address."""
    dtype = random.choice([buffer.dtype, uint8])
    row = buffer.row_bytes // dtype.itemsize
    if not buffer.on_chip:
        return _flat_view(random, buffer, dtype, row, registers)
    first = random.randrange(buffer.partitions)
    shape, strides, low = [random.randint(1, buffer.partitions - first)], [row], random.randrange(row)
    room = row - low
    for _ in range(random.randint(1, 2)):
        stride = random.choice([1, 1, 1, 2, 2, 3, 4, 0])
        count = random.randint(1, max(1, (room - 1) // stride + 1 if stride else 2))
        shape.append(count)
        strides.append(stride)
        room -= stride * (count - 1)
    made = View(buffer, dtype, tuple(shape), tuple(strides), first * row + low)
    if registers and random.random() < 0.1:
        return made._replace(dynamic=ScalarOffset(random.choice(registers), random.choice([1, 2, 3, row])))
    if random.random() < 0.04:
        index = View(buffer, dtype, (shape[0], 1), (row, 1), first * row)
        return made._replace(shape=(shape[0], 2), strides=(row, 1), dynamic=FreeIndirection(index, 2))
    return made


def _flat_view(random: Random, buffer: Buffer, dtype: Any, total: int, registers: Sequence[VirtualRegister]) -> View:
    low = random.randrange(total)
    room, shape, strides = total - low, [], []
    for _ in range(random.randint(1, 3)):
        stride = random.choice([1, 1, 2, 3, buffer.shape[1], buffer.shape[1]])
        count = random.randint(1, max(1, (room - 1) // stride + 1))
        shape.append(count)
        strides.append(stride)
        room -= stride * (count - 1)
    made = View(buffer, dtype, tuple(shape), tuple(strides), low)
    if registers and random.random() < 0.15:
        return made._replace(dynamic=ScalarOffset(random.choice(registers), random.choice([1, 2, buffer.shape[1]])))
    if random.random() < 0.05:
        rows = Buffer(90, "rows", MemoryRegion.sbuf, (4, 1), uint32, (0, 2))
        index = View(rows, uint32, (shape[0], 1), (1, 1), 0)
        return made._replace(dynamic=VectorOffset(index, buffer.shape[1]))
    return made


def instruction(random: Random, buffers: Sequence[Buffer], registers: Sequence[VirtualRegister]) -> Issued:
    """One instruction of any kind that the oracle knows."""

    def some() -> View:
        return view(random, random.choice(buffers), registers)

    compute = random.choice([engine.vector, engine.scalar, engine.gpsimd])
    kind = random.choices(list(KINDS), list(KINDS.values()))[0]
    register = random.choice(registers)
    match kind:
        case "tensor_copy":
            return issue(kind, compute, dst=some(), src=some())
        case "tensor_tensor":
            return issue(kind, compute, dst=some(), data1=some(), data2=some(), op=nl.add)
        case "memset":
            return issue(kind, compute, dst=some(), value=0.0)
        case "dma_copy":
            return issue(kind, engine.dma, dst=some(), src=some())
        case "tensor_copy_predicated":
            return issue(kind, engine.vector, dst=some(), src=some(), predicate=some())
        case "activation_reduce":
            return issue(kind, dst=some(), data=some(), reduce_res=some(), op=nl.exp, reduce_op=nl.add)
        case "nc_matmul":
            mode = random.choice([None, True, False])
            dst = some()
            while any(stride * dst.dtype.itemsize > GRANULE for stride in dst.strides[1:]) and mode is not False:
                dst = some()  # of larger odd steps more counts than is touched
            return issue(kind, dst=dst, stationary=some(), moving=some(), accumulate=mode)
        case "register_move":
            return issue(
                kind, random.choice([engine.sync, engine.vector]), dst=register, src=random.choice([1, *registers])
            )
        case "register_load":
            return issue(kind, dst=register, src=some())
        case "register_store":
            return issue(kind, dst=some(), src=register)
        case "rand2":
            return issue(kind, dst=some(), min=0.0, max=1.0)
        case "device_print":
            return issue(kind, prefix="", tensor=some())
        case "core_barrier":
            return issue(kind, data=some(), cores=(0, 1))
    return issue("everything")


def program(random: Random, length: int | None = None, most: int = 7) -> Made:
    """A program without waits."""
    buffers, placement = tensors(random)
    registers = [VirtualRegister(0), VirtualRegister(1)]
    items = [instruction(random, buffers, registers) for _ in range(length or random.randint(2, most))]
    made = Program("k", "trn2", 0, 1, body=Block(list(buffers), list(items)), placement=placement)
    if random.random() < 0.15 and len(items) > 2:
        low, high = sorted(random.sample(range(len(items)), 2))
        made.edges = [(low, high)]
    transfers = random.sample(["dma0", "dma1", "dma2"], random.randint(1, 2))
    queues = [random.choice(transfers) if i.engine is engine.dma else i.engine.name for i in items]
    return Made(made, [does(i, made) for i in items], queues)


def waits_for(queues: Sequence[str], pairs: Sequence[tuple[int, int]]) -> list[Sync]:
    """Signals and waits that make the second of each pair wait for the first."""
    signals = {first for first, _ in pairs}
    number: dict[int, int] = {}
    counts: dict[str, int] = {}
    for position, queue in enumerate(queues):
        if position in signals:
            number[position] = counts[queue] = counts.get(queue, 0) + 1
    return [
        Sync(
            queue,
            tuple(sorted({Wait(queues[a], number[a]) for a, b in pairs if b == position})),
            position in signals,
        )
        for position, queue in enumerate(queues)
    ]


def waits(random: Random, made: Made) -> list[Sync]:
    """Waits for all conflicts, for most, or for some; sometimes for things that nobody needs, or that never come."""
    pairs = [(a, b) for a, b in made.conflicts() if made.queues[a] != made.queues[b]]
    kept = [pair for pair in pairs if random.random() < random.choice([1.0, 1.0, 0.9, 0.6])]
    if random.random() < 0.5:
        kept = pairs
        if pairs and random.random() < 0.5:
            kept = [pair for pair in pairs if pair != random.choice(pairs)]
    if random.random() < 0.2:
        first, second = random.sample(range(len(made.items)), 2)
        kept = [*kept, (first, second)]
    syncs = waits_for(made.queues, kept)
    if random.random() < 0.05:
        at = random.randrange(len(syncs))
        syncs[at] = syncs[at]._replace(waits=(*syncs[at].waits, Wait(random.choice(made.queues), random.randint(0, 3))))
    return syncs
