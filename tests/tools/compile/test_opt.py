"""`nki opt`: passes on a file, one by one, are what the compiler does in one go."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.ir.read import read
from nki.ir.text import from_text
from tests.tools.kernels import GOOD, SMALL, write
from tests.tools.running import nki, nki_json

ALLOCATE = ("--passes", "allocate_and_schedule")


@pytest.fixture
def traced(tmp_path: Path) -> str:
    out = tmp_path / "double.mlir"
    nki("compile", write(tmp_path, GOOD), *SMALL, "--emit", "ir", "-o", str(out))
    return str(out)


def test_one_pass(traced: str) -> None:
    (program,) = read(from_text(nki("opt", traced, *ALLOCATE).stdout))
    assert program.passed == ("allocate_and_schedule",)
    assert program.placement is not None
    assert program.body.sync is None


def test_all_passes_one_after_the_other_are_the_compiler(traced: str, tmp_path: Path) -> None:
    whole = nki_json("compile", traced, "--emit", "scheduled")
    names = [row["name"] for row in whole["passes"]]
    at = traced
    for number, name in enumerate(names):
        out = tmp_path / f"{number}.mlir"
        assert nki("opt", at, "--passes", name, "-o", str(out)).stdout == ""
        at = str(out)
    assert Path(at).read_text() == whole["text"]
    assert nki_json("opt", traced, "--passes", ",".join(names))["text"] == whole["text"]


def test_the_difference_is_beside_the_text(traced: str, tmp_path: Path) -> None:
    result = nki("opt", traced, *ALLOCATE, "--diff")
    assert "--- trace\n+++ allocate_and_schedule\n" in result.stderr
    assert "+++ allocate_and_schedule" not in result.stdout
    out = str(tmp_path / "out.mlir")
    assert "+++ allocate_and_schedule" in nki("opt", traced, *ALLOCATE, "--diff", "-o", out).stdout


def test_printing_and_json(traced: str) -> None:
    assert "// double after allocate_and_schedule" in nki("opt", traced, *ALLOCATE, "--print-after", "all").stderr
    told = nki_json("opt", traced, "--passes", "canonicalize,allocate_and_schedule")
    assert [row["name"] for row in told["passes"]] == told["passed"] == ["canonicalize", "allocate_and_schedule"]


def test_wrong_use(traced: str, tmp_path: Path) -> None:
    assert nki_json("opt", traced, "--passes", "magic", code=2)["error"]["code"] == "pass.unknown"
    words = (*ALLOCATE, "--print-after", "schedule")
    assert nki_json("opt", traced, *words, code=2)["error"]["code"] == "compile.pass"
    assert nki_json("opt", "x.neff", *ALLOCATE, code=2)["error"]["code"] == "opt.file"
    assert nki_json("opt", str(tmp_path / "no.mlir"), *ALLOCATE, code=1)["error"]["code"] == "ir.file"


def test_a_program_that_breaks_a_rule_is_refused_before_any_pass(traced: str, tmp_path: Path) -> None:
    text = Path(traced).read_text()
    for_other = write(tmp_path, text.replace("trn3", "trn9"), "other.mlir")
    assert text != Path(for_other).read_text()
    nki("opt", for_other, *ALLOCATE, code=2)


def test_older_names_of_passes_work_and_are_told(traced: str, tmp_path: Path) -> None:
    words = ("--passes", "reuse-results,check-races,allocate", "--print-after", "allocate")
    result = nki("opt", traced, *words, code=0)
    assert "// double after allocate_and_schedule" in result.stderr
    told = nki_json("opt", traced, *words)
    assert [finding["facts"]["old"] for finding in told["findings"]] == ["reuse-results", "allocate"]
    assert told["passed"] == ["cse", "check_races", "allocate_and_schedule"]


def test_a_stage_with_older_names_is_gone_on_with(traced: str, tmp_path: Path) -> None:
    whole = nki_json("compile", traced, "--emit", "scheduled", "--passes", "canonicalize,cse,allocate_and_schedule")
    text = nki("opt", traced, "--passes", "canonicalize,cse").stdout
    assert "canonicalize,cse" in text
    old = write(tmp_path, text.replace("canonicalize,cse", "canonicalize,reuse-results"), "old.mlir")
    told = nki_json("compile", old, "--emit", "scheduled", "--passes", "allocate")
    assert told["text"] == whole["text"]
    assert [finding["facts"]["old"] for finding in told["findings"]] == ["reuse-results", "allocate"]
    assert "cse" not in [row["name"] for row in nki_json("compile", old)["passes"]]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("tensor<128x8xf32>", "tensor<4611686018427387904x8xf32>", "tensor.capacity"),
        ("tensor<128x8xf32>", "tensor<0x8xf32>", "tensor.empty"),
        ("tensor<128x8xf32>", "tensor<129x8xf32>", "tensor.partitions"),
    ],
)
def test_tensors_that_no_memory_holds(traced: str, tmp_path: Path, old: str, new: str, code: str) -> None:
    """Those of a kernel are refused when they are allocated; a file says what it likes."""
    file, text = tmp_path / "edited.mlir", Path(traced).read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    for command in (("opt", str(file), "--passes", "allocate_and_schedule,schedule"), ("compile", str(file))):
        assert nki_json(*command, code=1)["error"]["code"] == code
