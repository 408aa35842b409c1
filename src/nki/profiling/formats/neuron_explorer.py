"""The tables of the Neuron Explorer, as Parquet with its names: what a model knows is there, all else is null.

Every file has all columns of its table, so that queries written for profiles of devices run; `Metadata.is_simulation`
is true. What is required and unknown is 0 or empty. Instructions in device loops appear once, with the
times of their first run.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nki.profiling.errors import refused, unwritable
from nki.profiling.formats import neuron_explorer_series as series
from nki.profiling.formats.folder import write_parquet
from nki.profiling.formats.neuron_explorer_summary import metadata, summary
from nki.profiling.intervals import length, union

if TYPE_CHECKING:
    from nki.profiling.record import Profile

Row = dict[str, Any]
_TYPES = {"int64": pa.int64(), "int32": pa.int32(), "float64": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
_DEPENDENCE = {
    "flow": "FLOW_DEPENDENCE",
    "anti": "ANTI_DEPENDENCE",
    "output": "OUTPUT_DEPENDENCE",
}


@cache  # a file of the package, which does not change
def explorer_schema() -> tuple[str, Mapping[str, Mapping[str, str]]]:
    """The version of the schema, and the columns of each table with their types."""
    text = (Path(__file__).parent / "neuron_explorer.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    return data.pop("version"), data


def write_explorer(profile: Profile, folder: Path) -> None:
    """Write ``TABLE.parquet`` for every table that applies. Raises UsageError "profile.write"."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in explorer_tables(profile).items():
            write_parquet(table, folder / f"{name}.parquet")
    except OSError as problem:
        raise unwritable(folder, problem) from problem


def explorer_tables(profile: Profile) -> dict[str, pa.Table]:
    """All tables in memory."""
    version, schema = explorer_schema()
    rows: dict[str, list[Row]] = {
        "ActiveTime": list(_active(profile)),
        "DmaPacketAggregated": list(_transfers(profile)),
        "DmaUsage": list(series.usage(profile, "dma_bytes_per_ns")),
        "Flow": list(_flows(profile)),
        "HbmUsage": list(series.hbm(profile)),
        "Instruction": list(_instructions(profile)),
        "KernelInstructions": list(_kernel_instructions(profile)),
        "KernelStackFrames": list(_frames(profile)),
        "Metadata": [metadata(profile, version)],
        "OpcodeSummary": list(_opcodes(profile)),
        "PsumUsage": list(series.psum(profile)),
        "SbufAllocation": list(series.allocations(profile)),
        "SbufUsage": list(series.sbuf(profile)),
        "SemaphoreUpdate": list(series.semaphores(profile)),
        "Summary": [summary(profile)],
        "TensorInfo": list(_tensors(profile)),
        "Warning": list(_warnings(profile)),
    }
    return {name: _arrow(schema[name], found) for name, found in rows.items()}


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    """A column; sums over a profile that others made can be larger than its type."""
    try:
        return pa.array(values, field.type)
    except OverflowError as problem:
        raise refused(
            "profile.values", f"{field.name} of the Neuron Explorer is too large for {field.type}"
        ) from problem


def _arrow(columns: Mapping[str, str], rows: list[Row]) -> pa.Table:
    unknown = {key for row in rows for key in row} - columns.keys()
    assert not unknown, f"no such columns: {unknown}"
    fields = [
        pa.field(name, _TYPES[kind.rstrip("!")], nullable=not kind.endswith("!")) for name, kind in columns.items()
    ]
    arrays = [_array([row.get(field.name) for row in rows], field) for field in fields]
    assert not any(a.null_count for a, f in zip(arrays, fields, strict=True) if not f.nullable), "a value is missing"
    return pa.table(arrays, schema=pa.schema(fields))


def _interval(start: float, end: float) -> Row:
    return {"start_ts": round(start), "end_ts": round(end), "duration_ns": round(end) - round(start)}


def _opcode(row: Row) -> str:
    name: str = row["opcode"].rpartition(".")[2]
    return name.upper()


def _line(profile: Profile, source: int) -> str | None:
    if source < 0:
        return None
    row = profile["sources"].row(source)
    return f"{row['file']}:{row['line']}"


def _instructions(profile: Profile) -> Iterator[Row]:
    """Work of engines; a transfer appears with the instruction that starts it, if a unit does."""
    moved = {row["instruction"]: row for row in profile["dma"].rows()}
    counts: Counter[tuple[int, str]] = Counter()
    for row in profile["instructions"].rows():
        transfer = moved.get(row["id"])
        engine = transfer["trigger"] if transfer else row["engine"]
        if not row["runs"] or not engine:
            continue
        number = counts[row["core"], engine]
        counts[row["core"], engine] += 1
        line = _line(profile, row["source"])
        transposes = row["transpose_flops"] > 0
        found = {
            **_interval(row["start_ns"], transfer["issued_ns"] if transfer else row["end_ns"]),
            "engine": engine,
            "timeline_track": engine,
            "pcore_idx": row["core"],
            "opcode": _opcode(row),
            "compiler_opcode": row["opcode"],
            "operands": row["operands"],
            "compiler_operands": row["operands"],
            "id": row["id"],
            "pc": number,
            "compiler_pc": number,
            "bir_id": f"{row['core']}:{row['position']}",
            "bir_instruction_name": row["name"] or f"I-{row['position']}",
            "kernel_instruction_name": f"I-{row['id']}",
            "evt_wait_time_ns": round(row["wait_ns"]),
            "nki_source_location": line,
            "bir_debug_info_source_location": line,
            "raw_flops": round(row["flops"]),
            "tensor_instruction_type": ("TRANSPOSE" if transposes else "REGULAR") if engine == "tensor" else None,
            "flops_transpose": round(row["transpose_flops"]),
            "stack_frame_ids": str(row["source"]) if row["source"] >= 0 else None,
        }
        for name in ("hbm_read", "hbm_write", "sbuf_read", "sbuf_write", "psum_read", "psum_write"):
            found[f"{name}_bytes"] = row[f"{name}_bytes"]
        if row["psum_read_bytes"] and row["sbuf_write_bytes"]:
            found["psum_read_sbuf_write_bytes"] = row["psum_read_bytes"]
        if transfer:
            found["dma_trigger_start_ts"] = round(transfer["start_ns"])
            found["dma_trigger_end_ts"] = round(transfer["end_ns"])
            found["dma_wait_time_ns"] = max(0, round(transfer["start_ns"]) - round(transfer["issued_ns"]))
        yield found


def _transfers(profile: Profile) -> Iterator[Row]:
    rows = profile["instructions"]
    for dma in profile["dma"].rows():
        row = rows.row(dma["instruction"])
        kinds = {"gpsimd": "software_dynamic", "sync": "hardware_dynamic", "scalar": "hardware_dynamic"}
        moving = dma["end_ns"] - dma["start_ns"]
        memory = {"hbm": "DRAM", "sbuf": "SB", "psum": "PSUM", "": ""}
        yield {
            **_interval(dma["start_ns"], dma["end_ns"]),
            "id": dma["instruction"],
            "pcore_idx": dma["core"],
            "block_id": dma["instruction"],
            "queue_idx": int(dma["queue"].removeprefix("dma")),
            "queue_name": dma["queue"],
            "queue_type": kinds.get(dma["trigger"], "data"),
            "op": "write" if dma["destination_memory"] == "hbm" else "read",
            "variable": dma["variable"],
            "read_bytes": dma["nbytes"],
            "write_bytes": dma["nbytes"],
            "transfer_bytes": dma["nbytes"],
            "throughput": dma["nbytes"] / moving * 1e9 if moving else 0.0,
            "source": f"[{memory[dma['source_memory']]}]",
            "dest": f"[{memory[dma['destination_memory']]}]",
            "semaphore_id": dma["queue"],
            **{name: "" for name in _UNKNOWN_TEXTS},
            "read_num_sbuf_partitions": 0,
            "write_num_sbuf_partitions": 0,
            "is_transpose_mode": "transpose" in row["opcode"],
            "trigger": round(dma["trigger_ns"]),
            "completion": round(dma["issued_ns"]),
        }


_UNKNOWN_TEXTS = (
    "read_sbuf_partitions",
    "read_shape",
    "read_offset",
    "read_steps",
    "write_sbuf_partitions",
    "write_shape",
    "write_offset",
    "write_steps",
)
"""Required, and not known for a transfer as a whole."""


def _flows(profile: Profile) -> Iterator[Row]:
    moved = set(profile["dma"]["instruction"].tolist())
    for row in profile["edges"].rows():
        yield {
            "in_id": row["producer"],
            "out_id": row["consumer"],
            "in_table": "dma_block" if row["producer"] in moved else "instruction",
            "out_table": "dma_block" if row["consumer"] in moved else "instruction",
            "dependency_type": _DEPENDENCE.get(row["kind"], f"{row['kind'].upper()}_DEPENDENCE"),
            "gap_time": round(row["gap_ns"]),
        }


def _active(profile: Profile) -> Iterator[Row]:
    busy: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for row in _instructions(profile):
        busy[row["pcore_idx"], row["engine"]].append((row["start_ts"], row["end_ts"]))
    for (core, engine), intervals in busy.items():
        for start, end in union(intervals):
            yield {**_interval(start, end), "engine": engine, "pcore_idx": core}


def _opcodes(profile: Profile) -> Iterator[Row]:
    makespan = profile.makespan_ns
    found: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in _instructions(profile):
        found[row["engine"], row["opcode"]].append((row["start_ts"], row["end_ts"]))
    for (engine, opcode), intervals in sorted(found.items()):
        active = round(length(union(intervals)))
        yield {
            "engine": engine,
            "opcode": opcode,
            "instruction_count": len(intervals),
            "instruction_time_ns": sum(end - start for start, end in intervals),
            "active_time_ns": active,
            "active_time_percent": 100.0 * active / makespan if makespan else 0.0,
        }


# --- what rows refer to


def _tensors(profile: Profile) -> Iterator[Row]:
    loads: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row in profile["dma"].rows():
        if row["source_memory"] == "hbm" and row["destination_memory"] == "sbuf":
            loads[row["core"], row["variable"]].append(row["nbytes"])
    for row in profile["memory"].rows():
        if row["region"] in ("sbuf", "psum"):
            continue
        mine = loads[row["core"], row["name"]]
        size = row["nbytes"] * row["partitions"]
        yield {
            "variable_name": row["name"],
            "shape": row["shape"],
            "size": size,
            "pcore_idx": row["core"],
            "load_to_sbuf_avg_size_bytes": sum(mine) // len(mine) if mine else 0,
            "load_to_sbuf_total_size_bytes": sum(mine),
            "load_to_sbuf_dma_count": len(mine),
            "load_to_sbuf_repeat_factor": sum(mine) / size if size else 0.0,
        }


def _frames(profile: Profile) -> Iterator[Row]:
    for row in profile["sources"].rows():
        yield {
            "stack_frame_id": row["id"],
            "fully_qualified_function_name": row["function"],
            "parent_stack_frame_id": row["parent"] if row["parent"] >= 0 else None,
            "file_path": row["file"],
            "line_number": row["line"],
        }


def _kernel_instructions(profile: Profile) -> Iterator[Row]:
    sources = list(profile["sources"].rows())
    for row in profile["instructions"].rows():
        depth, at = 0, row["source"]
        while at >= 0:
            depth, at = depth + 1, sources[at]["parent"]
        line = sources[row["source"]] if row["source"] >= 0 else None
        yield {
            "kernel_instruction_name": f"I-{row['id']}",
            "stack_frame_id": line["id"] if line else None,
            "stack_frame_depth": depth,
            "pcore_idx": row["core"],
            "file_path": line["file"] if line else None,
            "line_number": line["line"] if line else None,
        }


def _warnings(profile: Profile) -> Iterator[Row]:
    model = "compared with published measurements" if profile.about.validated else "not compared with measurements"
    message = f"times come from the timing model of {profile.about.target}, which was {model}; nothing was measured"
    yield {"message": message, "category": "Simulation"}
    for totals in profile.about.totals:
        for loop in totals["assumed_loops"]:
            yield {"message": f"loop {loop} is counted as one trip: nothing tells how many", "category": "Simulation"}
