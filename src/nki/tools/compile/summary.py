"""What the compiler did, in figures: time of each pass, waits, memory, and how long the kernel is estimated to run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from nki.core.errors import VerificationError
from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.analysis.memory_usage import MemoryUsage, usage
from nki.passes.pipeline import Stage
from nki.passes.scheduling.list_schedule import in_order
from nki.passes.scheduling.semaphores import synchronize
from nki.passes.scheduling.tasks import Tasks, machine_of
from nki.profiling.evidence import measured_target
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, WhileLoop
from nki.target.model import Target
from nki.timing.cores import timelines
from nki.tools.output import SafeConsole, stdout

_PLAIN_WIDTH = 200
_REORDER = frozenset({"allocate_and_schedule", "schedule"})
"""Passes after which a program may be in another order."""


@dataclass(frozen=True, slots=True)
class PassRow:
    """One pass: seconds for all cores, and the instructions after it, each loop body once."""

    name: str
    seconds: float
    instructions: int

    @property
    def microseconds(self) -> float:
        """For each instruction."""
        return self.seconds * 1e6 / max(1, self.instructions)

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "name": self.name,
            "seconds": round(self.seconds, 6),
            "instructions": self.instructions,
            "us_per_instruction": round(self.microseconds, 2),
        }


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """SBUF or PSUM of the core that needs most, in bytes per partition; `peak` is None before allocation."""

    name: str
    bound: int
    peak: int | None
    capacity: int

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {"name": self.name, "bound": self.bound, "peak": self.peak, "capacity": self.capacity}


@dataclass(frozen=True, slots=True)
class Summary:
    """A compilation in figures.

    Attributes:
        passes: in the order in which they ran.
        waits_before: dependences between instructions of different queues, each of which would take a wait.
        waits_after: waits that there are. Both are None for a program that is not scheduled.
        memory: SBUF and PSUM.
        makespan: ns that the slowest core is estimated to take; None for a program that is not scheduled.
        program_order: the same for the kernel as it is written, with tensors that share no memory; None if what came
            in had been reordered.
        validated: whether the model of the target was compared with published measurements.
        doubt: why there is no estimate although the program is scheduled.
    """

    passes: tuple[PassRow, ...]
    waits_before: int | None
    waits_after: int | None
    memory: tuple[MemoryRow, ...]
    makespan: float | None
    program_order: float | None
    validated: bool
    doubt: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "passes": [row.to_json() for row in self.passes],
            "waits_before": self.waits_before,
            "waits_after": self.waits_after,
            "memory": [row.to_json() for row in self.memory],
            "makespan_ns": self.makespan,
            "program_order_ns": self.program_order,
            "model_validated": self.validated,
            "doubt": self.doubt,
        }


def summarize(stages: Sequence[Stage], target: Target) -> Summary:
    """The figures of the stages, the first of which is what came in."""
    last = stages[-1].programs
    written = [program for program in stages[0].programs if not _REORDER & set(program.passed)]
    scheduled = all(_scheduled(program.body) for program in last)
    makespan = ordered = None
    doubt = ""
    if scheduled:
        try:
            makespan = _makespan(last, target)
            ordered = _makespan([program_order(p, target) for p in written], target) if written else None
        except VerificationError as error:  # the cores do not meet; the kernel cannot end either
            doubt = f"{error.message} [{error.code}]"
    return Summary(
        tuple(PassRow(stage.name, stage.seconds, _count(stage.programs)) for stage in stages[1:]),
        sum(_crossing(program, target) for program in last) if scheduled else None,
        sum(len(sync.waits) for program in last for sync in _syncs(program.body)) if scheduled else None,
        tuple(_worst(rows) for rows in zip(*(usage(program, target) for program in last), strict=True)),
        makespan,
        ordered,
        target.validated,
        doubt,
    )


def program_order(program: Program, target: Target) -> Program:
    """A program that is not scheduled yet, with queues and waits in the order in which it is written."""
    plans: dict[tuple[int, int], list[Sync]] = {}
    tasks, machine = Tasks(target), machine_of(target)
    for segment in segments_of(program):
        producers = dependences(segment.items, program, target, segment.edges, segment.fences)
        queues = in_order(tasks.of(segment.items), producers, machine).queues
        plans[id(segment.block), segment.first] = synchronize(queues, producers).syncs
    return replace(program, body=_with_syncs(program.body, plans))


def _with_syncs(block: Block, plans: dict[tuple[int, int], list[Sync]]) -> Block:
    items: list[Issued | ForLoop | WhileLoop] = []
    syncs: list[Sync | None] = []
    for position, item in enumerate(block.items):
        if isinstance(item, Issued):
            items.append(item)
            syncs += plans.get((id(block), position), [])
        else:
            items.append(replace(item, body=_with_syncs(item.body, plans)))
            syncs.append(None)
    return Block(list(block.buffers), items, syncs)


def _makespan(programs: Sequence[Program], target: Target) -> float:
    return max(each.makespan for each in timelines(programs, target))


def _crossing(program: Program, target: Target) -> int:
    """Dependences between instructions of different queues of a scheduled program."""
    found = 0
    for segment in segments_of(program):
        syncs = (segment.block.sync or [])[segment.first : segment.first + len(segment.items)]
        queues = [sync.queue for sync in syncs if sync is not None]
        producers = dependences(segment.items, program, target, segment.edges, segment.fences)
        found += synchronize(queues, producers).crossing
    return found


def _scheduled(block: Block) -> bool:
    return block.sync is not None and all(isinstance(i, Issued) or _scheduled(i.body) for i in block.items)


def _syncs(block: Block) -> Iterator[Sync]:
    yield from (sync for sync in block.sync or [] if sync is not None)
    for item in block.items:
        if not isinstance(item, Issued):
            yield from _syncs(item.body)


def _count(programs: Sequence[Program]) -> int:
    return sum(1 for program in programs for _ in program.body.walk())


def _worst(rows: Sequence[MemoryUsage]) -> MemoryRow:
    peaks = [row.peak for row in rows if row.peak is not None]
    return MemoryRow(
        rows[0].name, max(row.bound for row in rows), max(peaks) if peaks else None, max(row.capacity for row in rows)
    )


def console_for(text: str | None) -> Console:
    """Where the figures go: to stdout, unless text that was asked for goes there."""
    if text is None:
        return stdout()
    width = None if sys.stderr.isatty() else _PLAIN_WIDTH
    return SafeConsole(stderr=True, width=width, highlight=False, markup=False, emoji=False)


def show_summary(title: str, summary: Summary, console: Console) -> None:
    """Tables for people."""
    table = Table(title=title, title_justify="left")
    table.add_column("pass")
    for heading in ("ms", "µs/instruction", "instructions"):
        table.add_column(heading, justify="right")
    for row in summary.passes:
        table.add_row(row.name, f"{row.seconds * 1e3:.2f}", f"{row.microseconds:.1f}", f"{row.instructions:,}")
    console.print(table)
    grid = Table.grid(padding=(0, 2))
    if summary.waits_after is not None:
        grid.add_row("waits", f"{summary.waits_after} for {summary.waits_before} dependences between queues")
    for memory in summary.memory:
        grid.add_row(f"{memory.name} peak", _memory(memory))
    grid.add_row("makespan", _time(summary))
    console.print(grid)


def _memory(row: MemoryRow) -> str:
    peak = "not allocated" if row.peak is None else f"{row.peak:,} bytes per partition"
    return f"{peak}, at least {row.bound:,} needed, {row.capacity:,} available"


def _doubt() -> str:
    measured = measured_target()
    return f" (model not compared with measurements; that of {measured} was: --target {measured})"


def _time(summary: Summary) -> str:
    if summary.makespan is None:
        return summary.doubt or "not scheduled"
    before = "" if summary.program_order is None else f", {summary.program_order / 1e3:.2f} µs in program order"
    doubt = "" if summary.validated else _doubt()
    return f"{summary.makespan / 1e3:.2f} µs estimated{before}{doubt}"
