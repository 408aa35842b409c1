"""What cannot be a measured profile is refused with its code, and nothing is written or lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nki.core.errors import ArtifactError
from nki.profiling.measured import tables
from nki.profiling.measured.capture import Capture, read_capture
from tests.profiling.measured.written import METADATA, Tape, write

Change = Callable[[Path], Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tape = Tape()
    tape.move("Sync", 50, 1_000, 1_900, 32_768, "/home/ubuntu/kernel.py:3")
    tape.run("Vector", "TENSOR_TENSOR", 2_000, 300, "/home/ubuntu/kernel.py:5", sbuf_read_bytes=1 << 18)
    tape.run("Scalar", "ACTIVATE", 2_400, 700, "/home/ubuntu/kernel.py:6")
    folder = tmp_path_factory.mktemp("measured") / "profile"
    write(folder, tape.tables())
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def column(table: str, name: str, edit: Callable[[list[Any]], list[Any]], kind: Any = None) -> Change:
    """Write a table again with one column changed."""

    def change(folder: Path) -> None:
        path = folder / f"{table}.parquet"
        read = pq.read_table(path)
        at = read.column_names.index(name)
        kept = kind or read.schema.field(at).type
        values = pa.array(edit(read.column(at).to_pylist()), kept)
        pq.write_table(read.set_column(at, pa.field(name, kept), values), path)

    return change


def each(change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [change(value) for value in values]


def first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value, *values[1:]]


def fields(table: str, field: str, name: str, value: Any) -> Change:
    """What SchemaFields says of one field."""

    def change(folder: Path) -> None:
        path = folder / "SchemaFields.parquet"
        read = pq.read_table(path)
        rows = read.to_pylist()
        for row in rows:
            if (row["table_name"], row["field_name"]) == (table, field):
                row[name] = value
        pq.write_table(pa.Table.from_pylist(rows, schema=read.schema), path)

    return change


def rows(table: str, keep: Callable[[dict[str, Any]], bool]) -> Change:
    def change(folder: Path) -> None:
        path = folder / f"{table}.parquet"
        read = pq.read_table(path)
        pq.write_table(pa.Table.from_pylist([row for row in read.to_pylist() if keep(row)], schema=read.schema), path)

    return change


def without(table: str, name: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / f"{table}.parquet"
        pq.write_table(pq.read_table(path).drop_columns([name]), path)

    return change


def more(table: str, name: str) -> Change:
    def change(folder: Path) -> None:
        path = folder / f"{table}.parquet"
        read = pq.read_table(path)
        pq.write_table(read.append_column(name, pa.array([1] * len(read))), path)

    return change


def bytes_of(name: str, edit: Callable[[bytes], bytes]) -> Change:
    return lambda folder: (folder / name).write_bytes(edit((folder / name).read_bytes()))


def linked(folder: Path) -> None:
    (folder / "Instruction.parquet").rename(folder / "kept")
    (folder / "Instruction.parquet").symlink_to(folder / "kept")


def piped(folder: Path) -> None:
    (folder / "Instruction.parquet").unlink()
    os.mkfifo(folder / "Instruction.parquet")


def renamed(folder: Path, name: str) -> None:
    (folder / "Instruction.parquet").rename(folder / name)


def version(text: str) -> Change:
    return column("Metadata", "profile_schema_version", first(text))


DAMAGE: dict[str, tuple[str, Change]] = {
    "no folder": ("measured.folder", shutil.rmtree),
    "an empty folder": ("measured.folder", lambda f: [path.unlink() for path in f.iterdir()]),
    "a link": ("measured.folder", linked),
    "a pipe": ("measured.folder", piped),
    "no table of instructions": ("measured.table", lambda f: (f / "Instruction.parquet").unlink()),
    "no metadata": ("measured.table", lambda f: (f / "Metadata.parquet").unlink()),
    "a table that is none": ("measured.table", lambda f: shutil.copy(f / "Flow.parquet", f / "Chocolate.parquet")),
    "the second part alone": ("measured.table", lambda f: renamed(f, "Instruction_1.parquet")),
    "truncated": ("measured.damaged", bytes_of("Instruction.parquet", lambda data: data[: len(data) // 2])),
    "flipped": (
        "measured.damaged",
        bytes_of("Instruction.parquet", lambda data: data[:4] + bytes(255 - b for b in data[4:900]) + data[900:]),
    ),
    "no Parquet": ("measured.damaged", bytes_of("Metadata.parquet", lambda data: b"PAR1 and nothing else")),
    "an empty file": ("measured.damaged", bytes_of("Flow.parquet", lambda data: b"")),
    "another major version": ("measured.version", version("8.0.0")),
    "an earlier minor version": ("measured.version", version("7.3.9")),
    "no version": ("measured.version", version("latest")),
    "an escape as version": ("measured.version", version("\x1b[2J")),
    "a column less": ("measured.column", without("Instruction", "engine")),
    "an optional column less": ("measured.column", without("Instruction", "nki_source_location")),
    "a column less that is not used": ("measured.column", without("Metadata", "ticks_per_nanosec")),
    "a column more": ("measured.column", more("Instruction", "chocolate")),
    "a time as float": (
        "measured.type",
        column("Instruction", "start_ts", each(float), pa.float64()),
    ),
    "a count of 32 bits": ("measured.type", column("Instruction", "id", lambda v: v, pa.int32())),
    "an opcode as bytes": (
        "measured.type",
        column("Instruction", "opcode", each(str.encode), pa.binary()),
    ),
    "another type by its fields": ("measured.type", fields("Instruction", "end_ts", "field_type", "number")),
    "another format by its fields": ("measured.type", fields("Instruction", "end_ts", "field_format", "int32")),
    "times in microseconds": ("measured.unit", fields("Instruction", "duration_ns", "field_unit", "microseconds")),
    "times without a unit": ("measured.unit", fields("DmaPacketAggregated", "end_ts", "field_unit", None)),
    "bytes in bits": ("measured.unit", fields("DmaPacketAggregated", "transfer_bytes", "field_unit", "bits")),
    "a field that is not listed": ("measured.column", rows("SchemaFields", lambda row: row["field_name"] != "opcode")),
    "no instructions": ("measured.empty", rows("Instruction", lambda row: False)),
    "metadata of nothing": ("measured.empty", rows("Metadata", lambda row: False)),
    "a required value less": ("measured.rows", column("Instruction", "opcode", first(None))),
    "before the start": ("measured.rows", column("Instruction", "start_ts", first(-5))),
    "backwards": ("measured.rows", column("Instruction", "end_ts", first(3))),
    "after the end of the world": ("measured.rows", column("Instruction", "end_ts", first(2**62))),
    "durations in picoseconds": (
        "measured.rows",
        column("Instruction", "duration_ns", each(lambda ns: ns * 1000)),
    ),
    "no such engine": ("measured.rows", column("Instruction", "engine", first("Steam"))),
    "no such core": ("measured.rows", column("Instruction", "pcore_idx", first(1))),
    "an id twice": ("measured.rows", column("Instruction", "id", lambda v: [v[1], *v[1:]])),
    "bytes below nothing": ("measured.rows", column("Instruction", "sbuf_read_bytes", first(-1))),
    "a transfer backwards": ("measured.rows", column("DmaPacketAggregated", "end_ts", first(3))),
    "a transfer of less than nothing": ("measured.rows", column("DmaPacketAggregated", "transfer_bytes", first(-1))),
    "many cores": ("measured.rows", column("Metadata", "num_physical_cores", first(10**6))),
    "a long text": ("measured.size", column("Instruction", "operands", first("x" * 200_000))),
}


def refused(folder: Path, code: str) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        read_capture(folder)
    assert caught.value.code == code, caught.value
    assert caught.value.fix
    assert caught.value.message.isprintable(), "a terminal shows it"
    return caught.value


@pytest.mark.parametrize("what", DAMAGE)
def test_what_cannot_be_measured_is_refused(what: str, folder: Path) -> None:
    code, damage = DAMAGE[what]
    damage(folder)
    kept = {path: path.stat().st_mtime_ns for path in folder.iterdir()} if folder.exists() else {}
    error = refused(folder, code)
    assert error.facts["profile"] == "measured"
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_the_error_says_table_column_found_and_schema(folder: Path) -> None:
    fields("Instruction", "duration_ns", "field_unit", "microseconds")(folder)
    error = refused(folder, "measured.unit")
    assert error.message == (
        "column duration_ns of table Instruction is in microseconds by SchemaFields; "
        "the schema (7.4.0) says: nanoseconds"
    )
    assert error.facts["table"] == "Instruction"
    assert error.facts["column"] == "duration_ns"


def test_a_row_is_named(folder: Path) -> None:
    column("Instruction", "duration_ns", lambda v: [*v[:-1], 7])(folder)
    assert "row 2" in refused(folder, "measured.rows").message


@pytest.mark.parametrize("name,limit", [("MOST_FILE", 100), ("MOST_ROWS", 2), ("MOST_BYTES", 50)])
def test_more_than_a_reader_takes(name: str, limit: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, name, limit)
    refused(folder, "measured.size")


def test_what_is_right_is_read(folder: Path) -> None:
    capture = read_capture(folder)
    assert isinstance(capture, Capture)
    assert [(event.engine, event.kind, event.line) for event in capture.events] == [
        ("vector", "TENSOR_TENSOR", 5),
        ("scalar", "ACTIVATE", 6),
        ("sync", "DMA_DIRECT2D", 3),
    ]
    assert capture.events[-1].moves == (1_000.0, 1_900.0, 32_768)
    assert capture.notes == []


def test_a_later_minor_version_may_have_more(folder: Path) -> None:
    """By the schema's own rules a minor version adds tables and fields."""
    version("7.6.1")(folder)
    more("Instruction", "chocolate")(folder)
    shutil.copy(folder / "Flow.parquet", folder / "Chocolate.parquet")
    capture = read_capture(folder)
    assert len(capture.events) == 3
    assert capture.notes == ["the schema is 7.6.1: what it added to 7.4 is not read"]


def test_numbers_may_be_wider(folder: Path) -> None:
    column("Metadata", "vector_engine_clock_freq", lambda v: v, pa.float64())(folder)
    assert len(read_capture(folder).events) == 3


def test_without_flows_instructions_say_when_their_data_moved(folder: Path) -> None:
    (folder / "Flow.parquet").unlink()
    column("Instruction", "dma_trigger_start_ts", first(1_100))(folder)
    column("Instruction", "dma_trigger_end_ts", first(1_800))(folder)
    assert read_capture(folder).events[-1].moves == (1_100.0, 1_800.0, 0)


def test_a_simulation_says_so(folder: Path) -> None:
    column("Metadata", "is_simulation", first(True))(folder)
    assert "simulation" in read_capture(folder).notes[0]
    assert METADATA["is_simulation"] is False
