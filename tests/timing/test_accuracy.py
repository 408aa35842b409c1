"""The timing model against published measurements: the recorded comparison holds its bounds, and is not stale."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from benchmarks.timing_cases.catalogue import READINGS, UTILISATIONS
from benchmarks.timing_cases.comparison import WITHOUT, Comparison, compare, in_order, left_out, listed, sweep
from benchmarks.timing_cases.digest import digest
from benchmarks.timing_cases.recording import DOCUMENT, document
from scipy.stats import kendalltau

from nki.target.accuracy import FOLDER, LARGE, bound_by, covered, interval, mean, recorded, tau
from nki.target.load import load_target, target_names
from nki.target.names import TIMING

LISTED = listed()
FOUND = recorded()
SHOWN = {
    "generation of descriptors": "caps_m1_n1_k8",
    "generation for one partition": "rmsnorm_256x4096",
    "loads that are kept": "tiled_4096x256x2048",
    "values of whole tiles": "staged_sum",
    "room to run ahead": "blocked_4096x128x6144",
    "sums of two inputs": "caps_m1_n3_k1",
    "stores that cast": "blocked_m2_n6_k16",
    "streams in both directions": "silu_sevenths",
    "activation tables": "adamw_1368",
    "half the clock of Tensor": "tiled_1280x640x2560",
    "products": "buffered_2048",
    "products of MX": "mx_product",
    "sums in the dtype of the result": "blocked_output_4096x1024x512",
    "two cores": "blocked_two_cores",
    "chains of states": "mamba_v1_small",
    "a load, an activation, a store": "dma_e2e_kernel_4x4096",
    "chains of transfers": "inf2_dependent_load",
    "streams of loads": "inf2_read_2048",
}
"""A point of each mechanism. These and single instructions are timed here, all others by the slow test."""
QUICK = sorted({*SHOWN.values(), *(p.id for p in FOUND.points if p.kind != "kernel" and "matmul_" not in p.kernel)})


def test_every_listed_point_is_compared() -> None:
    names = [item["id"] for item in LISTED["point"]]
    assert [point.id for point in FOUND.points] == names and set(READINGS) == set(names)
    assert {share.id for share in FOUND.shares} == {item["id"] for item in LISTED["utilisation"]} == set(UTILISATIONS)
    assert len(FOUND.rankings) == len(LISTED["ranking"]) and len(FOUND.unfitted) == len(LISTED["holdout"])
    for item, point in zip(LISTED["point"], FOUND.points, strict=True):
        assert (point.measured, point.target, point.source) == (item["measured"], item["target"], item["source"])
        assert (point.group, point.kernel, point.kind) == (item["group"], item["kernel"], item["class"])


def test_errors_follow_from_the_numbers() -> None:
    for point in (*FOUND.points, *FOUND.unfitted):
        assert point.error == pytest.approx(100 * (point.predicted / point.measured - 1), abs=0.15)
    errors = np.array([point.error for point in FOUND.predicted])
    assert FOUND.summary["mape"] == pytest.approx(np.abs(errors).mean())


def test_cross_validations_leave_every_point_out() -> None:
    tables = left_out()
    for name, of in zip(WITHOUT, ("left_out", "left_out_source", "left_out_class"), strict=True):
        assert list(tables[name]) == [point.id for point in FOUND.points]
        for point in FOUND.points:
            assert getattr(point, of) == pytest.approx(tables[name][point.id], abs=0.01)


def test_what_the_model_was_told_is_no_prediction() -> None:
    given = [point for point in FOUND.points if point.given]
    assert {point.id for point in given} == {item["id"] for item in LISTED["point"] if "given" in item}
    assert not set(given) & set(FOUND.predicted) and all(point.kind != "kernel" for point in given)
    told = {name: timing for name in ("trn2",) for timing in (load_target(name).timing,)}
    for point in given:  # a coefficient, or a sum of two, or what a document says of one
        if point.given.startswith("reads ") and (name := point.given.split()[1]) in told["trn2"]:
            assert point.predicted == pytest.approx(told["trn2"][name], rel=0.1)


def test_the_model_keeps_its_bounds() -> None:
    summary = FOUND.summary
    assert summary["mape_left_out_source"] <= 8.0 and summary["mape_left_out"] <= 8.0
    assert summary["mape"] <= min(summary["mape_left_out"], summary["mape_left_out_source"])
    assert summary["one_engine"] <= 6.0
    assert summary["utilisation"] <= 6.5  # Vector in mamba_v2_4k: 93 of 100, measured 99.6
    assert 3 * summary["coefficients"] <= summary["points"]
    assert summary["rankings_right"] == summary["rankings"]


def test_points_that_are_far_off_have_a_reason() -> None:
    assert {point.id for point in FOUND.predicted if abs(point.error) > LARGE and not point.reason} == set()
    assert all(abs(item.error) <= LARGE for item in FOUND.unfitted)


def test_no_accuracy_is_claimed_without_measured_kernels() -> None:
    kernels = Counter(point.target for point in FOUND.predicted if point.kind == "kernel")
    assert {name for name in target_names() if load_target(name).validated} == set(kernels) == {"trn1", "trn2"}
    assert [point.id for point in FOUND.points if point.target == "trn3"] == ["mx_product"]


def test_the_document_tells_the_recorded_errors() -> None:
    page = DOCUMENT.read_text(encoding="utf-8")
    assert document(FOUND, page) == page, "run benchmarks/timing_accuracy.py --write"
    used = [name for name in TIMING if not name.startswith(("collective", "internode", "dma_floor"))]
    assert not [name for name in used if f"`{name}`" not in page]


@pytest.mark.parametrize("name", ["accuracy.toml", "left_out.toml"])
def test_the_record_belongs_to_this_model(name: str) -> None:
    again = {
        "left_out.toml": "scripts/fit_timing.py --write, then benchmarks/timing_accuracy.py --write",
        "accuracy.toml": "benchmarks/timing_accuracy.py --write",
    }
    told = f'digest = "{digest()}"' in (FOLDER / name).read_text(encoding="utf-8")
    assert told, f"{name} was made with other coefficients, points or costs: run {again[name]}"


@cache
def work() -> Comparison:
    return Comparison(quick=True)


@pytest.mark.parametrize("name", QUICK)
def test_the_record_is_what_the_model_says_now(name: str) -> None:
    (item,) = (item for item in LISTED["point"] if item["id"] == name)
    (point,) = (point for point in FOUND.points if point.id == name)
    assert work().point(item, left_out()).predicted == pytest.approx(point.predicted, rel=0.005, abs=0.02)


@pytest.mark.slow
def test_the_whole_record_is_what_the_model_says_now() -> None:
    """All points: what the scheduler makes of them is part of their times."""
    now = compare(listings=FOUND.listings)
    for group in ("points", "shares", "unfitted"):
        for here, there in zip(getattr(now, group), getattr(FOUND, group), strict=True):
            assert here.id == there.id
            assert here.predicted == pytest.approx(there.predicted, rel=0.005, abs=0.02), here.id
    assert now.rankings == FOUND.rankings
    assert [item.chosen for item in now.sweeps] == [item.chosen for item in FOUND.sweeps]


def test_ranks_ignore_ties_and_see_swaps() -> None:
    measured = {"a": 10.0, "b": 5.0, "c": 4.95}
    assert in_order("abc", measured, {"a": 9.0, "b": 6.0, "c": 6.5})
    assert not in_order("abc", measured, {"a": 9.0, "b": 9.5, "c": 6.5})
    assert not in_order("abc", measured, {"a": 6.0, "b": 5.0, "c": 6.5})
    assert mean([-1.0, 3.0]) == 2.0 and mean([]) == 0.0


def test_ranks_are_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    for count in (2, 5, 21):
        first, second = rng.random(count), rng.random(count)
        assert tau(first.tolist(), second.tolist()) == pytest.approx(kendalltau(first, second).statistic)
    assert tau([1.0, 2.0, 3.0], [1.0, 2.0, 2.0]) == pytest.approx(2 / 3)


def test_regret_is_what_the_choice_costs() -> None:
    measured, predicted = {"a": 10.0, "b": 11.0, "c": 20.0}, {"a": 9.0, "b": 8.0, "c": 30.0}
    found = sweep("some", "abc", measured, predicted)
    assert found.chosen == "b" and found.regret == pytest.approx(10.0) and found.tau == pytest.approx(1 / 3)
    (recorded_one,) = FOUND.sweeps
    (listed_one,) = LISTED["sweep"]
    numbers = {point.id: point for point in FOUND.points}
    times = {name: numbers[name].measured for name in listed_one["points"]}
    again = sweep(recorded_one.id, listed_one["points"], times, {name: numbers[name].predicted for name in times})
    assert again.chosen == recorded_one.chosen and again.regret == pytest.approx(recorded_one.regret, abs=0.01)


def test_an_interval_covers_its_share_of_the_next_errors() -> None:
    rng = np.random.default_rng(7)
    found = []
    for _ in range(400):
        errors = rng.laplace(0.0, 5.0, 30)
        inside = covered(errors[:29], 0.9)
        assert inside is not None
        found.append(abs(errors[29]) <= inside)
    assert 0.87 <= np.mean(found) <= 0.95
    assert covered(range(8), 0.9) is None and covered([3.0, -9.0, 1.0], 0.75) == 9.0


def test_intervals_name_the_kernels_that_they_rest_on() -> None:
    for name in target_names():
        kernels = [point for point in FOUND.points if point.target == name and point.kind == "kernel"]
        for bound in ("dma", "sync", "tensor", "vector", "scalar", "gpsimd", "waits"):
            found = interval(name, bound)
            assert (found is None) == (not kernels)
            if found is not None:
                assert found.points >= 9 and found.percent > 0.0 and found.kind.startswith("kernels on ")
    assert interval("trn3", "tensor") is None
    narrow, wide = interval("trn2", "waits"), interval("trn1", "tensor")
    assert narrow is not None and narrow.kind == "kernels on trn2 in which no engine is always busy"
    assert wide is not None and "that Tensor bounds" not in wide.kind and wide.points >= 9


def test_a_unit_bounds_a_kernel_if_it_works_nearly_all_of_the_time() -> None:
    assert bound_by({"dma": 91.0, "vector": 40.0}, 100.0) == "dma"
    assert bound_by({"dma": 89.0, "vector": 40.0}, 100.0) == "waits"
