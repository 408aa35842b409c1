"""How good schedules are: makespans on the timing model, against the order of the source and against a lower bound.

For every kernel of `benchmarks.kernels.cases`: instructions; ns of the compiled program; the same pipeline with every
segment in the order of the source; the lower bound (busiest unit or longest chain of dependences) with the dependences
of the kernel and with those that addresses add; the least time, a lower bound that also counts what comes before a unit
can begin and after it is done (`benchmarks.least_time`); ratios; the peak of SBUF over what is live at once; waits over
the dependences between queues. Then loops on the device with and without `CompileConfig.prefetch_auto`. Equal versions
print equal numbers. Usage: ``python benchmarks/schedule_quality.py [--only WORD] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.kernels.cases import LOOPS, MIXED, STRAIGHT, Case
from benchmarks.least_time import least_time
from tests.oracles.written_order import as_written

from nki.compiler import CompileConfig
from nki.core.collector import paused_collector
from nki.driver.launch import Launch, trace_only
from nki.options import Options
from nki.passes import allocate_and_schedule, pipeline, schedule
from nki.passes.allocation import addresses
from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.analysis.memory_usage import usage
from nki.passes.context import Context, Pass, rewriting
from nki.passes.scheduling.semaphores import synchronize
from nki.spec.program import Issued, Program
from nki.target.load import load_target
from nki.target.model import Target
from nki.timing.bound import lower_bound
from nki.timing.cores import timelines

GOAL = 1.15
"""Geometric mean of makespan / bound, and of makespan / least time."""
WRITTEN = rewriting("schedule", "The order of the source.", as_written)
AS_WRITTEN: tuple[Pass, ...] = tuple(
    {allocate_and_schedule.PASS.name: addresses.PASS, schedule.PASS.name: WRITTEN}.get(item.name, item)
    for item in pipeline.PIPELINE
)


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel and shape; times in ns, of two cores those of the slower one.

    Attributes:
        instructions: of core 0, compiled.
        compiled, written: makespans in the order of the compiler and of the source.
        least: a larger lower bound, see `least_time`; `bound` if there are loops.
        bound, placed_bound: lower bounds with the dependences of the kernel, and of the compiled program at its places.
        peak, live: SBUF bytes of each partition that are used, and live at once.
        crossing, waits: dependences between queues, and those that needed a wait.
    """

    name: str
    instructions: int
    compiled: float
    written: float
    bound: float
    placed_bound: float
    least: float
    peak: int
    live: int
    crossing: int
    waits: int

    @property
    def ratio(self) -> float:
        return self.compiled / self.bound

    @property
    def gain(self) -> float:
        return self.written / self.compiled


@dataclass(frozen=True, slots=True)
class LoopRow:
    """A kernel with a loop on the device; ns without and with `prefetch_auto`."""

    name: str
    plain: float
    prefetched: float
    bound: float


def programs_of(case: Case, target: Target) -> list[Program]:
    """The traced programs, one for each core."""
    launch = Launch(case.kernel, lnc=case.cores)
    return [tracer.program for tracer in trace_only(launch, tuple(case.arguments()), {}, target, Options())]


def compiled(
    programs: Sequence[Program], target: Target, passes: Sequence[Pass], config: CompileConfig | None = None
) -> tuple[tuple[Program, ...], tuple[Program, ...]]:
    """The programs before allocation, and at the end."""
    context = Context(target, config=config or CompileConfig())
    stages: dict[str, tuple[Program, ...]] = {}

    def keep(stage: pipeline.Stage) -> None:
        stages[stage.name] = stage.programs

    done = pipeline.compile_programs(programs, context, passes, keep)
    return stages["unroll"], done.programs


def makespan(programs: Sequence[Program], target: Target) -> float:
    """ns until the last core is done."""
    return max(line.makespan for line in timelines(programs, target))


def bound(programs: Iterable[Program], target: Target) -> float:
    """The largest lower bound of all cores."""
    return max(
        lower_bound(
            program,
            target,
            [dependences(s.items, program, target, s.edges, s.fences) for s in segments_of(program)],
        )
        for program in programs
    )


def least(programs: Sequence[Program], target: Target) -> float:
    """The larger one of `bound` and, without loops, `least_time`."""
    found = [bound(programs, target)]
    for program in programs:
        if all(isinstance(item, Issued) for item in program.body.items):
            (segment,) = segments_of(program)
            needs = dependences(segment.items, program, target, segment.edges, segment.fences)
            found.append(least_time(segment.items, needs, target))
    return max(found)


def waits_of(program: Program, target: Target) -> tuple[int, int]:
    """Dependences between queues, and waits."""
    crossing = waits = 0
    for segment in segments_of(program):
        syncs = (segment.block.sync or [])[segment.first : segment.after]
        needs = dependences(segment.items, program, target, segment.edges, segment.fences)
        found = synchronize([sync.queue for sync in syncs if sync is not None], needs)
        crossing, waits = crossing + found.crossing, waits + found.waits
    return crossing, waits


def row_of(case: Case) -> Row:
    """Compile and time a kernel."""
    target = load_target(case.target)
    with paused_collector():
        traced = programs_of(case, target)
        before, done = compiled(traced, target, pipeline.PIPELINE)
        _, written = compiled(traced, target, AS_WRITTEN)
        sbuf, _ = usage(done[0], target)
        assert sbuf.peak is not None, "it was allocated"
        return Row(
            case.label,
            sum(1 for _ in done[0].body.walk()),
            makespan(done, target),
            makespan(written, target),
            bound(before, target),
            bound(done, target),
            least(before, target),
            sbuf.peak,
            sbuf.bound,
            *waits_of(done[0], target),
        )


def loop_row_of(case: Case) -> LoopRow:
    """Compile and time a kernel with and without overlapping trips."""
    target = load_target(case.target)
    traced = programs_of(case, target)
    _, plain = compiled(traced, target, pipeline.PIPELINE)
    before, ahead = compiled(traced, target, pipeline.PIPELINE, CompileConfig(prefetch_auto=True))
    return LoopRow(case.label, makespan(plain, target), makespan(ahead, target), bound(before, target))


def geomean(values: Sequence[float]) -> float:
    """Geometric mean; 1 of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0


def print_rows(rows: Sequence[Row]) -> None:
    """The table of kernels, and what follows from it."""
    print(f"{'kernel':34}{'instr':>6}{'us':>9}{'written':>9}{'bound':>9}{'placed':>9}{'least':>9}", end="")
    print(f"{'x bound':>9}{'x least':>9}{'gain':>7}{'SBUF/live':>11}{'waits':>14}")
    for row in rows:
        times = (row.compiled, row.written, row.bound, row.placed_bound, row.least)
        print(f"{row.name:34}{row.instructions:>6}", *(f"{ns / 1000:>8.1f}" for ns in times), end="")
        print(f"{row.ratio:>9.3f}{row.compiled / row.least:>9.3f}{row.gain:>7.2f}", end="")
        print(f"{row.peak / max(1, row.live):>11.2f}{f'{row.waits} of {row.crossing}':>14}")
    worse = [row.name for row in rows if row.compiled > row.written * (1 + 1e-9)]
    print(f"makespan / bound: geometric mean {geomean([row.ratio for row in rows]):.3f} (goal {GOAL})")
    print(f"makespan / bound at its places:  {geomean([row.compiled / row.placed_bound for row in rows]):.3f}")
    print(f"makespan / least time:           {geomean([row.compiled / row.least for row in rows]):.3f} (goal {GOAL})")
    print(f"least time / bound:              {geomean([row.least / row.bound for row in rows]):.3f}")
    print(f"order of the source / makespan:  {geomean([row.gain for row in rows]):.3f}")
    print(f"worse than the order of the source: {len(worse)} of {len(rows)} (goal 0) {', '.join(worse)}")


def print_loops(rows: Sequence[LoopRow]) -> None:
    """The table of loops."""
    print(f"\n{'loop on the device':34}{'plain us':>10}{'prefetch':>10}{'gain':>7}{'x bound':>9}")
    for row in rows:
        print(f"{row.name:34}{row.plain / 1000:>10.1f}{row.prefetched / 1000:>10.1f}", end="")
        print(f"{row.plain / row.prefetched:>7.2f}{row.prefetched / row.bound:>9.3f}")
    print(f"geometric mean of the gain: {geomean([row.plain / row.prefetched for row in rows]):.3f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kernels whose label contains this")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    rows = [row_of(case) for case in (*STRAIGHT, *MIXED) if options.only in case.label]
    loops = [loop_row_of(case) for case in LOOPS if options.only in case.label]
    if options.json:
        against = geomean([row.compiled / row.least for row in rows])
        summary = {"geomean": geomean([row.ratio for row in rows]), "geomean_least": against, "goal": GOAL}
        found = {"kernels": [asdict(row) for row in rows], "loops": [asdict(row) for row in loops], "summary": summary}
        print(json.dumps(found, indent=1))
        return
    print_rows(rows)
    print_loops(loops)


if __name__ == "__main__":
    main()
