"""What was measured of the kernels' cases, as `python -m benchmarks.library --write` keeps it for the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.library.case import Case
from benchmarks.library.measure import Measured
from benchmarks.library.source import source_of
from benchmarks.library.timeline import timeline
from benchmarks.timing_cases.digest import digest

from nki.store.files import write_whole

FOLDER = Path(__file__).with_name("results")
"""A file for each kernel."""

_DROPPED = ("seconds", "instructions")
_DIGITS = 5


def record_of(kernel: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """What is known of a kernel; None if nothing."""
    file = folder / f"{kernel}.json"
    found: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return found


def is_current(kernel: str, cases: Iterable[Case], folder: Path = FOLDER) -> bool:
    """Whether a record is of the kernel and the timing model as they are, and of these cases."""
    record = record_of(kernel, folder)
    if record is None or [row["key"] for row in record["cases"]] != [case.key for case in cases]:
        return False
    return (record["model"], record.get("source")) == (digest(), source_of(kernel))


def keep(kernel: str, measured: Iterable[tuple[Case, Measured]], folder: Path = FOLDER) -> None:
    """Write a kernel's cases, and the timeline of its first one.

    The published kernel's times stay if they are not measured now, and the timing model is the same as it was then.
    """
    pairs = list(measured)
    before = record_of(kernel, folder) or {"model": "", "cases": []}
    known = {row["key"]: row for row in before["cases"]} if before["model"] == digest() else {}
    cases = [_row(row, known.get(row.key, {})) for _, row in pairs]
    timeline_of_first = _rounded(timeline(pairs[0][0]))
    origin = {"kernel": kernel, "model": digest(), "source": source_of(kernel)}
    record = {**origin, "cases": cases, "timeline": timeline_of_first}
    folder.mkdir(exist_ok=True)
    write_whole(folder / f"{kernel}.json", f"{json.dumps(record, indent=1)}\n".encode())


def _row(row: Measured, before: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in row.to_json().items() if name not in _DROPPED}
    if row.official_ns is None and not row.note:
        values |= {name: before[name] for name in ("official_ns", "note") if name in before}
    return {name: _rounded(value) for name, value in values.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return {name: _rounded(each) for name, each in value.items()} if isinstance(value, Mapping) else value
