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

import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.profiling.formats.neuron_explorer_schema import explorer_schema
from nki.profiling.record import Profile
from nki.target.load import load_target
from tests.profiling.support import (
    LOOPING,
    PIPELINE,
    array,
    by,
    hbm,
    loaded,
    looping,
    pipeline,
    profiled,
    psum,
    sbuf,
    stored,
)


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
    assert row["vector_engine_clock_freq"] == pytest.approx(0.96)
    assert any(warning["category"] == "Simulation" for warning in tables["Warning"].to_pylist())


def test_columns_have_the_types_and_units_of_the_schema(tables: dict[str, Any]) -> None:
    schema = explorer_schema()
    arrow = {"int64": "int64", "int32": "int32", "float": "float", "string": "string", "boolean": "bool"}
    for name, table in tables.items():
        found = [(field.name, str(field.type), field.nullable) for field in table.schema]
        assert found == [(c.name, arrow[c.kind], not c.required) for c in schema.tables[name]], name
    units = {(row["table_name"], row["field_name"]): row["field_unit"] for row in tables["SchemaFields"].to_pylist()}
    assert units["Instruction", "duration_ns"] == "nanoseconds"
    assert units["DmaPacket", "throughput"] == "bytes_per_second"
    assert units["Metadata", "vector_engine_clock_freq"] == "gigahertz"
    assert units.keys() == {(name, column) for name, table in tables.items() for column in table.column_names}


def test_instructions_of_the_explorer(profile: Profile, tables: dict[str, Any]) -> None:
    rows = {row["id"]: row for row in tables["Instruction"].to_pylist()}
    assert len(rows) == len(tables["Instruction"])
    for ours in profile["instructions"].rows():
        row = rows[ours["id"]]
        product = row["opcode"] == "MATMUL"
        assert row["start_ts"] == round(ours["move_ns" if product else "start_ns"])
        assert row["duration_ns"] == row["end_ts"] - row["start_ts"]
        if row["dma_trigger_start_ts"] is None:
            assert row["end_ts"] == round(ours["visible_ns"])
        assert row["opcode"] == SPELLED[ours["opcode"]]
        line = profile["sources"].row(ours["source"])
        assert row["nki_source_location"] == f"{line['file']}:{line['line']}"
    for (core, engine), found in _grouped(tables["Instruction"].to_pylist(), "pcore_idx", "engine"):
        assert engine in ("Tensor", "Vector", "Scalar", "GpSimd", "Sync")
        assert [row["pc"] for row in found] == list(range(len(found))), (core, engine)


SPELLED = {
    "nisa.dma_copy": "DMA_DIRECT2D",
    "nisa.nc_matmul": "MATMUL",
    "nisa.activation": "ACTIVATE",
    "nisa.tensor_tensor": "TENSOR_TENSOR",
    "nisa.tensor_scalar": "TENSOR_SCALAR",
    "nisa.memset": "MEMSET",
}
"""As the vendor's glossary and public programs that read profiles spell them."""


def test_a_matmul_is_the_loading_of_weights_and_a_multiplication(tmp_path: Path) -> None:
    profile = profiled(pipeline, *PIPELINE)
    profile.explorer(tmp_path)
    rows = [row for row in pq.read_table(tmp_path / "Instruction.parquet").to_pylist() if row["engine"] == "Tensor"]
    assert [row["opcode"] for row in rows] == ["LDWEIGHTS", "MATMUL"] * 5
    assert sum(row["raw_flops"] or 0 for row in rows) == 5 * 2 * 128 * 128 * 512
    assert all(a["bir_id"] == b["bir_id"] for a, b in zip(rows[::2], rows[1::2], strict=True))
    assert all(row["end_ts"] > row["start_ts"] for row in rows)
    for load, product in zip(rows[::2], rows[1::2], strict=True):
        assert load["start_ts"] < load["end_ts"] <= product["start_ts"]


def test_a_float32_matmul_is_two_passes(tmp_path: Path) -> None:
    """Each of them records half of the operations, as the schema's raw_flops says."""

    def wide(a: Any, b: Any) -> Any:
        product, out = psum((128, 512)), sbuf((128, 512))
        nisa.nc_matmul(dst=product, stationary=loaded(a), moving=loaded(b))
        nisa.tensor_copy(dst=out, src=product)
        return stored(out)

    profiled(wide, array(128, 128), array(128, 512)).explorer(tmp_path)
    rows = [row for row in pq.read_table(tmp_path / "Instruction.parquet").to_pylist() if row["opcode"] == "MATMUL"]
    assert [row["raw_flops"] for row in rows] == [128 * 128 * 512] * 2
    assert rows[0]["adjusted_flops"] == 4 * rows[0]["raw_flops"], "the schema: FP32 uses 4.0x"
    assert rows[1]["start_ts"] > rows[0]["start_ts"]


def test_packets_make_up_their_transfer(profile: Profile, tables: dict[str, Any]) -> None:
    packets = dict(_grouped(tables["DmaPacket"].to_pylist(), "packet_aggregation_id"))
    for transfer in tables["DmaPacketAggregated"].to_pylist():
        found = packets.pop((transfer["id"],))
        assert sum(packet["transfer_bytes"] for packet in found) == transfer["transfer_bytes"]
        assert [packet["packet_idx"] for packet in found] == list(range(len(found)))
        assert len({packet["engine_idx"] for packet in found}) == len(found) <= 16
        assert min(packet["start_ts"] for packet in found) == transfer["start_ts"]
        assert max(packet["end_ts"] for packet in found) == transfer["end_ts"]
    assert not packets


def test_tensor_is_throttled_when_it_begins(tmp_path: Path) -> None:
    """At half of its rate, which is what the target says of the limit; the time is that which products took longer."""

    def long(a: Any, b: Any) -> Any:
        product, out, weights, moving = psum((128, 512)), sbuf((128, 512)), loaded(a), loaded(b)
        for _ in range(40):
            nisa.nc_matmul(dst=product, stationary=weights, moving=moving)
        nisa.tensor_copy(dst=out, src=product)
        return stored(out)

    profile = profiled(long, array(128, 128, dtype=nl.bfloat16), array(128, 512, dtype=nl.bfloat16))
    profile.explorer(tmp_path)
    (row,) = pq.read_table(tmp_path / "Throttle.parquet").to_pylist()
    assert (row["k"], row["n"]) == (1, 2)
    assert row["duration"] == pytest.approx(load_target("trn2").throttle.ramp_ns, abs=2)
    (total,) = pq.read_table(tmp_path / "ThrottleSummary.parquet").to_pylist()
    assert total["throttle_active_time_ns"] == row["duration"]
    assert total["max_achievable_util_with_throttling_percent"] == pytest.approx(0.5)


def test_what_did_not_happen_has_no_table(tables: dict[str, Any]) -> None:
    """As how-to-analyze-profile-output.rst says of kinds of activity."""
    assert "CcOp" not in tables


def test_collectives_are_operations(tmp_path: Path) -> None:
    def gather(a: Any) -> Any:
        out = hbm((256, 512))
        kept = hbm((128, 512))
        nisa.dma_copy(dst=kept, src=a)
        ncc.all_gather(srcs=[kept], dsts=[out], replica_group=ncc.ReplicaGroup([[0, 1]]), collective_dim=0)
        return out

    profiled(gather, array(128, 512)).explorer(tmp_path)
    (row,) = pq.read_table(tmp_path / "CcOp.parquet").to_pylist()
    assert (row["operation"], row["dtype"]) == ("AllGather", "float32")
    assert (row["num_elements"], row["input_size"], row["output_size"]) == (128 * 512, 128 * 512 * 4, 256 * 512 * 4)
    assert row["algorithm_bandwidth"] == pytest.approx(256 * 512 * 4 / row["duration_ns"] * 1e9, rel=1e-3)
    started = [row["opcode"] for row in pq.read_table(tmp_path / "Instruction.parquet").to_pylist()]
    assert started.count("PSEUDO_TRIGGER_COLLECTIVE") == 1


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
    assert row["hardware_dynamic_dma_size"] + row["static_dma_size"] == row["dma_transfer_total_bytes"]
    assert 0.0 < row["total_active_time"] <= row["total_time"] * (1 + 1e-6)


ASKED = {
    "Summary": """total_time total_active_time tensor_engine_active_time vector_engine_active_time
        scalar_engine_active_time gpsimd_engine_active_time dma_active_time hbm_read_bytes hbm_write_bytes
        dma_transfer_total_bytes static_dma_active_time static_dma_active_time_percent
        dynamic_dma_active_time_percent software_dynamic_dma_active_time dma_transfer_count
        dma_transfer_average_bytes dma_packet_time dma_transfer_time dma_queue_count static_dma_packet_count
        software_dynamic_dma_packet_count hardware_dynamic_dma_packet_count inputs_outputs_weights_size_bytes""",
    "Metadata": "dma_ddr_bandwidth tensor_engine_num_rows tensor_engine_num_cols tensor_engine_clock_freq",
    "DmaPacket": "start_ts end_ts transfer_bytes queue_type duration_ns throughput packet_aggregation_id",
    "DmaPacketAggregated": "id variable transfer_bytes source dest queue_type op duration_ns is_transpose_mode",
    "ActiveTime": "engine start_ts end_ts duration_ns",
    "Instruction": "engine opcode start_ts end_ts hbm_read_bytes bir_debug_info_source_location nki_source_location",
}
"""What public programs that read such profiles ask for without looking whether it is there."""


def test_public_programs_find_what_they_ask_for(tmp_path: Path) -> None:
    profiled(pipeline, *PIPELINE).explorer(tmp_path)
    for table, names in ASKED.items():
        rows = pq.read_table(tmp_path / f"{table}.parquet").to_pylist()
        if table == "Instruction":
            rows = [row for row in rows if row["opcode"] != "LDWEIGHTS"]
        missing = {name for row in rows for name in names.split() if row[name] is None}
        assert rows
        assert not missing, table
    instructions = pq.read_table(tmp_path / "Instruction.parquet").to_pylist()
    products = [row for row in instructions if (row["engine"], row["opcode"]) == ("Tensor", "MATMUL")]
    assert sum(row["adjusted_flops"] for row in products) == 5 * 2 * 128 * 128 * 512
    (summary,) = pq.read_table(tmp_path / "Summary.parquet").to_pylist()
    assert sum(row["adjusted_flops"] for row in products) == summary["hardware_flops"]
    packets = pq.read_table(tmp_path / "DmaPacket.parquet").to_pylist()
    assert sum(row["transfer_bytes"] for row in packets) == summary["dma_transfer_total_bytes"]
    engines = {row["engine"] for row in pq.read_table(tmp_path / "ActiveTime.parquet").to_pylist()}
    assert engines == {"tensor", "vector", "scalar", "sync"}


def test_inputs_and_results_are_told_apart(tmp_path: Path) -> None:
    """A program that counts necessary bytes adds up tensors of type IN and OUT."""
    profiled(pipeline, *PIPELINE).explorer(tmp_path)
    tensors = pq.read_table(tmp_path / "TensorInfo.parquet").to_pylist()
    assert sorted((row["type"], row["size"]) for row in tensors) == [
        ("IN", 128 * 128 * 2),
        ("IN", 128 * 2560 * 2),
        ("OUT", 128 * 2560 * 2),
    ]
    ends = {(row["source"], row["dest"]) for row in pq.read_table(tmp_path / "DmaPacketAggregated.parquet").to_pylist()}
    assert ends == {("[[INPUT]]", "[SB]"), ("[[SB]]", "[OUTPUT]")}


def test_flows_point_to_rows(tables: dict[str, Any]) -> None:
    ids = {name: {row["id"] for row in tables[name].to_pylist()} for name in ("Instruction", "DmaPacketAggregated")}
    flows = tables["Flow"].to_pylist()
    assert flows
    for row in flows:
        assert row["in_id"] in ids[row["in_table"]]
        assert row["out_id"] in ids[row["out_table"]]
    started = {row["out_id"] for row in flows if row["dependency_type"] == "DGE_TRIGGER"}
    assert started == ids["DmaPacketAggregated"], "whoever asks which line moved what follows these"


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
