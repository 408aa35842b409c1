"""`nki profile` on kernels and on folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.profiling.ranks.record import StepProfile
from tests.tools.kernels import GOOD, SMALL
from tests.tools.running import nki, nki_json


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(GOOD)
    return f"{path}::double"


def test_the_summary(kernel: str) -> None:
    shown = nki("profile", kernel, *SMALL, "--target", "trn2").stdout
    assert shown.startswith("double on trn2: ")
    assert "kernels.py:12 nisa.tensor_scalar" in shown
    assert "signal: nisa.dma_copy (dma" in shown


def test_the_summary_as_json(kernel: str) -> None:
    told = nki_json("profile", kernel, *SMALL, "--target", "trn2")
    assert told == nki_json("profile", kernel, *SMALL, "--target", "trn2")
    assert (told["format"], told["is_simulation"], told["kernel"]) == ("nki-profile", True, "double")
    (time,) = told["time"]
    for categories in time.values():
        assert sum(categories.values()) == pytest.approx(told["makespan_ns"])
    assert sum(told["critical_path"][0].values()) == pytest.approx(told["makespan_ns"])


def test_a_folder_with_all_formats_and_back(kernel: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    every = [word for name in ("perfetto", "parquet", "csv") for word in ("--format", name)]
    shown = nki("profile", kernel, *SMALL, "--target", "trn2", "--out", str(out), *every).stdout
    assert shown.startswith("double on trn2: ")
    assert len(shown.splitlines()) == 1
    assert (out / "trace.pftrace").stat().st_size > 0
    assert (out / "explorer" / "Instruction.parquet").is_file()
    assert (out / "csv" / "instructions.csv").is_file()
    again = nki_json("profile", str(out))
    assert again == nki_json("profile", kernel, *SMALL, "--target", "trn2")
    assert nki("profile", str(out), "--format", "summary").stdout.startswith("double on trn2: ")


def test_a_format_for_files_needs_a_folder(kernel: str) -> None:
    error = nki_json("profile", kernel, *SMALL, "--format", "csv", code=2)["error"]
    assert error["code"] == "profile.out"


def test_a_stored_profile_takes_no_settings(kernel: str, tmp_path: Path) -> None:
    nki("profile", kernel, *SMALL, "--out", str(tmp_path / "out"))
    error = nki_json("profile", str(tmp_path / "out"), "--target", "trn2", code=2)["error"]
    assert error["code"] == "profile.stored"


def test_a_folder_that_is_no_profile(tmp_path: Path) -> None:
    error = nki_json("profile", str(tmp_path), code=1)["error"]
    assert error["code"] == "profile.folder"
    assert error["location"] == []


def test_measured_next_to_predicted(kernel: str, tmp_path: Path) -> None:
    """A prediction is compared with itself: what is written is read, and every instruction has its partner."""
    words = ["profile", kernel, *SMALL, "--target", "trn2"]
    nki(*words, "--out", str(tmp_path / "out"), "--format", "parquet")
    there = str(tmp_path / "out" / "explorer")
    told = nki_json(*words, "--measured", there)["measured"]
    assert told["predicted_only"] == told["measured_only"] == []
    assert set(told["matched"]) == {"exact"}
    assert abs(told["error"]) < 0.001
    assert told["simulated"] is True
    shown = nki(*words, "--measured", there).stdout
    assert "double: predicted next to measured (double)" in shown
    assert "vector TENSOR_SCALAR" in shown
    stored = nki("profile", str(tmp_path / "out"), "--measured", there).stdout
    assert "predicted next to measured" in stored


def test_both_timelines_are_written_and_shown(kernel: str, tmp_path: Path) -> None:
    words = ["profile", kernel, *SMALL, "--target", "trn2"]
    nki(*words, "--out", str(tmp_path / "out"), "--format", "parquet")
    both = tmp_path / "both"
    nki(*words, "--measured", str(tmp_path / "out" / "explorer"), "--out", str(both), "--format", "perfetto")
    assert (both / "measured" / "profile.json").is_file()
    assert nki("profile", str(both / "measured")).stdout.startswith("double on trn2: ")
    told = nki_json("explorer", str(both), "--html", str(tmp_path / "page.html"))
    alone = nki_json("explorer", str(tmp_path / "out"), "--html", str(tmp_path / "page.html"))
    assert told["instructions"] == 2 * alone["instructions"]
    assert (both / "trace.pftrace").read_bytes().count(b"core 0: double") == 2


def test_a_calibration_is_written_and_used(kernel: str, tmp_path: Path) -> None:
    words = ["profile", kernel, *SMALL, "--target", "trn2"]
    nki(*words, "--out", str(tmp_path / "out"), "--format", "parquet")
    measured = ["--measured", str(tmp_path / "out" / "explorer")]
    file = tmp_path / "mine.toml"
    told = nki_json(*words, *measured, "--calibrate", str(file))["calibration"]
    assert told["file"] == str(file)
    fitted = {each["name"] for each in told["coefficients"] if each["fitted"]}
    assert "vector_fixed_cycles" in fitted
    assert all(each["why"] for each in told["coefficients"] if not each["fitted"])
    again = nki_json("profile", kernel, *SMALL, "--target", str(file))
    assert again["target"].startswith(f"trn2@{file}#")
    assert again["makespan_ns"] == pytest.approx(nki_json(*words)["makespan_ns"], rel=0.01)
    shown = nki(*words, *measured, "--calibrate", str(file)).stdout
    assert "left as they were:" in shown
    assert f"use it with --target {file}" in shown
    assert "fitted" in nki("targets", str(file)).stdout


@pytest.mark.parametrize(
    "more", [["--calibrate", "mine.toml"], ["--measured", "there", "--calibrate", "mine.json"]], ids=["alone", "ending"]
)
def test_what_a_calibration_needs(kernel: str, more: list[str]) -> None:
    assert nki_json("profile", kernel, *SMALL, *more, code=2)["error"]["code"] == "profile.calibrate"


def test_a_stored_profile_has_no_program_to_calibrate(kernel: str, tmp_path: Path) -> None:
    nki("profile", kernel, *SMALL, "--target", "trn2", "--out", str(tmp_path / "out"), "--format", "parquet")
    measured = ["--measured", str(tmp_path / "out" / "explorer"), "--calibrate", str(tmp_path / "mine.toml")]
    assert nki_json("profile", str(tmp_path / "out"), *measured, code=2)["error"]["code"] == "profile.calibrate"
    assert not (tmp_path / "mine.toml").exists()


def test_a_folder_that_was_not_measured(kernel: str, tmp_path: Path) -> None:
    error = nki_json("profile", kernel, *SMALL, "--measured", str(tmp_path), code=1)["error"]
    assert error["code"] == "measured.folder"


def test_a_kernel_that_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(GOOD.replace("operand0=times", "operand0=times, engine=nisa.engine.gpsimd"))
    error = nki_json("profile", f"{path}::double", *SMALL, "--target", "trn2", code=1)["error"]
    assert error["code"] == "tensor_scalar.gpsimd-engine"


def test_a_kernel_has_no_modules(kernel: str, tmp_path: Path) -> None:
    for more in ((), ("--measured", str(tmp_path))):
        error = nki_json("profile", kernel, *SMALL, "--by", "module", *more, code=2)["error"]
        assert error["code"] == "profile.by"


REDUCING = """
import nki
import nki.language as nl
from nki import collectives as ncc


@nki.jit
def total(a):
    result = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    ncc.all_reduce([a], [result], ncc.ReplicaGroup([[0, 1, 2, 3]]), nl.add)
    return result
"""


def test_a_kernel_among_many_ranks(tmp_path: Path) -> None:
    """Four ranks are in the group that the kernel names; the groups of the others are like it."""
    path = tmp_path / "reducing.py"
    path.write_text(REDUCING)
    asked = ("profile", f"{path}::total", "--arg", "a=128x64:float32", "--target", "trn2")
    told = nki_json(*asked, "--ranks", "64", "--slow", "3=2", "--out", str(tmp_path / "out"), "--format", "perfetto")
    assert (tmp_path / "out" / "trace.pftrace").stat().st_size > 0
    assert [each["ranks"] for each in told["classes"]] == ["0-2", "3", "4-63"]
    (collective,) = told["collectives"]
    assert (collective["nbytes"], collective["group"], collective["count"]) == (128 * 64 * 4, 4, 1.0)
    assert told["bound_by"] == collective
    assert StepProfile.load(tmp_path / "out").to_json() == told
    assert nki_json("profile", str(tmp_path / "out")) == told
    assert nki_json("profile", str(tmp_path / "out"), "--target", "trn2", code=2)["error"]["code"] == "profile.stored"
    assert "total: 64 ranks on trn2.48xlarge" in nki(*asked, "--ranks", "64").stdout
    sizes = nki(*asked, "--ranks", "4,16,64").stdout.splitlines()
    assert [line.split()[0] for line in sizes[2:5]] == ["4", "16", "64"]
    for wrong in (
        ("--slow", "3=2"),
        ("--ranks", "4,x"),
        ("--ranks", "64", "--slow", "3"),
        ("--ranks", "4", "--format", "csv", "--out", "x"),
    ):
        assert nki_json(*asked, *wrong, code=2)["error"]["code"] == "profile.ranks"
    assert nki_json(*asked, "--ranks", "6", code=1)["error"]["code"] == "step.groups"
