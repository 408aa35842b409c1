"""What holds of every profile: edges are kept, no time is lost or counted twice, and the critical path has no gap."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.profiling.build import profile_programs
from nki.profiling.record import Profile
from nki.spec.step import Step
from nki.target.load import load_target
from tests.profiling.support import LOOPING, PIPELINE, array, by, hbm, looping, pipeline, profiled, sbuf
from tests.timing.support import Sketch

EPS = 1e-3
TRN2 = load_target("trn2")


def halves(a: Any) -> Any:
    """Two cores that meet."""
    core, out = nl.program_id(0), hbm(a.shape)
    tile = sbuf((128, 512))
    nisa.dma_copy(dst=tile, src=a[core])
    for _ in range(1 + 3 * core):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.core_barrier(data=out, cores=(0, 1))
    nisa.dma_copy(dst=out[core], src=tile)
    return out


def gpsimd_too(a: Any) -> Any:
    """Transfers that GpSimd starts, and engines that share memory."""
    out, tile, other = hbm(a.shape), sbuf((128, 512)), sbuf((128, 512))
    nisa.dma_copy(dst=tile, src=a, dge_mode=nisa.dge_mode.swdge)
    nisa.tensor_tensor(dst=other, data1=tile, data2=tile, op=nl.add, engine=nisa.engine.gpsimd)
    for _ in range(4):
        nisa.tensor_scalar(dst=other, data=other, op0=nl.add, operand0=1.0)
        nisa.activation(dst=tile, op=nl.exp, data=tile)
    nisa.tensor_tensor(dst=other, data1=tile, data2=other, op=nl.add)
    nisa.dma_copy(dst=out, src=other)
    return out


def sketched(seed: int) -> Profile:
    """A random synchronized segment: any engine, several DMA queues, waits for anything that came before."""
    chance, sketch = random.Random(seed), Sketch()
    for number in range(60):
        queue = chance.choice(["vector", "scalar", "gpsimd", "tensor", "sync", "dma0", "dma1", "dma2"])
        after = chance.sample(range(number), min(number, chance.choice([0, 0, 1, 2])))
        ns, latency = chance.choice([50.0, 100.0, 333.0]), chance.choice([0.0, 60.0])
        if queue.startswith("dma"):
            starter = chance.choice(["sync", "gpsimd"])
            steps = [Step("start", starter, 90.0, 500.0), Step("move", "dma", ns, 300.0, 4096, 1, 0.6, 20.0)]
        elif queue == "tensor":
            steps = [Step("load", "tensor.load", 20.0, 30.0), Step("multiply", "tensor", ns, latency)]
        else:
            steps = [Step("work", queue, ns, latency)]
        sketch.add(queue, *steps, after=after)
    return profile_programs([sketch.program()], TRN2)


MADE: dict[str, Callable[[], Profile]] = {
    "pipeline": lambda: profiled(pipeline, *PIPELINE),
    "looping": lambda: profiled(looping, *LOOPING),
    "halves": lambda: profiled(halves, array(2, 128, 512), lnc=2),
    "gpsimd": lambda: profiled(gpsimd_too, array(128, 512)),
    **{f"random {seed}": lambda seed=seed: sketched(seed) for seed in range(12)},
}
STRAIGHT = [name for name in MADE if name != "looping"]
_KEPT: dict[str, Profile] = {}


@pytest.fixture(params=list(MADE))
def profile(request: pytest.FixtureRequest) -> Profile:
    return made(request.param)


def made(name: str) -> Profile:
    if name not in _KEPT:
        _KEPT[name] = MADE[name]()
    return _KEPT[name]


def test_starts_respect_every_edge(profile: Profile) -> None:
    rows = list(profile["instructions"].rows())
    assert len(profile["edges"])
    for edge in profile["edges"].rows():
        producer, consumer = rows[edge["producer"]], rows[edge["consumer"]]
        if producer["queue"] != consumer["queue"]:
            assert consumer["start_ns"] >= producer["visible_ns"] - EPS
        else:
            assert consumer["start_ns"] >= producer["start_ns"] - EPS
            if producer["queue"].startswith("dma"):
                assert consumer["move_ns"] >= producer["end_ns"] - EPS
        assert edge["gap_ns"] == pytest.approx(consumer["start_ns"] - producer["visible_ns"], abs=EPS)


def test_queues_run_in_order(profile: Profile) -> None:
    for rows in by(profile["instructions"], "core", "queue").values():
        for earlier, later in itertools.pairwise(rows):
            assert later["turn_ns"] >= earlier["start_ns"] - EPS
            assert later["start_ns"] >= later["turn_ns"] - EPS


def test_times_of_an_instruction_ascend(profile: Profile) -> None:
    rows = profile["instructions"]
    for earlier, later in (
        ("turn_ns", "start_ns"),
        ("start_ns", "move_ns"),
        ("move_ns", "end_ns"),
        ("end_ns", "visible_ns"),
    ):
        assert np.all(rows[earlier] <= rows[later] + EPS)


def test_the_time_of_a_track_adds_up_to_the_makespan(profile: Profile) -> None:
    tracks = by(profile["time"], "core", "track")
    assert {track for _, track in tracks} >= {"tensor", "vector", "scalar", "gpsimd", "sync", "dma"}
    for (core, _), rows in tracks.items():
        makespan = profile.about.totals[core]["makespan_ns"]
        assert sum(row["ns"] for row in rows) == pytest.approx(makespan, rel=1e-9)
        assert all(row["ns"] >= 0.0 for row in rows)


@pytest.mark.parametrize("name", list(MADE))
def test_busy_is_what_the_timeline_counted(name: str) -> None:
    profile = made(name)
    for (core, track), rows in by(profile["time"], "core", "track").items():
        if track in ("vector", "scalar", "gpsimd", "sync"):
            ns = {row["category"]: row["ns"] for row in rows}
            counted = profile.about.totals[core]["units"][track]
            assert ns.get("busy", 0.0) + ns.get("table", 0.0) == pytest.approx(counted, rel=1e-6, abs=EPS)


@pytest.mark.parametrize("name", STRAIGHT)
def test_categories_against_a_clock_that_is_looked_at_often(name: str) -> None:
    """At many moments, what a track does is found by looking at all instructions."""
    profile = made(name)
    looks = 4001
    started = {row["instruction"]: row for row in profile["dma"].rows()}
    for (core, track), rows in by(profile["time"], "core", "track").items():
        makespan = profile.about.totals[core]["makespan_ns"]
        times = (np.arange(looks) + 0.5) * makespan / looks
        busy, waiting = np.zeros(looks, bool), np.zeros(looks, bool)
        for row in profile["instructions"].rows():
            if row["core"] != core:
                continue
            transfer = started.get(row["id"])
            if transfer and transfer["trigger"] == track:
                busy |= (times >= transfer["trigger_ns"]) & (times < transfer["issued_ns"])
            if transfer and track in (row["queue"], "dma"):
                busy |= (times >= row["move_ns"]) & (times < row["end_ns"])
            if not transfer and row["engine"] == track:
                busy |= (times >= row["start_ns"]) & (times < row["end_ns"])
            if row["queue"] == track:
                waiting |= (times >= row["turn_ns"]) & (times < row["move_ns"] if transfer else times < row["start_ns"])
        ns = defaultdict(float, {row["category"]: row["ns"] for row in rows})
        changes = 4 * len(profile["instructions"]) / looks
        assert busy.mean() == pytest.approx(ns["busy"] / makespan, abs=changes)
        idle = 1.0 - (busy | waiting).mean()
        assert idle == pytest.approx((ns["idle"] + ns["barrier"]) / makespan, abs=changes)


def test_the_critical_path_has_no_gap_and_is_as_long_as_the_makespan(profile: Profile) -> None:
    for core, pieces in by(profile["path"], "core").items():
        assert pieces[0]["start_ns"] == pytest.approx(0.0, abs=EPS)
        for earlier, later in itertools.pairwise(pieces):
            assert later["start_ns"] == pytest.approx(earlier["end_ns"], abs=EPS)
        makespan = profile.about.totals[core]["makespan_ns"]
        assert pieces[-1]["end_ns"] == pytest.approx(makespan, abs=EPS)
        assert sum(piece["end_ns"] - piece["start_ns"] for piece in pieces) == pytest.approx(makespan, rel=1e-9)


def test_everything_on_the_critical_path_is_explained(profile: Profile) -> None:
    assert "idle" not in set(profile["path"]["kind"])


def test_work_on_the_path_is_work_of_that_instruction(profile: Profile) -> None:
    rows = profile["instructions"]
    critical = defaultdict(float)
    for piece in profile["path"].rows():
        number = piece["instruction"]
        if number >= 0:
            critical[number] += piece["end_ns"] - piece["start_ns"]
        if piece["kind"] == "run":
            assert piece["start_ns"] >= rows["start_ns"][number] - EPS
            assert piece["end_ns"] <= rows["end_ns"][number] + EPS
    for number, ns in critical.items():
        assert rows["critical_ns"][number] == pytest.approx(ns, abs=EPS)


def test_who_waits_for_a_signal_starts_when_it_comes(profile: Profile) -> None:
    rows = list(profile["instructions"].rows())
    binding = {(edge["producer"], edge["consumer"]) for edge in profile["edges"].rows() if edge["binding"]}
    signal = TRN2.timing["semaphore_ns"]
    for row in rows:
        assert bool(row["wait_kind"]) == (row["wait_ns"] > EPS)
        if row["wait_kind"] == "signal":
            producer = rows[row["wait_for"]]
            took = 0.0 if producer["queue"].startswith("dma") else signal
            assert row["start_ns"] == pytest.approx(producer["visible_ns"] + took, abs=EPS)
            assert (producer["id"], row["id"]) in binding
        elif row["wait_kind"] == "unit":
            other = rows[row["wait_for"]]
            assert other["start_ns"] <= row["start_ns"]


def test_nothing_is_faster_than_its_bounds(profile: Profile) -> None:
    for totals in profile.about.totals:
        bounds = totals["bounds"]
        assert 0.0 < bounds["dependences"] <= totals["makespan_ns"] * (1 + 1e-9)
        assert bounds["roofline"] <= totals["makespan_ns"]
        for unit in ("vector", "scalar", "gpsimd", "sync"):
            assert bounds[f"unit {unit}"] <= totals["makespan_ns"] + EPS
        assert bounds[f"unit {totals['bound_by']}"] == max(ns for name, ns in bounds.items() if name.startswith("unit"))


def test_rates_add_up_to_the_bytes() -> None:
    profile = made("pipeline")
    rows = [row for row in profile["counters"].rows() if row["counter"] == "dma_bytes_per_ns"]
    moved = sum(a["value"] * (b["time_ns"] - a["time_ns"]) for a, b in itertools.pairwise(rows))
    assert rows[-1]["value"] == 0.0
    assert moved == pytest.approx(profile.about.totals[0]["dma_bytes"], rel=1e-9)
    assert moved == 2 * 128 * 2560 * 2 + 128 * 128 * 2


@pytest.mark.parametrize("counter,region", [("sbuf_partition_0", "sbuf"), ("hbm_bytes", "_hbm")])
def test_occupancy_is_the_sum_of_what_lives(counter: str, region: str) -> None:
    profile = made("pipeline")
    tensors = [row for row in profile["memory"].rows() if row["region"].endswith(region)]
    rows = [row for row in profile["counters"].rows() if row["counter"] == counter]
    assert rows and tensors
    for here, after in itertools.pairwise(rows):
        middle = (here["time_ns"] + after["time_ns"]) / 2
        alive = [t for t in tensors if t["first_ns"] <= middle < t["last_ns"]]
        assert here["value"] == sum(t["nbytes"] for t in alive)


def test_live_tensors_have_bytes_of_their_own() -> None:
    """What lives at the same time shares no byte: the profile's lifetimes and the allocator's places agree."""
    tensors = [row for row in made("pipeline")["memory"].rows() if row["region"] == "sbuf"]
    for number, a in enumerate(tensors):
        for b in tensors[:number]:
            together = a["first_ns"] < b["last_ns"] - EPS and b["first_ns"] < a["last_ns"] - EPS
            overlap = a["address"] < b["address"] + b["nbytes"] and b["address"] < a["address"] + a["nbytes"]
            assert not (together and overlap), f"{a['name']} and {b['name']}"


def test_operations_and_bytes_of_the_pipeline() -> None:
    totals = made("pipeline").about.totals[0]
    columns = 2560
    assert totals["matmul_flops"] == 2 * 128 * 128 * columns
    assert totals["flops"] - totals["matmul_flops"] == 3 * 128 * columns  # an activation, an addition, a product
    assert (totals["hbm_read_bytes"], totals["hbm_write_bytes"]) == (
        128 * columns * 2 + 128 * 128 * 2,
        128 * columns * 2,
    )
    assert totals["bounds"]["roofline memory"] == pytest.approx(totals["dma_bytes"] / TRN2.dma.aggregate_gbps)
    peak = TRN2.peak.tensor_bf16_tflops * 1000
    assert totals["bounds"]["roofline compute"] == pytest.approx(totals["matmul_flops"] / peak)


def test_kinds_of_dependences() -> None:
    """A tile is written and read, and written again while it may still be read."""

    def kernel(a: Any) -> Any:
        out, tile = hbm((2, 128, 512)), sbuf((128, 2, 512))[:, 0]  # a whole one would become two tensors
        for number in range(2):
            nisa.dma_copy(dst=tile, src=a[number])
            nisa.dma_copy(dst=out[number], src=tile)
        return out

    profile = profiled(kernel, array(2, 128, 512))
    kinds = {(e["producer"], e["consumer"]): (e["kind"], e["what"]) for e in profile["edges"].rows()}
    assert {pair: kind for pair, (kind, _) in kinds.items()} == {(0, 1): "flow", (1, 2): "anti", (2, 3): "flow"}
    assert kinds[1, 2][1] == "sbuf partitions 0:128 bytes 0:2048"


def test_a_wait_says_for_whose_data() -> None:
    profile = made("pipeline")
    rows = list(profile["instructions"].rows())
    first = next(row for row in rows if row["opcode"] == "nisa.tensor_tensor")
    activation = next(row for row in rows if row["opcode"] == "nisa.activation")
    line = profile["sources"].row(activation["source"])["line"]
    assert (first["wait_kind"], first["wait_for"]) == ("signal", activation["id"])
    product = rows[activation["wait_for"]]
    load = TRN2.timing["activation_table_load_ns"]
    assert (activation["wait_kind"], activation["table_ns"], product["opcode"]) == ("table", load, "nisa.nc_matmul")
    assert activation["wait_text"].startswith(f"activation table of tanh, {load:.0f} ns, after nisa.nc_matmul (tensor)")
    assert activation["start_ns"] == pytest.approx(product["visible_ns"] + TRN2.timing["semaphore_ns"] + load)
    assert first["wait_text"].startswith(f"nisa.activation (scalar) in line {line}; flow: sbuf partitions 0:128 bytes ")


def test_a_loop_counts_every_trip() -> None:
    profile = made("looping")
    runs = profile["instructions"]["runs"].tolist()
    assert runs == [1.0, 12.0, 12.0, 4.0, 1.0, 1.0]
    outer, inner = profile["loops"].rows()
    assert (outer["trips"], inner["trips"], inner["parent"]) == (4.0, 3.0, 0)
    assert profile.about.totals[0]["dma_bytes"] == (12 + 4 + 1) * 128 * 512 * 4
    assert outer["end_ns"] - outer["start_ns"] == pytest.approx(4 * outer["trip_ns"], rel=0.05)
    trips = outer["trip_ns"] + 3 * outer["steady_ns"]
    assert outer["end_ns"] - outer["start_ns"] == pytest.approx(trips, rel=0.01)
    assert 0 < inner["steady_ns"] <= inner["trip_ns"]


def test_calls_that_led_to_a_line() -> None:
    profile = made("pipeline")
    rows, sources = list(profile["instructions"].rows()), list(profile["sources"].rows())
    line = sources[rows[0]["source"]]
    assert line["text"] == "nisa.dma_copy(dst=tile, src=source)"
    assert line["function"] == "loaded"
    caller = sources[line["parent"]]
    assert (caller["function"], caller["text"], caller["parent"]) == ("pipeline", "w = loaded(weights)", -1)


def test_profiles_of_equal_programs_are_equal() -> None:
    first, second = (profiled(pipeline, *PIPELINE) for _ in range(2))
    assert first.to_json() == second.to_json()
    for name, table in first.tables.items():
        assert list(table.rows()) == list(second[name].rows())
