"""Rows of the Neuron Explorer about what engines execute: `Instruction`, `ActiveTime`, `OpcodeSummary`, `Throttle`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from nki.profiling.formats.executed import LOAD, RUN, START, Part, executed, is_matmul, passes_of
from nki.profiling.formats.model_labels import layers
from nki.profiling.formats.opcodes import operands_of
from nki.profiling.intervals import length, union

if TYPE_CHECKING:
    from nki.profiling.record import Profile

Row = dict[str, Any]
SPELLED = {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd", "sync": "Sync"}
"""Engines in `Instruction`, as how-to-analyze-profile-output.rst prints them; `ActiveTime` has small letters."""
_MEMORIES = ("hbm_read", "hbm_write", "sbuf_read", "sbuf_write", "psum_read", "psum_write")
_MX_SHARE = 0.25


def interval(start: float, end: float) -> Row:
    """The columns of an interval of time."""
    return {"start_ts": round(start), "end_ts": round(end), "duration_ns": round(end) - round(start)}


def instructions(profile: Profile) -> Iterator[Row]:
    """Parts of instructions; a transfer appears with the instruction that starts it, if a unit does.

    The main part of an instruction has its id, others have ids beyond those.
    """
    moved = {row["instruction"]: row for row in profile["dma"].rows()}
    rows, counts = profile["instructions"], Counter[tuple[int, str]]()
    further, named = len(rows), layers(profile)
    for part in executed(profile):
        number = counts[part.core, part.engine]
        counts[part.core, part.engine] += 1
        main = part.what != LOAD and part.number == 0
        row = rows.row(part.id)
        found = {**_place(profile, row, part), "pc": number, "compiler_pc": number}
        found["layer"] = named.get(row["kernel"])
        found["id"] = part.id if main else further
        further += not main
        if part.what == START:
            found |= _started(moved[part.id])
        yield found


def _place(profile: Profile, row: Row, part: Part) -> Row:
    """What is known of a part itself."""
    line = _line(profile, row["source"])
    track = "TensorMatrix" if part.engine == "tensor" and part.what == RUN else SPELLED[part.engine]
    found = {
        **interval(part.start, part.end),
        "engine": SPELLED[part.engine],
        "timeline_track": track,
        "pcore_idx": row["core"],
        "opcode": part.opcode,
        "compiler_opcode": part.opcode,
        "operands": row["operands"],
        "compiler_operands": row["operands"],
        "bir_id": f"{row['core']}:{row['position']}",
        "bir_instruction_name": row["name"] or f"I-{row['position']}",
        "kernel_instruction_name": f"I-{row['id']}",
        "evt_wait_time_ns": 0 if part.what == RUN and is_matmul(row) else round(row["wait_ns"]),
        "nki_source_location": line,
        "bir_debug_info_source_location": line,
        "stack_frame_ids": str(row["source"]) if row["source"] >= 0 else None,
    }
    if part.what != LOAD:
        found |= _work(profile, row, part)
    return found


def _work(profile: Profile, row: Row, part: Part) -> Row:
    """Bytes and operations; both passes of a product read and write what it does, and share its operations."""
    found: Row = {f"{name}_bytes": row[f"{name}_bytes"] for name in _MEMORIES}
    if row["psum_read_bytes"] and row["sbuf_write_bytes"]:
        found["psum_read_sbuf_write_bytes"] = row["psum_read_bytes"]
    transposed = row["transpose_flops"] * part.share
    found["raw_flops"] = round(row["flops"] * part.share + transposed)
    found["flops_transpose"] = round(transposed)
    if part.engine == "tensor":
        found["tensor_instruction_type"] = "TRANSPOSE" if transposed else "REGULAR"
        weight = _weight(profile, row)
        found["adjusted_flops"] = round(row["flops"] * weight / passes_of(row) + transposed * weight)
        found["adjusted_flops_transpose"] = round(transposed * weight)
    return found


def _weight(profile: Profile, row: Row) -> float:
    """Operations of bfloat16 that take as long as one of these operands."""
    if row["opcode"].endswith("_mx"):
        return _MX_SHARE
    peaks = profile.about.hardware["peak_tflops"]
    dtypes = {each.dtype for each in operands_of(row["operands"]) if each.name in ("stationary", "moving", "data")}
    wide = [name for name in ("float32", "float8") if any(dtype.startswith(name) for dtype in dtypes)]
    peak = peaks.get(wide[0], 0.0) if wide else 0.0
    return round(4.0 * peaks["bfloat16"] / peak) / 4.0 if peak else 1.0


def _started(transfer: Mapping[str, Any]) -> Row:
    """The transfer of the instruction that starts it."""
    return {
        "dma_trigger_start_ts": round(transfer["start_ns"]),
        "dma_trigger_end_ts": round(transfer["end_ns"]),
        "dma_wait_time_ns": max(0, round(transfer["start_ns"]) - round(transfer["issued_ns"])),
    }


def _line(profile: Profile, source: int) -> str | None:
    if source < 0:
        return None
    row = profile["sources"].row(source)
    return f"{row['file']}:{row['line']}"


def active(profile: Profile) -> Iterator[Row]:
    """When engines have at least one instruction."""
    busy: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for part in executed(profile):
        busy[part.core, part.engine].append((round(part.start), round(part.end)))
    for (core, engine), intervals in busy.items():
        for start, end in union(intervals):
            yield {**interval(start, end), "engine": engine, "pcore_idx": core}


def opcode_sums(profile: Profile) -> Iterator[Row]:
    """Counts and times by engine and opcode."""
    makespan = profile.makespan_ns
    found: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for part in executed(profile):
        found[part.engine, part.opcode].append((round(part.start), round(part.end)))
    for (engine, opcode), intervals in sorted(found.items()):
        busy = round(length(union(intervals)))
        yield {
            "engine": engine,
            "opcode": opcode,
            "instruction_count": len(intervals),
            "instruction_time_ns": sum(end - start for start, end in intervals),
            "active_time_ns": busy,
            "active_time_percent": 100.0 * busy / makespan if makespan else 0.0,
        }


def throttled(profile: Profile) -> Iterator[Row]:
    """Times in which products took longer than their work: the limit on Tensor's current.

    The least rate of any product is the limit; a product that was faster than that had it for a part of its time.
    """
    slowed: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    for row in profile["instructions"].rows():
        took = row["end_ns"] - row["move_ns"]
        if row["runs"] and is_matmul(row) and took > row["cost_ns"] > 0.0:
            slowed[row["core"]].append((row["move_ns"], took, row["cost_ns"]))
    rates = [cost / took for found in slowed.values() for _, took, cost in found]
    limit = Fraction(min(rates, default=1.0)).limit_denominator(_MOST_N)
    if limit >= 1:
        return
    for core, found in slowed.items():
        parts = [(start, start + (took - cost) / (1.0 - float(limit))) for start, took, cost in found]
        for start, end in union(parts):
            if round(end) > round(start):
                duration = round(end) - round(start)
                yield {
                    "timestamp": round(start),
                    "duration": duration,
                    "k": limit.numerator,
                    "n": limit.denominator,
                    "type": "unknown",
                    "pcore_idx": core,
                }


_MOST_N = 64


def throttle_sums(profile: Profile) -> Iterator[Row]:
    """How long each core was limited."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in throttled(profile):
        found[row["pcore_idx"]].append(row)
    for core, rows in found.items():
        ns = sum(row["duration"] for row in rows)
        makespan = profile.about.totals[core]["makespan_ns"]
        yield {
            "nc_idx": core,
            "throttle_type": "all",
            "throttle_active_time_ns": ns,
            "throttle_active_time_percent": 100.0 * ns / makespan if makespan else 0.0,
            "max_achievable_util_with_throttling_percent": sum(r["duration"] * r["k"] / r["n"] for r in rows) / ns,
        }
