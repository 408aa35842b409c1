"""Perfetto traces, tables of the Neuron Explorer and CSV, read back by other means than they were written with."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

import nki.isa as nisa
import nki.language as nl
from nki.profiling.record import Profile
from tests.profiling.support import LOOPING, PIPELINE, array, by, hbm, looping, pipeline, profiled, sbuf


def cores(a: Any) -> Any:
    """A kernel for two cores, with a name that a spreadsheet would calculate."""
    core, out, tile = nl.program_id(0), hbm(a.shape), sbuf((128, 512))
    nisa.dma_copy(dst=tile, src=a[core], name="=1+1")
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out[core], src=tile)
    return out


@pytest.fixture(params=["pipeline", "looping", "cores"])
def profile(request: pytest.FixtureRequest) -> Profile:
    if request.param == "cores":
        return profiled(cores, array(2, 128, 512), lnc=2)
    return profiled(pipeline, *PIPELINE) if request.param == "pipeline" else profiled(looping, *LOOPING)


# --- Perfetto


def packets(profile: Profile, tmp_path: Path) -> Any:
    profile.perfetto(tmp_path / "trace.pftrace")
    trace = Trace()
    trace.ParseFromString((tmp_path / "trace.pftrace").read_bytes())
    return trace.packet


class Read:
    """What a trace processor makes of a trace: tracks with their names, slices, counters, flows."""

    def __init__(self, found: Any) -> None:
        self.names: dict[int, str] = {}
        self.parents: dict[int, int] = {}
        self.units: dict[int, str] = {}
        self.processes: dict[int, str] = {}
        self.slices: dict[int, list[tuple[int, int, Any]]] = defaultdict(list)
        self.values: dict[int, list[tuple[int, float]]] = defaultdict(list)
        self.starts: Counter[int] = Counter()
        self.ends: Counter[int] = Counter()
        self.when: dict[tuple[str, int], int] = {}
        for packet in found:
            if packet.HasField("track_descriptor"):
                self._describe(packet.track_descriptor)
        opened: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        events = [p for p in found if p.HasField("track_event")]
        for packet in sorted(events, key=lambda p: p.timestamp):  # stable, as the importer sorts
            self._event(packet, opened)
        assert not any(opened.values()), "a slice does not end"

    def _describe(self, described: Any) -> None:
        assert described.uuid not in self.names
        self.names[described.uuid] = described.name
        if described.HasField("process"):
            self.processes[described.uuid] = described.process.process_name
        else:
            assert described.parent_uuid in self.processes
            self.parents[described.uuid] = described.parent_uuid
        if described.HasField("counter"):
            self.units[described.uuid] = described.counter.unit_name

    def _event(self, packet: Any, opened: dict[int, list[tuple[int, Any]]]) -> None:
        event = packet.track_event
        assert event.track_uuid in self.names
        if event.type == TrackEvent.TYPE_COUNTER:
            self.values[event.track_uuid].append((packet.timestamp, event.double_counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
            opened[event.track_uuid].append((packet.timestamp, event))
            self.starts.update(event.flow_ids)
            self.ends.update(event.terminating_flow_ids)
        else:
            start, begun = opened[event.track_uuid].pop()
            self.slices[event.track_uuid].append((start, packet.timestamp, begun))

    def track(self, name: str, core: int = 0) -> int:
        return next(u for u, n in self.names.items() if n == name and self.parents.get(u) == core + 1)


def test_slices_of_a_track_do_not_overlap(profile: Profile, tmp_path: Path) -> None:
    read = Read(packets(profile, tmp_path))
    for uuid, slices in read.slices.items():
        if read.names[uuid] == "loops":
            continue
        for (_, end, _), (start, _, _) in zip(
            sorted(slices, key=_by_time), sorted(slices, key=_by_time)[1:], strict=False
        ):
            assert start >= end, read.names[uuid]


def _by_time(item: tuple[int, int, Any]) -> tuple[int, int]:
    return item[0], item[1]


def test_every_instruction_and_transfer_is_a_slice(profile: Profile, tmp_path: Path) -> None:
    read = Read(packets(profile, tmp_path))
    transfers = {row["instruction"]: row for row in profile["dma"].rows()}
    expected: Counter[tuple[int, str]] = Counter()
    for row in profile["instructions"].rows():
        transfer = transfers.get(row["id"])
        expected[row["core"], row["queue"] if transfer else row["engine"]] += 1
        if transfer:
            expected[row["core"], transfer["trigger"]] += 1
    for (core, name), count in expected.items():
        slices = [s for s in read.slices[read.track(name, core)] if s[2].name != "load table"]
        assert len(slices) == count, name


def test_every_slice_of_an_instruction_has_its_number(profile: Profile, tmp_path: Path) -> None:
    """The first one has 0, which is a number like others."""
    read = Read(packets(profile, tmp_path))
    found: Counter[int] = Counter()
    for uuid, slices in read.slices.items():
        if read.names[uuid] not in ("tensor weights", "critical path"):
            for _, _, event in slices:
                numbers = [note.int_value for note in event.debug_annotations if note.name == "id"]
                found.update(numbers if not event.name.startswith("start ") else [])
    assert found == Counter(range(len(profile["instructions"])))


def test_signals_are_flows_with_two_ends(profile: Profile, tmp_path: Path) -> None:
    read = Read(packets(profile, tmp_path))
    signals = sum(1 for row in profile["edges"].rows() if row["signal"])
    assert signals
    assert len(read.starts) == len(read.ends) == signals
    assert read.starts == read.ends
    assert set(read.starts.values()) == {1}


def test_counters_and_processes(profile: Profile, tmp_path: Path) -> None:
    read = Read(packets(profile, tmp_path))
    about = profile.about
    assert [read.processes[core + 1] for core in range(about.cores)] == [
        f"core {core}: {about.kernel} on trn2 (simulated)" for core in range(about.cores)
    ]
    for (core, name), rows in by(profile["counters"], "core", "counter").items():
        uuid = read.track(name, core)
        assert read.units[uuid] == ("GB/s" if "per_ns" in name else "transfers" if "flight" in name else "bytes")
        assert sorted(read.values[uuid]) == sorted((round(row["time_ns"]), row["value"]) for row in rows)


def test_a_slice_says_what_it_waited_for_and_where_it_comes_from(tmp_path: Path) -> None:
    profile = profiled(pipeline, *PIPELINE)
    read = Read(packets(profile, tmp_path))
    _, _, event = min(read.slices[read.track("tensor")], key=_by_time)
    notes = {note.name: note.string_value for note in event.debug_annotations}
    assert "nisa.nc_matmul(dst=product, stationary=w, moving=x)" in notes["source"]
    assert notes["wait_text"].startswith("nisa.dma_copy (dma")
    assert "called from 1" not in notes
    waits = read.slices[read.track("tensor waits")]
    assert {event.name for _, _, event in waits} == {"signal"}


# --- Neuron Explorer

# The columns that its documentation names for these tables, a part of them.
SUMMARY = """total_time neuroncore_cycle_count model_flops hardware_flops transpose_flops mm_arithmetic_intensity
peak_flops_bandwidth_ratio dma_active_time dma_active_time_percent mbu_estimated_percent hbm_read_bytes hbm_write_bytes
spill_save_bytes spill_reload_bytes matmul_instruction_count mfu_estimated_percent hfu_estimated_percent
mfu_max_achievable_estimated_percent tensor_engine_instruction_time vector_engine_active_time
scalar_engine_active_time_percent sync_engine_instruction_count gpsimd_engine_active_time"""
INSTRUCTION = """start_ts end_ts duration_ns engine opcode operands pc bir_id evt_wait_time_ns dma_wait_time_ns
nki_source_location bir_debug_info_source_location hbm_read_bytes sbuf_write_bytes psum_read_bytes performance_mode
tensor_instruction_type raw_flops"""


@pytest.fixture
def tables(profile: Profile, tmp_path: Path) -> dict[str, Any]:
    profile.explorer(tmp_path / "tables")
    return {path.stem: pq.read_table(path) for path in sorted((tmp_path / "tables").iterdir())}


def test_names_of_tables_and_columns(tables: dict[str, Any]) -> None:
    assert tables.keys() >= {
        "Summary",
        "Instruction",
        "DmaPacketAggregated",
        "Flow",
        "Metadata",
        "SbufUsage",
        "PsumUsage",
    }
    assert set(SUMMARY.split()) <= set(tables["Summary"].column_names)
    assert set(INSTRUCTION.split()) <= set(tables["Instruction"].column_names)
    assert len(tables["Summary"].column_names) == 101
    assert len(tables["Instruction"].column_names) == 55
    assert len(tables["Metadata"].column_names) == 38
    assert set(tables["Flow"].column_names) == {
        "in_id",
        "out_id",
        "in_table",
        "out_table",
        "dependency_type",
        "gap_time",
    }


def test_the_profile_says_that_it_is_a_simulation(tables: dict[str, Any]) -> None:
    (row,) = tables["Metadata"].to_pylist()
    assert row["is_simulation"] is True
    assert row["profile_schema_version"] == "7.4.0"
    assert row["vector_engine_clock_freq"] == 0.96
    assert any(warning["category"] == "Simulation" for warning in tables["Warning"].to_pylist())


def test_instructions_of_the_explorer(profile: Profile, tables: dict[str, Any]) -> None:
    rows = {row["id"]: row for row in tables["Instruction"].to_pylist()}
    assert len(rows) == len(profile["instructions"])
    for ours in profile["instructions"].rows():
        row = rows[ours["id"]]
        assert row["start_ts"] == round(ours["start_ns"])
        assert row["duration_ns"] == row["end_ts"] - row["start_ts"]
        assert row["opcode"] == ours["opcode"].removeprefix("nisa.").upper()
        assert row["evt_wait_time_ns"] == round(ours["wait_ns"])
        line = profile["sources"].row(ours["source"])
        assert row["nki_source_location"] == f"{line['file']}:{line['line']}"
    for (core, engine), found in _grouped(rows.values(), "pcore_idx", "engine"):
        assert [row["pc"] for row in found] == list(range(len(found))), (core, engine)


def _grouped(rows: Any, *names: str) -> Iterator[tuple[Any, list[Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    yield from found.items()


def test_the_summary_of_the_explorer(profile: Profile, tables: dict[str, Any]) -> None:
    (row,) = tables["Summary"].to_pylist()
    assert row["total_time"] == pytest.approx(profile.makespan_ns / 1e9)
    transfers = tables["DmaPacketAggregated"].to_pylist()
    runs = profile["instructions"]["runs"]
    assert row["dma_transfer_total_bytes"] == sum(t["transfer_bytes"] * runs[t["id"]] for t in transfers)
    assert row["hbm_read_bytes"] + row["hbm_write_bytes"] == row["dma_transfer_total_bytes"]
    assert 0.0 < row["mbu_estimated_percent"] <= 100.0
    for engine in ("tensor", "vector", "scalar", "sync", "gpsimd"):
        assert 0.0 <= row[f"{engine}_engine_active_time_percent"] <= 100.0 + 1e-9
    started = sum(runs[t["id"]] for t in transfers)
    assert row["sync_engine_instruction_count"] == started


def test_flows_point_to_rows(tables: dict[str, Any]) -> None:
    ids = {
        "instruction": {row["id"] for row in tables["Instruction"].to_pylist()},
        "dma_block": {row["id"] for row in tables["DmaPacketAggregated"].to_pylist()},
    }
    flows = tables["Flow"].to_pylist()
    assert flows
    for row in flows:
        assert row["in_id"] in ids[row["in_table"]]
        assert row["out_id"] in ids[row["out_table"]]


def test_usage_ends_empty(tables: dict[str, Any]) -> None:
    for name in ("SbufUsage", "PsumUsage"):
        for _, rows in _grouped(tables[name].to_pylist(), "pcore_idx"):
            assert rows[-1]["avg_util_percent"] == pytest.approx(0.0)
            assert all(0.0 <= row["avg_util_percent"] <= 100.0 for row in rows)
    last = max(tables["DmaUsage"].to_pylist(), key=lambda row: row["timestamp"])
    assert last["current_throughput"] == 0.0


# --- CSV


def test_csv_files_hold_the_tables(profile: Profile, tmp_path: Path) -> None:
    profile.csv(tmp_path / "csv")
    for name, table in profile.tables.items():
        with (tmp_path / "csv" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(table)
        for read, ours in zip(rows, table.rows(), strict=True):
            assert read.keys() == ours.keys()
            for key, value in ours.items():
                if isinstance(value, str):
                    assert read[key].lstrip("'") == value.lstrip("'")
                elif isinstance(value, float):
                    assert float(read[key]) == value
                else:
                    assert read[key] == str(value)


def test_no_cell_is_a_formula(tmp_path: Path) -> None:
    profile = profiled(cores, array(2, 128, 512), lnc=2)
    assert "=1+1" in profile["instructions"]["name"]
    profile.csv(tmp_path)
    assert "'=1+1" in (tmp_path / "instructions.csv").read_text()
