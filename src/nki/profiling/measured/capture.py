"""A measured profile as an object: what each engine executed when, from which line, and what transfers it started."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nki.profiling.formats.neuron_explorer_schema import explorer_schema
from nki.profiling.formats.opcodes import kind_of, opcodes
from nki.profiling.measured.refusals import refused
from nki.profiling.measured.rows import ENGINES, check_instructions, check_throttle, check_transfers
from nki.profiling.measured.tables import files_of, read_table
from nki.profiling.measured.units import check_units

SIZES = ("hbm_read_bytes", "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes")
"""Columns that say how much an instruction works on; psum_write_bytes is described as bytes that are read."""
USED: Mapping[str, tuple[str, ...]] = {
    "Metadata": (
        "profile_schema_version",
        "num_physical_cores",
        "instance_type",
        "compiler_version",
        "profile_name",
        "is_simulation",
    ),
    "Instruction": (
        "start_ts",
        "end_ts",
        "duration_ns",
        "engine",
        "pcore_idx",
        "opcode",
        "operands",
        "id",
        "pc",
        "evt_wait_time_ns",
        "nki_source_location",
        "bir_debug_info_source_location",
        "dma_trigger_start_ts",
        "dma_trigger_end_ts",
        *SIZES,
        "raw_flops",
    ),
    "DmaPacketAggregated": ("start_ts", "end_ts", "duration_ns", "id", "pcore_idx", "queue_name", "transfer_bytes"),
    "Flow": ("in_id", "out_id", "in_table", "out_table"),
    "Throttle": ("timestamp", "duration", "pcore_idx"),
    "ExecutionInfo": ("execution_index", "execution_start_ts", "execution_end_ts"),
}
"""The columns that are read; each of them is checked."""
_NEEDED = ("Metadata", "Instruction")
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})\.(\d{1,4})")
_LOCATION = re.compile(r"([^\s,\[\]\"']+):(\d{1,7})")


class Event(NamedTuple):
    """An instruction that an engine executed.

    Attributes:
        id: of the profile.
        core, engine: that executed it; tensor, vector, scalar, gpsimd or sync.
        opcode: as the profile spells it.
        kind: one name for all spellings of the opcode.
        file, line: that it came from; "" and 0 if nothing says so.
        size: bytes that it reads and writes, and operations; None where the profile does not tell.
        operands: in the profile's words.
        start, end: in ns.
        waited: ns that it waited for signals before that.
        moves: start and end of the transfer that it started, and bytes, or None.
    """

    id: int
    core: int
    engine: str
    opcode: str
    kind: str
    file: str
    line: int
    size: tuple[int | None, ...]
    operands: str
    start: float
    end: float
    waited: float
    moves: tuple[float, float, int] | None

    @property
    def done(self) -> float:
        """When its result, or the last byte of the transfer that it started, was there."""
        return self.moves[1] if self.moves is not None else self.end


@dataclass(frozen=True, slots=True)
class Capture:
    """A measured profile.

    Attributes:
        folder: that it was read from.
        version: of its schema.
        name: that was given to it, or "".
        cores: physical cores.
        simulated: whether it says that it was not measured.
        events: by core and engine, in the order of execution.
        throttled: when the device limited its products, in ns.
        notes: what has to be said about it.
    """

    folder: Path
    version: str
    name: str
    cores: int
    simulated: bool
    events: list[Event]
    throttled: list[tuple[float, float]]
    notes: list[str]


def read_capture(folder: Path) -> Capture:
    """Read a folder of tables.

    Raises:
        ArtifactError: it is no measured profile of a schema that is read, see `read_table`, `check_units`,
            `check_instructions`, and ``measured.version``, ``measured.table``, ``measured.empty``.
    """
    files = files_of(folder)
    for table in _NEEDED:
        if table not in files:
            message = f"table {table} is missing; the schema has it as {table}.parquet"
            raise refused("measured.table", message, table=table)
    about = _metadata(files["Metadata"])
    newer = _minor(about["profile_schema_version"])
    _check_names(files, exact=not newer)
    notes = [check_units(files, USED, exact=not newer)]
    if newer:
        notes.append(f"the schema is {about['profile_schema_version']}: what it added to 7.4 is not read")
    if about["is_simulation"]:
        notes.append("the profile says that it is a simulation: nothing in it was measured")
    rows = read_table("Instruction", files["Instruction"], USED["Instruction"], exact=not newer)
    check_instructions(rows, about["num_physical_cores"])
    moves = _moves(files, exact=not newer)
    events = [_event(row, moves) for row in _rows(rows)]
    events, told = _one_execution(events, files, exact=not newer)
    events.sort(key=lambda each: (each.core, ENGINES.index(each.engine), each.start, each.end, each.id))
    return Capture(
        folder,
        about["profile_schema_version"],
        about["profile_name"] or "",
        about["num_physical_cores"],
        bool(about["is_simulation"]),
        events,
        _throttled(files, exact=not newer),
        [note for note in (*notes, told) if note],
    )


def _metadata(files: Sequence[Path]) -> dict[str, Any]:
    """The one row of `Metadata`; its version counts before anything else is checked."""
    rows = read_table("Metadata", files, USED["Metadata"], exact=False)
    count = len(rows["profile_schema_version"])
    if count != 1:
        message = f"table Metadata has {count} rows; the schema says: one, about the profile"
        if not count:
            raise refused("measured.empty", message, table="Metadata")
        raise refused("measured.rows", message, table="Metadata")
    row = {name: values[0] for name, values in rows.items()}
    _minor(row["profile_schema_version"])
    read_table("Metadata", files, USED["Metadata"], exact=not _minor(row["profile_schema_version"]))
    if not 1 <= row["num_physical_cores"] <= _MOST_CORES:
        message = f"num_physical_cores of table Metadata is {row['num_physical_cores']}, outside 1..{_MOST_CORES}"
        raise refused("measured.rows", message, table="Metadata", column="num_physical_cores")
    return row


_MOST_CORES = 64


def _minor(version: str) -> bool:
    """Whether a schema is a compatible later one. By its rules a new minor version only adds tables and fields."""
    own = explorer_schema().version
    found, mine = _VERSION.fullmatch(version), _VERSION.fullmatch(own)
    assert mine is not None
    if found is None or found[1] != mine[1] or int(found[2]) < int(mine[2]):
        message = f"profile_schema_version of table Metadata is {version[:40]!r}; {own} and later ones of 7 are read"
        raise refused("measured.version", message, table="Metadata", column="profile_schema_version")
    return int(found[2]) > int(mine[2])


def _check_names(files: Mapping[str, Any], *, exact: bool) -> None:
    """A table that the schema does not know."""
    schema = explorer_schema()
    unknown = sorted(files.keys() - schema.tables.keys() - schema.others)
    if unknown and exact:
        message = (
            f"table {unknown[0]} is none of the {len(schema.tables) + len(schema.others)} of schema {schema.version}"
        )
        raise refused("measured.table", message, table=unknown[0])


def _rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _event(row: Mapping[str, Any], moves: Mapping[int, tuple[float, float, int]]) -> Event:
    file, line = _location(row["nki_source_location"] or row["bir_debug_info_source_location"] or "")
    started, ended = row["dma_trigger_start_ts"], row["dma_trigger_end_ts"]
    moved = moves.get(row["id"])
    if moved is None and started is not None and ended is not None:
        nbytes = max(row["hbm_read_bytes"] or 0, row["hbm_write_bytes"] or 0, row["sbuf_write_bytes"] or 0)
        moved = (float(started), float(ended), nbytes)
    return Event(
        row["id"],
        row["pcore_idx"] or 0,
        row["engine"].lower(),
        row["opcode"],
        kind_of(row["opcode"]),
        file,
        line,
        tuple(row[name] for name in (*SIZES, "raw_flops")),
        row["operands"],
        float(row["start_ts"]),
        float(row["end_ts"]),
        float(row["evt_wait_time_ns"] or 0),
        moved,
    )


def _location(text: str) -> tuple[str, int]:
    """File and line; of several, which the compiler has merged, the first one."""
    found = _LOCATION.search(text)
    return (found[1], int(found[2])) if found else ("", 0)


def _moves(files: Mapping[str, Sequence[Path]], *, exact: bool) -> dict[int, tuple[float, float, int]]:
    """Data of the transfers that instructions start, by the instruction: from the first byte to the last one."""
    if "DmaPacketAggregated" not in files or "Flow" not in files:
        return {}
    read = {name: read_table(name, files[name], USED[name], exact=exact) for name in ("DmaPacketAggregated", "Flow")}
    check_transfers(read["DmaPacketAggregated"])
    transfers = {row["id"]: row for row in _rows(read["DmaPacketAggregated"])}
    found: dict[int, tuple[float, float, int]] = {}
    for row in _rows(read["Flow"]):
        tables = row["in_table"].lower(), row["out_table"].lower()
        moved = transfers.get(row["out_id"])
        if tables not in _STARTS or moved is None:
            continue
        start, end, nbytes = found.get(row["in_id"], (float("inf"), 0.0, 0))
        found[row["in_id"]] = (
            min(start, float(moved["start_ts"])),
            max(end, float(moved["end_ts"])),
            nbytes + moved["transfer_bytes"],
        )
    return found


_STARTS = (("instruction", "dmapacketaggregated"), ("instruction", "dma_block"))
"""What a flow from an instruction to its transfer is called: by the names of files, or as the document's example."""


def _one_execution(events: list[Event], files: Mapping[str, Sequence[Path]], *, exact: bool) -> tuple[list[Event], str]:
    """The events of the last execution, if the profile has several, and what to say about it."""
    if "ExecutionInfo" not in files:
        return events, ""
    rows = _rows(read_table("ExecutionInfo", files["ExecutionInfo"], USED["ExecutionInfo"], exact=exact))
    known = [row for row in rows if row["execution_start_ts"] is not None and row["execution_end_ts"] is not None]
    if len(known) < 2:
        return events, ""
    last = max(known, key=lambda row: row["execution_start_ts"])
    start, end = last["execution_start_ts"], last["execution_end_ts"]
    kept = [each for each in events if start <= each.start and each.end <= end]
    if not kept:
        message = f"no instruction lies in execution {last['execution_index']}, from {start} to {end} ns"
        raise refused("measured.empty", message, table="ExecutionInfo")
    return kept, f"of {len(known)} executions the last one counts, {len(kept)} of {len(events)} instructions"


def _throttled(files: Mapping[str, Sequence[Path]], *, exact: bool) -> list[tuple[float, float]]:
    """Times of the table `Throttle`, if there is one."""
    if "Throttle" not in files:
        return []
    rows = read_table("Throttle", files["Throttle"], USED["Throttle"], exact=exact)
    check_throttle(rows)
    return [(float(at), float(at + ns)) for at, ns in zip(rows["timestamp"], rows["duration"], strict=True)]


def is_own(event: Event) -> bool:
    """Whether it is an instruction of the device that no kernel writes: waiting, signals, sequencers."""
    return event.kind in opcodes().own
