"""Whether the rows of a measured profile can be: times that do not run backwards, engines and cores that exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nki.core.errors import ArtifactError
from nki.profiling.measured.refusals import refused

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
MOST_NS = 10**15
"""The latest time, eleven days."""
_MOST_COUNT = 2**53
_ROUNDED = 1
"""ns by which a duration may differ from its ends."""


def check_instructions(rows: Mapping[str, Sequence[Any]], cores: int) -> None:
    """Raise ArtifactError: `Instruction` is empty (``measured.empty``), or a row cannot be (``measured.rows``)."""
    if not rows["id"]:
        message = "table Instruction has no rows; the schema says: one for each instruction that an engine executed"
        raise refused("measured.empty", message, table="Instruction")
    _check_times("Instruction", rows)
    seen: set[int] = set()
    for number, (engine, core, ident) in enumerate(zip(rows["engine"], rows["pcore_idx"], rows["id"], strict=True)):
        if engine.lower() not in ENGINES:
            raise _wrong("Instruction", number, "engine", engine[:40], f"one of {', '.join(ENGINES)}")
        if core is not None and not 0 <= core < cores:
            raise _wrong("Instruction", number, "pcore_idx", core, f"0..{cores - 1}, as num_physical_cores says")
        if ident in seen:
            raise _wrong("Instruction", number, "id", ident, "unique")
        seen.add(ident)
    for name in rows:
        if name.endswith("_bytes") or name in ("raw_flops", "pc"):
            _check_counts("Instruction", name, rows[name])
    for number, (start, end) in enumerate(zip(rows["dma_trigger_start_ts"], rows["dma_trigger_end_ts"], strict=True)):
        if start is not None and end is not None and not 0 <= start <= end <= MOST_NS:
            raise _wrong("Instruction", number, "dma_trigger_end_ts", end, f"from dma_trigger_start_ts ({start}) on")


def check_transfers(rows: Mapping[str, Sequence[Any]]) -> None:
    """Check the rows of `DmaPacketAggregated`."""
    _check_times("DmaPacketAggregated", rows)
    _check_counts("DmaPacketAggregated", "transfer_bytes", rows["transfer_bytes"])


def check_throttle(rows: Mapping[str, Sequence[Any]]) -> None:
    """Check the rows of `Throttle`."""
    for name in ("timestamp", "duration"):
        for number, value in enumerate(rows[name]):
            if not 0 <= value <= MOST_NS:
                raise _wrong("Throttle", number, name, value, f"within 0..{MOST_NS}")


def _check_times(table: str, rows: Mapping[str, Sequence[Any]]) -> None:
    times = zip(rows["start_ts"], rows["end_ts"], rows["duration_ns"], strict=True)
    for number, (start, end, duration) in enumerate(times):
        if not 0 <= start <= MOST_NS:
            raise _wrong(table, number, "start_ts", start, f"within 0..{MOST_NS}")
        if not start <= end <= MOST_NS:
            raise _wrong(table, number, "end_ts", end, f"within start_ts ({start})..{MOST_NS}")
        if abs(end - start - duration) > _ROUNDED:
            raise _wrong(table, number, "duration_ns", duration, f"end_ts - start_ts ({end - start}), in nanoseconds")


def _check_counts(table: str, name: str, values: Sequence[Any]) -> None:
    for number, value in enumerate(values):
        if value is not None and not 0 <= value <= _MOST_COUNT:
            raise _wrong(table, number, name, value, f"within 0..{_MOST_COUNT}")


def _wrong(table: str, row: int, column: str, found: Any, says: str) -> ArtifactError:
    message = f"column {column} of table {table} is {found!r} in row {row}; it has to be {says}"
    return refused("measured.rows", message, table=table, column=column, row=row)
