"""Modules of a model in other formats: the traces of Perfetto, and the tables of the Neuron Explorer."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from nki.profiling.record import Profile
from tests.profiling.models import modules_profile


@pytest.fixture(scope="module")
def profile() -> Profile:
    return modules_profile()


def test_layers_of_the_neuron_explorer(profile: Profile, tmp_path: Path) -> None:
    """By the operation that is much larger than what its kernel computes beside it."""
    profile.explorer(tmp_path)
    table = pq.read_table(tmp_path / "Instruction.parquet", columns=["bir_id", "layer"]).to_pylist()
    found = {row["bir_id"]: row["layer"] for row in table}
    names = {row["position"]: row["kernel"] for row in profile["instructions"].rows()}
    assert set(found.values()) == {"layers.0", "layers.1"}
    for at, kernel in names.items():
        assert found[f"0:{at}"] == f"layers.{kernel}"


def test_slices_of_perfetto_name_their_kernel_and_modules(profile: Profile, tmp_path: Path) -> None:
    profile.perfetto(tmp_path / "trace.pftrace")
    trace = Trace.FromString((tmp_path / "trace.pftrace").read_bytes())
    notes = [{note.name: note.string_value for note in packet.track_event.debug_annotations} for packet in trace.packet]
    modules = {each["module"] for each in notes if "module" in each}
    assert len(modules) == 2
    for number, text in enumerate(sorted(modules, key=lambda text: "layers.1 " in text)):
        assert f"aten.mm in layers.{number} (" in text and "aten.tanh in act" in text
    assert {each["kernel"] for each in notes if "kernel" in each} == set(profile["kernels"]["name"])
