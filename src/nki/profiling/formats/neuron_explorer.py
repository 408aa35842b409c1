"""The tables of the Neuron Explorer, as Parquet with its names: what a model knows is there, all else is null.

Every file has all columns of its table, so that queries written for profiles of devices run; `Metadata.is_simulation`
is true. What is required and unknown is 0 or empty. Instructions in device loops appear once, with the
times of their first run. Tables of what did not happen (collectives, throttling) are not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nki.profiling.errors import refused, unwritable
from nki.profiling.formats import neuron_explorer_instructions as engines
from nki.profiling.formats import neuron_explorer_series as series
from nki.profiling.formats import neuron_explorer_transfers as dma
from nki.profiling.formats.folder import write_parquet
from nki.profiling.formats.neuron_explorer_schema import ExplorerColumn, ExplorerSchema, explorer_schema
from nki.profiling.formats.neuron_explorer_summary import metadata, summary

if TYPE_CHECKING:
    from nki.profiling.record import Profile

Row = dict[str, Any]
_TYPES = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}


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
    schema = explorer_schema()
    rows: dict[str, list[Row]] = {
        "ActiveTime": list(engines.active(profile)),
        "DmaPacket": list(dma.packets(profile)),
        "DmaPacketAggregated": list(dma.transfers(profile)),
        "DmaUsage": list(series.usage(profile, "dma_bytes_per_ns")),
        "Flow": list(dma.flows(profile)),
        "HbmUsage": list(series.hbm(profile)),
        "Instruction": list(engines.instructions(profile)),
        "KernelInstructions": list(_kernel_instructions(profile)),
        "KernelStackFrames": list(_frames(profile)),
        "Metadata": [metadata(profile, schema.version)],
        "OpcodeSummary": list(engines.opcode_sums(profile)),
        "PsumUsage": list(series.psum(profile)),
        "SbufAllocation": list(series.allocations(profile)),
        "SbufUsage": list(series.sbuf(profile)),
        "SemaphoreUpdate": list(series.semaphores(profile)),
        "Summary": [summary(profile)],
        "TensorInfo": list(dma.tensors(profile)),
        "Warning": list(_warnings(profile)),
    }
    happened: dict[str, list[Row]] = {
        "CcOp": list(dma.collectives(profile)),
        "Throttle": list(engines.throttled(profile)),
        "ThrottleSummary": list(engines.throttle_sums(profile)),
    }
    rows |= {name: found for name, found in happened.items() if found}
    rows["SchemaFields"] = [row for name in sorted({*rows, "SchemaFields"}) for row in _described(schema, name)]
    return {name: _arrow(schema.tables[name], found) for name, found in rows.items()}


def _described(schema: ExplorerSchema, table: str) -> Iterator[Row]:
    """`SchemaFields`: types and units of the columns of a table; the document has the descriptions."""
    for column in schema.tables[table]:
        kind, _, bits = column.kind.partition("int")
        yield {
            "table_name": table,
            "table_description": "",
            "field_name": column.name,
            "field_description": "",
            "field_type": "integer" if bits else {"float": "number", "double": "number"}.get(kind, kind),
            "field_required": column.required,
            "field_format": column.kind if bits or kind in ("float", "double") else None,
            "field_unit": column.unit or None,
        }


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    """A column; sums over a profile that others made can be larger than its type."""
    try:
        return pa.array(values, field.type)
    except OverflowError as problem:
        raise refused(
            "profile.values", f"{field.name} of the Neuron Explorer is too large for {field.type}"
        ) from problem


def _arrow(columns: Sequence[ExplorerColumn], rows: list[Row]) -> pa.Table:
    unknown = {key for row in rows for key in row} - {column.name for column in columns}
    assert not unknown, f"no such columns: {unknown}"
    fields = [pa.field(column.name, _TYPES[column.kind], nullable=not column.required) for column in columns]
    arrays = [_array([row.get(field.name) for row in rows], field) for field in fields]
    assert not any(a.null_count for a, f in zip(arrays, fields, strict=True) if not f.nullable), "a value is missing"
    return pa.table(arrays, schema=pa.schema(fields))


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
