"""Tables as the schema's document describes them, written with pyarrow alone: nothing of this package writes them.

Types, units and what is required are copied here by hand from profile-schema-reference.rst (schema 7.4.0), for the
columns that a capture of a NKI kernel has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NS = "nanoseconds"
INTEGER, INTEGER32, NUMBER, TEXT, TRUTH = pa.int64(), pa.int32(), pa.float32(), pa.string(), pa.bool_()
FIELDS = {INTEGER: ("integer", "int64"), INTEGER32: ("integer", "int32"), NUMBER: ("number", "float")}
FIELDS |= {TEXT: ("string", None), TRUTH: ("boolean", None)}

TABLES: dict[str, dict[str, tuple[Any, str | None, bool]]] = {
    "Instruction": {
        "start_ts": (INTEGER, NS, True),
        "end_ts": (INTEGER, NS, True),
        "duration_ns": (INTEGER, NS, True),
        "engine": (TEXT, None, True),
        "timeline_track": (TEXT, None, False),
        "pcore_idx": (INTEGER, None, False),
        "opcode": (TEXT, None, True),
        "operands": (TEXT, None, True),
        "compiler_opcode": (TEXT, None, False),
        "id": (INTEGER, None, True),
        "pc": (INTEGER, None, True),
        "bir_id": (TEXT, None, True),
        "evt_wait_time_ns": (INTEGER, NS, False),
        "nki_source_location": (TEXT, None, False),
        "bir_debug_info_source_location": (TEXT, None, False),
        "dma_trigger_start_ts": (INTEGER, None, False),
        "dma_trigger_end_ts": (INTEGER, None, False),
        "hbm_read_bytes": (INTEGER, None, False),
        "hbm_write_bytes": (INTEGER, None, False),
        "sbuf_read_bytes": (INTEGER, None, False),
        "sbuf_write_bytes": (INTEGER, None, False),
        "psum_read_bytes": (INTEGER, None, False),
        "psum_write_bytes": (INTEGER, None, False),
        "raw_flops": (INTEGER, None, False),
    },
    "Metadata": {
        "profile_schema_version": (TEXT, None, True),
        "ntff_version": (INTEGER32, None, True),
        "num_physical_cores": (INTEGER32, None, True),
        "vnc_enabled": (TRUTH, None, True),
        "first_hw_timestamp": (INTEGER, NS, True),
        "last_hw_timestamp": (INTEGER, NS, True),
        "first_ts": (TEXT, None, True),
        "last_ts": (TEXT, None, True),
        "dma_ddr_bandwidth": (NUMBER, "bytes_per_second", True),
        "num_dma_engines_per_neuroncore": (INTEGER32, None, True),
        "hbm_ddr_bandwidth": (NUMBER, "bytes_per_second", True),
        "tensor_engine_num_rows": (INTEGER, None, True),
        "tensor_engine_num_cols": (INTEGER, None, True),
        "tensor_engine_clock_freq": (NUMBER, "gigahertz", True),
        "vector_engine_clock_freq": (NUMBER, "gigahertz", True),
        "vector_engine_num_channels": (INTEGER, None, True),
        "scalar_engine_clock_freq": (NUMBER, "gigahertz", True),
        "scalar_engine_num_channels": (INTEGER, None, True),
        "gpsimd_engine_clock_freq": (NUMBER, "gigahertz", True),
        "gpsimd_engine_num_channels": (INTEGER, None, True),
        "neuroncore_clock_freq": (NUMBER, "gigahertz", True),
        "ticks_per_nanosec": (INTEGER, None, True),
        "instance_type": (TEXT, None, False),
        "compiler_version": (TEXT, None, False),
        "profile_name": (TEXT, None, False),
        "is_simulation": (TRUTH, None, False),
    },
    "Flow": {
        "in_id": (INTEGER, None, True),
        "out_id": (INTEGER, None, True),
        "in_table": (TEXT, None, True),
        "out_table": (TEXT, None, True),
        "dependency_type": (TEXT, None, False),
        "gap_time": (INTEGER, NS, False),
    },
    "DmaPacketAggregated": {
        "start_ts": (INTEGER, NS, True),
        "end_ts": (INTEGER, NS, True),
        "duration_ns": (INTEGER, NS, True),
        "id": (INTEGER, None, True),
        "pcore_idx": (INTEGER, None, False),
        "block_id": (INTEGER32, None, True),
        "queue_idx": (INTEGER, None, True),
        "queue_name": (TEXT, None, True),
        "op": (TEXT, None, True),
        "variable": (TEXT, None, True),
        "read_bytes": (INTEGER, "bytes", True),
        "write_bytes": (INTEGER, "bytes", True),
        "transfer_bytes": (INTEGER, "bytes", True),
        "throughput": (NUMBER, "bytes_per_second", True),
        "source": (TEXT, None, True),
        "dest": (TEXT, None, True),
        "semaphore_id": (TEXT, None, True),
        "read_sbuf_partitions": (TEXT, None, True),
        "read_num_sbuf_partitions": (INTEGER32, None, True),
        "read_shape": (TEXT, None, True),
        "read_offset": (TEXT, None, True),
        "read_steps": (TEXT, None, True),
        "write_sbuf_partitions": (TEXT, None, True),
        "write_num_sbuf_partitions": (INTEGER32, None, True),
        "write_shape": (TEXT, None, True),
        "write_offset": (TEXT, None, True),
        "write_steps": (TEXT, None, True),
    },
    "ExecutionInfo": {
        "execution_index": (INTEGER32, None, True),
        "execution_start_ts": (INTEGER, NS, False),
        "execution_end_ts": (INTEGER, NS, False),
    },
    "SchemaFields": {
        "table_name": (TEXT, None, True),
        "table_description": (TEXT, None, True),
        "field_name": (TEXT, None, True),
        "field_description": (TEXT, None, True),
        "field_type": (TEXT, None, True),
        "field_required": (TRUTH, None, True),
        "field_format": (TEXT, None, False),
        "field_unit": (TEXT, None, False),
    },
}

Row = dict[str, Any]


def empty_of(kind: Any) -> Any:
    """The value of a required column that a test does not speak of."""
    return "" if kind == TEXT else False if kind == TRUTH else 0


def write(folder: Path, tables: dict[str, list[Row]]) -> None:
    """Write tables and the table of their fields."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = [field(table, name) for table in (*tables, "SchemaFields") for name in TABLES[table]]
    for table, rows in {**tables, "SchemaFields": fields}.items():
        columns = TABLES[table]
        arrays = [
            pa.array([row.get(name, empty_of(kind) if needed else None) for row in rows], kind)
            for name, (kind, _, needed) in columns.items()
        ]
        schema = pa.schema([pa.field(name, kind, nullable=not needed) for name, (kind, _, needed) in columns.items()])
        pq.write_table(pa.table(arrays, schema=schema), folder / f"{table}.parquet")


def field(table: str, name: str) -> Row:
    """A row of SchemaFields."""
    kind, unit, needed = TABLES[table][name]
    form, width = FIELDS[kind]
    return {
        "table_name": table,
        "field_name": name,
        "field_type": form,
        "field_required": needed,
        "field_format": width,
        "field_unit": unit,
    }


METADATA: Row = {
    "profile_schema_version": "7.4.0",
    "num_physical_cores": 1,
    "instance_type": "trn2.48xlarge",
    "profile_name": "captured",
    "is_simulation": False,
}


class Tape:
    """Instructions one after the other on each engine, as a test lists them."""

    def __init__(self) -> None:
        self.instructions: list[Row] = []
        self.transfers: list[Row] = []
        self.flows: list[Row] = []

    def run(self, engine: str, opcode: str, start: int, duration: int, line: str = "", **more: Any) -> int:
        """Record an instruction; its id."""
        number = 1000 + 7 * len(self.instructions)
        mine = sum(row["engine"] == engine for row in self.instructions)
        self.instructions.append(
            {
                "id": number,
                "engine": engine,
                "opcode": opcode,
                "start_ts": start,
                "end_ts": start + duration,
                "duration_ns": duration,
                "pc": mine,
                "pcore_idx": 0,
                "bir_id": f"sg0000:{number}",
                "nki_source_location": line or None,
                **more,
            }
        )
        return number

    def move(self, engine: str, start: int, first: int, last: int, nbytes: int, line: str = "") -> None:
        """Record the start of a transfer on an engine, and its data."""
        started = self.run(engine, "DMA_DIRECT2D", start, 50, line)
        number = 90_000 + len(self.transfers)
        self.transfers.append(
            {
                "id": number,
                "start_ts": first,
                "end_ts": last,
                "duration_ns": last - first,
                "transfer_bytes": nbytes,
                "read_bytes": nbytes,
                "write_bytes": nbytes,
                "queue_name": "qSyncDynamicHW",
            }
        )
        self.flows.append(
            {"in_id": started, "out_id": number, "in_table": "Instruction", "out_table": "DmaPacketAggregated"}
        )

    def tables(self, **metadata: Any) -> dict[str, list[Row]]:
        """All of it."""
        found = {"Instruction": self.instructions, "Metadata": [{**METADATA, **metadata}]}
        if self.transfers:
            found |= {"Flow": self.flows, "DmaPacketAggregated": self.transfers}
        return found
