"""What was measured, as a profile: so that the page, the trace and every table show it beside the predicted one.

A matched instruction has the opcode, operands and line of the kernel's own one, so that both have the same colour and
stand in the same rows of comparisons; everything else has the words of the capture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nki.profiling.about import About
from nki.profiling.errors import CONTROL
from nki.profiling.formats.executed import LOAD
from nki.profiling.intervals import length, union
from nki.profiling.measured.capture import SIZES, Event
from nki.profiling.measured.comparison import Comparison
from nki.profiling.measured.matching import Pair
from nki.profiling.record import Profile
from nki.profiling.schema import TABLES
from nki.profiling.table import Table, from_rows

_SIMULATED = "read from tables of a simulation"
_MEASURED = "measured on a device, as the Neuron Explorer tells it"
_MOST_TEXT = 1000
Row = dict[str, Any]


def measured_profile(comparison: Comparison) -> Profile:
    """The measured instructions on the clock of the predicted profile."""
    rows, transfers = _Rows(comparison).made()
    cores = max(comparison.capture.cores, comparison.profile.about.cores)
    tables = {
        "instructions": _table("instructions", rows),
        "dma": _table("dma", transfers),
        "sources": comparison.profile["sources"],
        "time": _table("time", _time(rows, transfers, cores)),
    }
    tables |= {name: from_rows(name, []) for name in TABLES if name not in tables}
    return Profile(_about(comparison, rows, transfers, cores), tables)


class _Rows:
    """Rows of `instructions` and `dma`."""

    def __init__(self, comparison: Comparison) -> None:
        matched = comparison.matched
        self.predicted = [*comparison.profile["instructions"].rows()]
        self.pairs: Mapping[int, Pair] = {id(pair.event): pair for pair in matched.pairs}
        self.events = [*(pair.event for pair in matched.pairs), *matched.events, *matched.own]
        first = min(each.start for each in self.events)
        self.zero = min(comparison.offset, first)

    def made(self) -> tuple[list[Row], list[Row]]:
        """All of them, by time."""
        rows: list[Row] = []
        transfers: list[Row] = []
        self.events.sort(key=lambda each: (each.core, each.start, each.end, each.id))
        nexts = self._nexts()
        free: dict[int, list[float]] = defaultdict(list)
        for number, event in enumerate(self.events):
            row = self._row(number, event, nexts[number])
            if event.moves is not None:
                moved = _moved(number, event, self.zero, free[event.core])
                row |= {"engine": "dma", "queue": moved["queue"], "move_ns": moved["start_ns"]}
                row |= {"end_ns": moved["end_ns"], "visible_ns": moved["end_ns"]}
                transfers.append(moved)
            rows.append(row)
        return rows, transfers

    def _nexts(self) -> list[float]:
        """When the engine of each event began the next one: until then the event was in it."""
        found = [0.0] * len(self.events)
        later: dict[tuple[int, str], float] = {}
        for number in range(len(self.events) - 1, -1, -1):
            event = self.events[number]
            found[number] = later.get((event.core, event.engine), event.end)
            later[event.core, event.engine] = event.start
        return found

    def _row(self, number: int, event: Event, after: float) -> Row:
        pair = self.pairs.get(id(event))
        ours = self.predicted[pair.item.part.id] if pair is not None else None
        weights = pair is not None and pair.item.part.what == LOAD
        start, end = event.start - self.zero, event.end - self.zero
        known = dict(zip((*SIZES, "flops"), event.size, strict=True))
        row: Row = {column.name: _EMPTY[column.kind] for column in TABLES["instructions"]}
        row |= {name: known[name] or 0 for name in SIZES}
        return row | {
            "id": number,
            "core": event.core,
            "position": number,
            "opcode": ours["opcode"] if ours is not None and not weights else _shown(event.opcode),
            "name": _shown(event.opcode),
            "engine": event.engine,
            "queue": event.engine,
            "operands": ours["operands"] if ours is not None else _shown(event.operands),
            "turn_ns": max(0.0, start - event.waited),
            "start_ns": start,
            "move_ns": start,
            "end_ns": max(start, min(end, after - self.zero)),
            "visible_ns": end,
            "wait_ns": min(start, event.waited),
            "wait_kind": "signal" if event.waited > 0.0 else "",
            "wait_for": -1,
            "cost_ns": end - start,
            "runs": 1.0,
            "loop": -1,
            "kernel": -1,
            "flops": float(known["flops"] or 0),
            "source": ours["source"] if ours is not None else -1,
        }


_EMPTY: Mapping[str, Any] = {"int": 0, "float": 0.0, "text": "", "bool": False}


def _moved(number: int, event: Event, zero: float, free: list[float]) -> Row:
    """A transfer in the first lane in which nothing moves."""
    assert event.moves is not None
    start = max(event.moves[0], event.start) - zero
    end = max(event.moves[1] - zero, start)
    lane = next((at for at, until in enumerate(free) if until <= start), len(free))
    free[lane : lane + 1] = [end]
    return {
        "core": event.core,
        "instruction": number,
        "queue": f"dma{lane}",
        "trigger": event.engine,
        "trigger_ns": event.start - zero,
        "issued_ns": min(max(event.end, event.start) - zero, start),
        "start_ns": start,
        "end_ns": end,
        "nbytes": event.moves[2],
        "descriptors": 1,
        "bytes_per_ns": event.moves[2] / (end - start) if end > start else 0.0,
        "source_memory": "",
        "destination_memory": "",
        "variable": "",
    }


def _time(rows: Sequence[Row], transfers: Sequence[Row], cores: int) -> list[Row]:
    """How long each engine had something in it, and how long data moved."""
    whole = max(row["visible_ns"] for row in rows)
    found = []
    for core in range(cores):
        tracks: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in rows:
            if row["core"] == core and row["engine"] != "dma":
                tracks[row["engine"]].append((row["start_ns"], row["end_ns"]))
        for row in transfers:
            if row["core"] == core:
                for track in ("dma", row["queue"]):
                    tracks[track].append((row["start_ns"], row["end_ns"]))
                tracks[row["trigger"]].append((row["trigger_ns"], row["issued_ns"]))
        for track, times in sorted(tracks.items()):
            busy = length(union(times))
            found.append({"core": core, "track": track, "category": "busy", "ns": busy})
            found.append({"core": core, "track": track, "category": "idle", "ns": max(0.0, whole - busy)})
    return found


def _about(comparison: Comparison, rows: Sequence[Row], transfers: Sequence[Row], cores: int) -> About:
    predicted, capture = comparison.profile.about, comparison.capture
    totals = [_totals(core, rows, transfers) for core in range(cores)]
    text = _SIMULATED if capture.simulated else _MEASURED
    return replace(
        predicted,
        is_simulation=capture.simulated,
        validated=False,
        generator=f"Neuron Explorer, schema {capture.version}",
        cores=cores,
        makespan_ns=max(each["makespan_ns"] for each in totals),
        totals=totals,
        advice=[],
        accuracy={"percent": None, "share": 0.0, "points": 0, "kind": "", "text": text},
        kept_loads=[],
    )


def _totals(core: int, rows: Sequence[Row], transfers: Sequence[Row]) -> Row:
    """Sums of one core."""
    mine = [row for row in rows if row["core"] == core]
    moved = [row["nbytes"] for row in transfers if row["core"] == core]
    spent = [row for row in _time(rows, transfers, core + 1) if row["core"] == core and row["category"] == "busy"]
    busy = {row["track"]: row["ns"] for row in spent}
    units = {track: ns for track, ns in busy.items() if not track.removeprefix("dma").isdigit()}
    return {
        **dict.fromkeys(_ZERO, 0),
        "makespan_ns": max((row["visible_ns"] for row in mine), default=0.0),
        "instructions": len(mine),
        "units": units,
        "bound_by": max(units, key=lambda unit: units[unit], default=""),
        "bounds": {},
        "flops": sum(row["flops"] for row in mine),
        "hbm_read_bytes": sum(row["hbm_read_bytes"] for row in mine),
        "hbm_write_bytes": sum(row["hbm_write_bytes"] for row in mine),
        "dma_bytes": sum(moved),
        "transfers": len(moved),
        "assumed_loops": [],
    }


_ZERO = (
    "matmul_flops",
    "transpose_flops",
    "sbuf_peak_bytes",
    "psum_peak_bytes",
    "hbm_peak_bytes",
)
"""Totals that a capture does not have."""


def _table(name: str, rows: Sequence[Row]) -> Table:
    return from_rows(name, [tuple(row[column.name] for column in TABLES[name]) for row in rows])


def _shown(text: str) -> str:
    """Words of a capture, without what a terminal would obey."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))[:_MOST_TEXT]
