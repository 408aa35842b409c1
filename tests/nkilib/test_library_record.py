"""What the benchmark of the library keeps: of which source it is, and what stays of what was measured before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.library import record, source
from benchmarks.library.case import Case
from benchmarks.library.cases import all_cases
from benchmarks.library.measure import measured

import nki.language as nl

CASE = next(case for case in all_cases() if case.key == "cumsum: 64 x 8192, bfloat16")


def kept(case: Case, folder: Path, official_ns: float | None = None) -> dict[str, object]:
    record.keep("cumsum", [(case, replace(measured(case), official_ns=official_ns))], folder)
    found = record.record_of("cumsum", folder)
    assert found is not None
    (row,) = found["cases"]
    return dict(row)


def test_a_record_is_current_until_kernel_cases_or_model_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not record.is_current("cumsum", [CASE], tmp_path)
    row = kept(CASE, tmp_path)
    assert row["ns"] == pytest.approx(measured(CASE).ns, rel=1e-4)
    assert record.is_current("cumsum", [CASE], tmp_path)
    assert not record.is_current("cumsum", [CASE, CASE], tmp_path)
    for name in ("source_of", "digest"):
        with monkeypatch.context() as changed:
            changed.setattr(record, name, lambda *_: "another")
            assert not record.is_current("cumsum", [CASE], tmp_path)


def test_times_of_the_published_kernel_stay_while_the_model_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept(CASE, tmp_path, 5.0)["official_ns"] == 5.0
    assert kept(CASE, tmp_path)["official_ns"] == 5.0
    monkeypatch.setattr(record, "digest", lambda: "another")
    assert kept(CASE, tmp_path)["official_ns"] is None


def test_a_source_is_what_a_kernel_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = source._reached(["nkilib.core.cumsum.cumsum"])
    assert {"nkilib.core.cumsum.cumsum", "nkilib.streaming", "nkilib.limits"} <= reached
    assert not any(name.startswith("nkilib.core.mlp") for name in reached)
    before = source.source_of("cumsum")
    monkeypatch.setattr(source, "TABLES", {3: {"cumsum": (({"rows": 1}, {"columns": 2}),)}})
    assert source.source_of("cumsum") != before


def test_recorded_errors_are_allowed() -> None:
    """Of each case that is recorded; a kernel that is not measured yet has no record."""
    recorded = {name: record.record_of(name) for name in {case.kernel for case in all_cases()}}
    errors = {row["key"]: row["error"] for kept in recorded.values() if kept for row in kept["cases"]}
    assert len(errors) > 150
    assert {key: error for key, error in errors.items() if error is None} == {}
    above = {case.key: errors[case.key] for case in all_cases() if errors.get(case.key, 0.0) > case.allowed}
    assert above == {}


def test_what_is_allowed_follows_from_dtypes() -> None:
    def case(*dtypes: Any, **more: Any) -> Case:
        arrays = lambda make: {"x": make((2,), dtypes[0]), "rest": [make((2,), each) for each in dtypes[1:]]}  # noqa: E731
        return Case("cumsum", "any", arrays, 0, 1, **more)

    assert case(nl.float32).allowed == case(nl.float32, nl.int32).allowed == 2.0**-16
    assert case(nl.float32, nl.bfloat16).allowed == 2.0**-5
    assert case(nl.float16, nl.float8_e4m3).allowed == 2.0**-8
    assert case(nl.bfloat16, rounded=nl.float8_e4m3).allowed == 2.0**-3 + 2.0**-5
    assert case(nl.bfloat16, exact=True).allowed == 0.0
