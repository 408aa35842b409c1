"""From compiled programs to a profile: time every core, explain every wait, fill the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nki import collectives
from nki.core.collector import paused_collector
from nki.profiling.about import About
from nki.profiling.advice.balance import engine_balance, slow_engine
from nki.profiling.advice.engines import far_strides, float32_matmul, two_inputs
from nki.profiling.advice.fusion import fusion
from nki.profiling.advice.ranking import Advice, Evidence, advise
from nki.profiling.advice.repeated_loads import repeated_loads
from nki.profiling.advice.repeated_results import repeated_results
from nki.profiling.advice.round_trips import round_trips
from nki.profiling.advice.shapes import few_partitions, short_instructions
from nki.profiling.advice.transfers import small_descriptors, transfer_starts
from nki.profiling.advice.waiting import (
    activation_tables,
    loop_barriers,
    no_overlap,
    reused_buffers,
    shared_ports,
    tensor_clock,
)
from nki.profiling.evidence import Expected, excess, expected_error
from nki.profiling.facts.bounds import bounds
from nki.profiling.facts.call_tree import Lines
from nki.profiling.facts.counters import Series, counters, peak
from nki.profiling.facts.critical_path import Piece, critical_path
from nki.profiling.facts.dependence_edges import Edges, Waited
from nki.profiling.facts.hardware import hardware
from nki.profiling.facts.memory_occupancy import Lifetime, lifetimes, loops
from nki.profiling.facts.model_kernels import ModelKernels
from nki.profiling.facts.time_breakdown import Spent, spent
from nki.profiling.facts.timed_core import CoreFacts, core_of
from nki.profiling.facts.work import Facter, Facts, operands_text, region_of
from nki.profiling.record import Profile
from nki.profiling.table import Table, from_rows
from nki.spec.model_kernels import CoreKernels
from nki.spec.program import Program
from nki.target.model import Target
from nki.timing.cores import timelines
from nki.version import version

RULES = (
    two_inputs,
    float32_matmul,
    far_strides,
    few_partitions,
    short_instructions,
    slow_engine,
    engine_balance,
    fusion,
    activation_tables,
    tensor_clock,
    shared_ports,
    reused_buffers,
    no_overlap,
    loop_barriers,
    small_descriptors,
    transfer_starts,
    repeated_loads,
    round_trips,
    repeated_results,
)
"""All rules of the advice."""

_MOST_ADVISED = 100
"""Instructions that advice names, those that cost most."""

_MOST_LINES = 20

Trips = Sequence[Mapping[int, float]]


class _Seen:
    """All that is known of one core; instructions of the cores are numbered one after the other from `base` on."""

    def __init__(self, core: CoreFacts, base: int, facter: Facter, trips: Mapping[int, float] | None) -> None:
        self.core, self.base, self.trips = core, base, trips
        self.facts: list[Facts] = [facter.of(issued) for issued in core.items]
        self.edges = Edges(core)
        self.waited: list[Waited] = [self.edges.waited(position) for position in range(len(core.items))]
        self.path: list[Piece] = critical_path(core)
        self.spent: Spent = spent(core)
        self.lives: list[Lifetime] = lifetimes(core)
        self.counters: dict[str, Series] = counters(core, self.facts, self.lives)
        self.bounds = bounds(core, self.facts, trips)

    def evidence(self) -> Evidence:
        """What the rules of the advice look at."""
        return Evidence(self.core, self.facts, self.spent, self.path, self.waited, self.bounds, self.edges, self.trips)

    def id(self, position: int) -> int:
        """The id of an instruction; -1 for none."""
        return self.base + position if position >= 0 else -1


def profile_programs(
    programs: Sequence[Program], target: Target, trips: Trips | None = None, kernels: Sequence[CoreKernels] = ()
) -> Profile:
    """The profile of a launch.

    Args:
        programs: compiled, one for each core.
        target: what they are timed for.
        trips: of loops whose bounds are not constant, as for `nki.timing.cores.timelines`.
        kernels: of a model, by core; () for a kernel.

    Raises:
        VerificationError: the programs are not synchronized, or instructions wait for each other (``timeline.*``).
    """
    with paused_collector():
        return _profile(programs, target, trips, ModelKernels(kernels))


def _profile(programs: Sequence[Program], target: Target, trips: Trips | None, kernels: ModelKernels) -> Profile:
    lines, facter = Lines(), Facter(target)
    seen: list[_Seen] = []
    base = 0
    for number, line in enumerate(timelines(programs, target, trips)):
        mine = trips[number] if trips is not None else None
        core = core_of(number, programs[number], target, line, mine)
        seen.append(_Seen(core, base, facter, mine))
        base += len(core.items)
    slowest = max(seen, key=lambda each: each.core.line.makespan)
    advice = [_advice(each, slowest, lines) for each in advise(slowest.evidence(), RULES)]
    tables = _tables(seen, lines, kernels)
    about = About(
        kernel=programs[0].name,
        target=target.name,
        validated=target.validated,
        generator=f"nki {version()}",
        cores=len(programs),
        makespan_ns=slowest.core.line.makespan,
        launch_ns=float(target.timing["launch_ns"]),
        totals=[_totals(each) for each in seen],
        hardware=hardware(target),
        advice=advice,
        accuracy=asdict(_expected(slowest)),
    )
    return Profile(about, tables)


def _expected(seen: _Seen) -> Expected:
    """How far off the time may be, by what bounds the slowest core."""
    line = seen.core.line
    meets = any(issued.instruction.name in collectives.__all__ for issued in seen.core.items)
    return expected_error(seen.core.target, {name: float(ns) for name, ns in line.busy.items()}, line.makespan, meets)


def _advice(advice: Advice, seen: _Seen, lines: Lines) -> dict[str, Any]:
    makespan = seen.core.line.makespan
    doubt = excess(_expected(seen).percent)
    positions = sorted(advice.costs, key=lambda at: (-advice.costs[at], at))[:_MOST_ADVISED]
    by_line: dict[int, float] = defaultdict(float)
    for position, cost in advice.costs.items():
        by_line[lines.of(seen.core.items[position].location)] += cost
    sources = sorted((number for number in by_line if number >= 0), key=lambda number: (-by_line[number], number))
    return {
        "rule": advice.rule,
        "engine": advice.engine,
        "message": advice.message,
        "fix": advice.fix,
        "saving_ns": advice.gain.most,
        "share": advice.gain.most / makespan if makespan else 0.0,
        "expected_ns": advice.gain.expected,
        "within_error": advice.gain.expected < doubt * makespan,
        "instructions": [seen.id(position) for position in positions],
        "sources": sources[:_MOST_LINES],
    }


def _totals(seen: _Seen) -> dict[str, Any]:
    core, facts = seen.core, seen.facts
    runs = core.line.runs.tolist()
    transfers = list(core.transfers())
    ran = [position for position in range(len(runs)) if core.ran[position]]
    busy = {name: float(ns) for name, ns in core.line.busy.items()}
    return {
        "makespan_ns": core.line.makespan,
        "instructions": sum(runs[at] for at in ran),
        "units": busy,
        "bound_by": seen.evidence().busiest(),
        "bounds": seen.bounds,
        "flops": sum(facts[at].flops * runs[at] for at in ran),
        "matmul_flops": sum(
            facts[at].flops * runs[at] for at in ran if "stationary" in core.items[at].instruction.operands
        ),
        "transpose_flops": sum(facts[at].transpose_flops * runs[at] for at in ran),
        "hbm_read_bytes": sum(facts[at].reads[0] * runs[at] for at in ran),
        "hbm_write_bytes": sum(facts[at].writes[0] * runs[at] for at in ran),
        "dma_bytes": sum(facts[at].nbytes * runs[at] for at in transfers),
        "transfers": sum(runs[at] for at in transfers),
        "sbuf_peak_bytes": peak(seen.counters["sbuf_bytes"]),
        "psum_peak_bytes": peak(seen.counters["psum_bytes"]),
        "hbm_peak_bytes": peak(seen.counters.get("hbm_bytes", [])),
        "assumed_loops": list(core.line.assumed),
    }


def _tables(seen: list[_Seen], lines: Lines, kernels: ModelKernels) -> dict[str, Table]:
    rows = [row for each in seen for row in _instructions(each, lines, kernels)]
    made = {
        "instructions": from_rows("instructions", rows),
        "edges": from_rows("edges", [row for each in seen for row in _edges(each)]),
        "dma": from_rows("dma", [row for each in seen for row in _dma(each)]),
        "counters": from_rows("counters", [row for each in seen for row in _counters(each)]),
        "memory": from_rows("memory", [row for each in seen for row in _memory(each, lines)]),
        "loops": from_rows("loops", [row for each in seen for row in _loops(each)]),
        "path": from_rows("path", [row for each in seen for row in _path(each)]),
        "time": from_rows("time", [row for each in seen for row in _time(each)]),
    }
    made["sources"] = lines.table()
    return {**made, **kernels.tables()}


def _critical_ns(seen: _Seen) -> list[float]:
    """How much of the critical path each instruction is, in ns."""
    critical = [0.0] * len(seen.core.items)
    for piece in seen.path:
        if piece.position >= 0:
            critical[piece.position] += piece.end - piece.start
    return critical


def _loops_around(seen: _Seen) -> list[int]:
    """The number of the innermost loop around each instruction; -1 outside of every one."""
    within = [-1] * len(seen.core.items)
    for loop in seen.core.plan.loops:
        within[loop.first : loop.last] = [loop.number] * (loop.last - loop.first)
    return within


def _instructions(seen: _Seen, lines: Lines, kernels: ModelKernels) -> list[tuple[Any, ...]]:
    core, line = seen.core, seen.core.line
    kernel = kernels.numbers(core.number, len(core.items))
    critical, within = _critical_ns(seen), _loops_around(seen)
    slow, runs = line.slow.tolist(), line.runs.tolist()
    rows = []
    for at, issued in enumerate(core.items):
        fact, waited, operands = seen.facts[at], seen.waited[at], issued.instruction.operands
        rows.append(
            (
                seen.id(at),
                core.number,
                at,
                issued.instruction.label,
                str(issued.arguments.name or "") if "name" in operands else "",
                core.unit(at).partition(".")[0],
                line.queues[core.queue[at]] if core.queue[at] >= 0 else "",
                operands_text(issued),
                core.turn[at],
                core.start[at],
                core.move[at],
                core.end[at],
                core.visible[at],
                max(0.0, core.start[at] - core.turn[at]),
                waited.kind,
                seen.id(waited.blocker),
                waited.text,
                slow[at] if core.ran[at] else 0.0,
                core.table[at],
                core.recipes[at].ns,
                runs[at] if core.ran[at] else 0.0,
                within[at],
                critical[at],
                fact.reads[0],
                fact.writes[0],
                fact.reads[1],
                fact.writes[1],
                fact.reads[2],
                fact.writes[2],
                fact.flops,
                fact.transpose_flops,
                lines.of(issued.location),
                kernel[at],
            )
        )
    return rows


def _edges(seen: _Seen) -> list[tuple[Any, ...]]:
    return [
        (seen.core.number, seen.id(e.producer), seen.id(e.consumer), e.kind, e.what, e.gap, e.binding, e.signal)
        for e in seen.edges.all()
    ]


def _dma(seen: _Seen) -> list[tuple[Any, ...]]:
    core, rows = seen.core, []
    for at in core.transfers():
        issued, fact = core.items[at], seen.facts[at]
        views = [(issued.instruction.operands[name], view) for name, view in issued.views()]
        source = next((view for operand, view in views if operand.reads and not operand.writes), None)
        target = next((view for operand, view in views if operand.writes), None)
        ends = [view for view in (source, target) if view is not None]
        named = next((view for view in ends if view.buffer.region.is_hbm), ends[-1] if ends else None)
        moving = core.end[at] - core.move[at]
        rows.append(
            (
                core.number,
                seen.id(at),
                core.line.queues[core.queue[at]],
                core.trigger(at),
                core.start[at],
                core.issued(at),
                core.move[at],
                core.end[at],
                fact.nbytes,
                fact.descriptors,
                fact.nbytes / moving if moving else 0.0,
                region_of(source) if source is not None else "",
                region_of(target) if target is not None else "",
                named.buffer.name if named is not None else "",
            )
        )
    return rows


def _counters(seen: _Seen) -> list[tuple[Any, ...]]:
    return [(seen.core.number, name, time, value) for name, values in seen.counters.items() for time, value in values]


def _memory(seen: _Seen, lines: Lines) -> list[tuple[Any, ...]]:
    rows = []
    for life in seen.lives:
        buffer, place = life.buffer, life.place or (-1, -1)
        rows.append(
            (
                seen.core.number,
                buffer.name,
                str(buffer.region),
                str(list(buffer.shape)),
                str(buffer.dtype),
                place[0],
                buffer.partitions,
                place[1],
                buffer.row_bytes,
                life.first,
                life.last,
                lines.of(buffer.location),
            )
        )
    return rows


def _loops(seen: _Seen) -> list[tuple[Any, ...]]:
    return [
        (
            seen.core.number,
            span.time.number,
            parent,
            span.time.first,
            span.time.last,
            span.time.trips,
            span.time.assumed,
            span.first,
            span.trip,
            span.time.steady_ns,
            span.end,
        )
        for span, parent in loops(seen.core)
    ]


def _path(seen: _Seen) -> list[tuple[Any, ...]]:
    return [(seen.core.number, p.start, p.end, p.kind, seen.id(p.position)) for p in seen.path if p.end > p.start]


def _time(seen: _Seen) -> list[tuple[Any, ...]]:
    return [
        (seen.core.number, track, category, ns)
        for track, categories in seen.spent.items()
        for category, ns in categories.items()
    ]
