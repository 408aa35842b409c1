"""Measured instructions beside predicted ones: as a profile, in a trace, on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from nki.explorer.report import report
from nki.explorer.shown import from_folders
from nki.profiling.measured.as_profile import measured_profile
from nki.profiling.record import Profile
from tests.profiling.measured.test_matching import captured, compared
from tests.profiling.measured.test_matching import predicted as predicted
from tests.profiling.test_formats import Read


@pytest.fixture
def measured(predicted: Profile, tmp_path: Path) -> Profile:
    return measured_profile(compared(predicted, captured(extra=True), tmp_path / "tables"))


def test_what_was_measured_is_a_profile(measured: Profile, predicted: Profile, tmp_path: Path) -> None:
    measured.save(tmp_path / "measured")
    read = Profile.load(tmp_path / "measured")
    assert read.to_json() == measured.to_json()
    assert read.to_json()["is_simulation"] is False
    assert "measured on a device" in read.summary()
    rows = [*read["instructions"].rows()]
    assert len(rows) == 7 + 2 * 3 + 3 + 3 + 3 + 1, "transfers, products, activations, scalings, memsets, a semaphore"
    activations = [row for row in rows if row["name"] == "ACTIVATE"]
    assert {row["opcode"] for row in activations} == {"nisa.activation"}
    assert [row["visible_ns"] - row["start_ns"] for row in activations] == [700.0] * 3
    ours = next(row for row in predicted["instructions"].rows() if row["opcode"] == "nisa.activation")
    assert activations[0]["source"] == ours["source"]
    assert activations[0]["operands"] == ours["operands"]
    strange = [row for row in rows if row["name"] == "MEMSET"]
    assert {(row["opcode"], row["source"]) for row in strange} == {("MEMSET", -1)}
    moved = [*read["dma"].rows()]
    assert sorted(row["end_ns"] - row["start_ns"] for row in moved) == [700.0] * 6 + [900.0]
    assert sum(row["nbytes"] for row in moved) == 32_768 + 6 * 131_072
    for track in ("vector", "dma"):
        spent = [row["ns"] for row in read["time"].rows() if row["track"] == track]
        assert sum(spent) == pytest.approx(read.makespan_ns)


def test_both_begin_together(measured: Profile, predicted: Profile) -> None:
    """The instruction that was measured first is where the model has it, but for a semaphore that came 50 ns before."""
    first = next(row for row in measured["instructions"].rows() if row["source"] >= 0)
    ours = [row for row in predicted["instructions"].rows() if row["source"] == first["source"]]
    assert min(abs(row["start_ns"] - first["start_ns"]) for row in ours) <= 50.0


def test_a_trace_has_both(measured: Profile, predicted: Profile, tmp_path: Path) -> None:
    predicted.perfetto(tmp_path / "trace.pftrace", measured)
    trace = Trace()
    trace.ParseFromString((tmp_path / "trace.pftrace").read_bytes())
    read = Read(trace.packet)
    names = sorted(read.processes.values())
    assert [re.sub(".*[(]", "(", name) for name in names] == ["(measured)", "(simulated)"]
    by_process: dict[str, set[str]] = {}
    for track, name in read.names.items():
        if track in read.slices:
            by_process.setdefault(read.processes[read.parents[track]], set()).add(name)
        last = 0
        for start, end, _ in sorted(read.slices.get(track, []), key=lambda each: each[:2]):
            assert last <= start <= end, name
            last = end
    one, other = by_process.values()
    assert {"vector", "scalar", "tensor", "dma0"} <= one & other


def test_the_page_has_both(measured: Profile, predicted: Profile, tmp_path: Path) -> None:
    predicted.save(tmp_path / "out")
    measured.save(tmp_path / "out" / "measured")
    text = report(from_folders([tmp_path / "out", tmp_path / "out" / "measured"]))
    assert 'id="profile-0"' in text
    assert 'id="profile-1"' in text


def test_words_of_a_capture_obey_nobody(predicted: Profile, tmp_path: Path) -> None:
    tape = captured(extra=True)
    for row in tape.instructions:
        if row["opcode"] == "MEMSET":
            row["opcode"], row["operands"] = "MEM\x1b[2J", "a\x07" * 9000
    measured_profile(compared(predicted, tape, tmp_path / "tables")).save(tmp_path / "measured")
    names = set(Profile.load(tmp_path / "measured")["instructions"]["opcode"])
    assert "MEM\N{REPLACEMENT CHARACTER}[2J" in names
