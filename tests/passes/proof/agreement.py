"""What the proof of schedules says against what the oracle says, program by program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random

from nki.core.dtypes import uint8
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.passes.proof.core_races import between_cores
from nki.passes.proof.faults import Race
from nki.passes.proof.happens_before import check
from nki.spec.engine import engine
from nki.spec.program import Block, ForLoop, Issued, Program, Sync
from nki.target.load import load_target
from tests.passes.proof import oracle
from tests.passes.proof.programs import issue, program, waits

TRN2 = load_target("trn2")
Verdicts = tuple[str, str]
"""Of the oracle and of the proof: "ordered", "racy" or "stuck"."""


def table(seeds: Iterable[int], of: str = "queues") -> Counter[Verdicts]:
    """How often which verdicts came together, for random programs of one core or ("cores") of two."""
    judge = {"queues": queues, "cores": cores}[of]
    return Counter(judge(seed) for seed in seeds)


def queues(seed: int) -> Verdicts:
    """A program of one core on several queues."""
    random = Random(seed)
    made = program(random)
    syncs = waits(random, made)
    made.program.body.sync = list(syncs)
    tasks = oracle.tasks(made.does, syncs, made.program.edges)
    return oracle.verdict(tasks, range(len(tasks))), _said(check([made.program], TRN2))


def cores(seed: int) -> Verdicts:
    """Two cores that run their instructions one by one, and meet here and there."""
    random = Random(seed)
    programs = two_cores(random)
    tasks: list[oracle.Task] = []
    meetings: list[list[int]] = []
    for made in programs:
        shared = {b.id: b.name for b in (*made.inputs, *made.body.buffers) if b.region is MemoryRegion.shared_hbm}
        does = [_apart(oracle.does(issued, made, shared)) for issued in expanded(made.body)]
        base = len(tasks)
        tasks += oracle.tasks(does, [Sync("sync")] * len(does), core=made.core, base=base)
        meetings.append([base + at for at, item in enumerate(does) if item.meets])
    for a, b in zip(*meetings, strict=False):
        tasks[a].partner, tasks[b].partner = b, a
    for alone in meetings[0][len(meetings[1]) :] + meetings[1][len(meetings[0]) :]:
        tasks[alone].impossible = True
    return oracle.verdict(tasks, _one_by_one(tasks)), _said(between_cores(programs, TRN2))


def _apart(does: oracle.Does) -> oracle.Does:
    """The tensor that a barrier names is not touched by it."""
    return oracle.Does(frozenset(), frozenset(), True) if does.meets else does


def _said(races: list[Race]) -> str:
    if not races:
        return "ordered"
    return "stuck" if any(race.kind in ("deadlock", "signal", "meeting") for race in races) else "racy"


def _one_by_one(tasks: list[oracle.Task]) -> list[int]:
    """Some order of two cores: each goes on until it waits for the other."""
    order: list[int] = []
    for _ in tasks:
        done = set(order)
        for number, task in enumerate(tasks):
            partner = task.partner
            here = partner is None or partner in done or all(other in done for other in tasks[partner].after)
            if number not in done and here and all(other in done for other in task.after):
                order.append(number)
                done.add(number)
    return order


# --- programs of two cores


def two_cores(random: Random) -> list[Program]:
    """Programs of the same shape: copies between shared tensors and private ones, meetings, loops of a few trips."""
    shape = _shape(random, 2)
    programs = []
    for core in range(2):
        inputs = [Buffer(0, "a", MemoryRegion.shared_hbm, (2, 6), uint8, None, "input")]
        shift = 10 * core  # the same tensors have other numbers on the other core
        shared = [Buffer(1 + shift, "out", MemoryRegion.shared_hbm, (2, 6), uint8)]
        private = [
            Buffer(2 + shift, "s", MemoryRegion.sbuf, (1, 12), uint8),
            Buffer(3 + shift, "p", MemoryRegion.private_hbm, (2, 6), uint8),
        ]
        made = Program("k", "trn2", core, 2, inputs)
        made.body = _filled(random, shape, [*inputs, *shared], private)
        if random.random() < 0.05:
            made.body.items.insert(0, issue("barrier", cores=(0, 1)))
        made.body.buffers = [*shared, *private]
        programs.append(made)
    return programs


def _shape(random: Random, depth: int) -> list[object]:
    """ "copy", "meet" and loops as (trips, shape)."""
    made: list[object] = []
    for _ in range(random.randint(1, 4)):
        kind = random.choice(["copy", "copy", "meet", "loop" if depth else "copy"])
        made.append((random.randint(0, 3), _shape(random, depth - 1)) if kind == "loop" else kind)
    return made


def _filled(random: Random, shape: list[object], shared: list[Buffer], private: list[Buffer]) -> Block:
    items: list[Issued | ForLoop] = []
    for kind in shape:
        if isinstance(kind, tuple):
            trips, inner = kind
            body = _filled(random, inner, shared, private)
            items.append(ForLoop(0, 2 * trips, 2, VirtualRegister(0), body, UNKNOWN))
        elif kind == "meet":
            items.append(issue("core_barrier", data=_piece(random, shared[-1]), cores=(0, 1)))
        else:
            ends = [_piece(random, random.choice(shared)), _piece(random, random.choice(private))]
            random.shuffle(ends)
            items.append(issue("dma_copy", engine.dma, dst=ends[0], src=ends[1]))
    return Block([], list(items))


def _piece(random: Random, buffer: Buffer) -> View:
    step = random.choice([1, 1, 2, 6])
    low = random.randrange(12)
    count = random.randint(1, min(3, (11 - low) // step + 1))
    if buffer.on_chip:
        return View(buffer, uint8, (1, count), (12, step), low)
    return View(buffer, uint8, (count,), (step,), low)


def expanded(block: Block) -> Iterator[Issued]:
    """The instructions in the order in which they run."""
    for item in block.items:
        if isinstance(item, Issued):
            yield item
        elif isinstance(item, ForLoop):
            assert isinstance(item.lower, int) and isinstance(item.upper, int), "made with constants"
            for _ in range(item.lower, item.upper, item.step):
                yield from expanded(item.body)
