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

from nki.target.accuracy import FOLDER, Point, mean, recorded
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
