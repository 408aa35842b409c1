"""The timing model against published measurements: the recorded comparison holds its bounds, and is not stale."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.timing_accuracy import compare, in_order
from benchmarks.timing_cases.catalogue import PUBLIC, READINGS, UTILISATIONS
from benchmarks.timing_cases.runs import Run, compiled
from benchmarks.timing_cases.shapes import cases

from nki.target.accuracy import FOLDER, Point, bound_by, covered, interval, mean, recorded
from nki.target.load import load_target, target_names
from nki.target.names import TIMING

ROOT = Path(__file__).resolve().parents[2]
LISTED = tomllib.loads((FOLDER / "points.toml").read_text(encoding="utf-8"))
FOUND = recorded()
SMALL = [p for p in FOUND.points if p.kind != "kernel" and not p.kernel.startswith("matmul_")]
"""Points whose kernels have few instructions."""


def test_every_listed_point_is_compared() -> None:
    listed = [item["id"] for item in LISTED["point"]]
    assert [point.id for point in FOUND.points] == listed and set(READINGS) == set(listed)
    assert {share.id for share in FOUND.shares} == {item["id"] for item in LISTED["utilisation"]} == set(UTILISATIONS)
    assert len(FOUND.rankings) == len(LISTED["ranking"]) and len(FOUND.unfitted) == len(LISTED["holdout"])
    for item, point in zip(LISTED["point"], FOUND.points, strict=True):
        assert (point.measured, point.target, point.source) == (item["measured"], item["target"], item["source"])


def test_errors_follow_from_the_numbers() -> None:
    for point in (*FOUND.points, *FOUND.unfitted):
        assert point.error == pytest.approx(100 * (point.predicted / point.measured - 1), abs=0.15)
    errors = np.array([point.error for point in FOUND.points])
    assert FOUND.summary["mape"] == pytest.approx(np.abs(errors).mean())


def test_the_model_keeps_its_bounds() -> None:
    """Of the points that its coefficients were fitted to; those of public repositories are only compared."""
    summary = replace(FOUND, points=tuple(p for p in FOUND.points if p.id not in PUBLIC)).summary
    assert summary["mape_left_out"] <= 8.0
    assert summary["mape"] <= summary["mape_left_out"]
    assert summary["one_engine"] <= 5.0
    assert abs(summary["worst"]["error"]) <= 25.0
    assert summary["utilisation"] <= 5.0
    assert 3 * summary["coefficients"] <= summary["points"]
    assert all(abs(item.error) <= 25.0 for item in FOUND.unfitted)
    assert summary["rankings_right"] == summary["rankings"]


def test_no_accuracy_is_claimed_without_measurements() -> None:
    measured = {point.target for point in FOUND.points}
    assert {name for name in target_names() if load_target(name).validated} == measured - {"trn3"} == {"trn1", "trn2"}


def test_the_document_tells_the_recorded_errors() -> None:
    text, summary = (ROOT / "docs" / "timing.md").read_text(encoding="utf-8"), FOUND.summary
    assert f"| points, fitted coefficients | {summary['points']}, {summary['coefficients']} |" in text
    assert f"| mean error, all points | {summary['mape']:.1f} % |" in text
    assert f"left out of the fit | {summary['mape_left_out']:.1f} % |" in text
    assert all(f"| {item.id}, never fitted | {item.error:+.1f} % |" in text for item in FOUND.unfitted)
    used = [name for name in TIMING if not name.startswith(("collective", "internode", "dma_floor"))]
    assert not [name for name in used if f"`{name}`" not in text]


@cache
def run(name: str) -> Run:
    case = cases(small=True)[name]
    return Run(compiled(case), load_target(case.target), case.times)


@pytest.mark.parametrize("point", SMALL, ids=lambda point: point.id)
def test_the_record_is_what_the_model_says_now(point: Point) -> None:
    assert READINGS[point.id].predicted(run) == pytest.approx(point.predicted, rel=0.005, abs=0.02)


@pytest.mark.slow
def test_the_whole_record_is_what_the_model_says_now() -> None:
    """Large kernels and utilisations too: what the scheduler makes of them is part of their times."""
    now = compare(quick=False)
    for group in ("points", "shares", "unfitted"):
        for here, there in zip(getattr(now, group), getattr(FOUND, group), strict=True):
            assert here.id == there.id
            assert here.predicted == pytest.approx(there.predicted, rel=0.005, abs=0.02), here.id
    assert now.rankings == FOUND.rankings


def test_ranks_ignore_ties_and_see_swaps() -> None:
    measured = {"a": 10.0, "b": 5.0, "c": 4.95}
    assert in_order("abc", measured, {"a": 9.0, "b": 6.0, "c": 6.5})
    assert not in_order("abc", measured, {"a": 9.0, "b": 9.5, "c": 6.5})
    assert not in_order("abc", measured, {"a": 6.0, "b": 5.0, "c": 6.5})
    assert mean([-1.0, 3.0]) == 2.0 and mean([]) == 0.0


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
