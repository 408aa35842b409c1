"""`nki check`: everything at once, the exit code, and rules that are switched off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.kernels import GOOD, SEVERAL, SMALL, write
from tests.tools.running import nki, nki_json


@pytest.fixture
def several(tmp_path: Path) -> str:
    return write(tmp_path, SEVERAL)


def test_a_good_kernel_is_accepted(tmp_path: Path) -> None:
    shown = nki("check", write(tmp_path, GOOD), *SMALL, "--target", "trn2").stdout
    assert shown == "double for trn2: accepted (0 errors, 0 warnings)\n"


def test_all_findings_at_once(several: str) -> None:
    told = nki_json("check", f"{several}::wrong_twice", *SMALL, "--arg", "b=1", code=1)
    assert (told["accepted"], told["complete"]) == (False, True)
    codes = [finding["code"] for finding in told["findings"]]
    assert codes.count("tensor_tensor.shapes") == 3
    assert "operand.region" in codes


def test_findings_of_one_line_are_shown_once(several: str) -> None:
    shown = nki("check", f"{several}::wrong_twice", *SMALL, "--arg", "b=1", code=1)
    assert shown.stderr.count("error[tensor_tensor.shapes]") == 1
    assert "and 2 more at this line" in shown.stderr
    assert shown.stdout.endswith("refused (4 errors, 0 warnings)\n")


def test_findings_before_an_error_that_ends_the_trace_are_kept(several: str) -> None:
    told = nki_json("check", f"{several}::wrong_and_stopped", *SMALL, code=1)
    assert told["complete"] is False
    assert [finding["code"] for finding in told["findings"]] == ["tensor_tensor.shapes", "return.region"]


def test_a_rule_that_is_allowed_is_not_reported(several: str) -> None:
    told = nki_json(
        "check", f"{several}::wrong_twice", *SMALL, "--arg", "b=1", "--allow", "tensor_tensor.shapes", code=1
    )
    assert {finding["code"] for finding in told["findings"]} == {"operand.region"}
    nki_json(
        "check",
        f"{several}::wrong_twice",
        *SMALL,
        *("--arg", "b=1", "--allow", "tensor_tensor.shapes", "--allow", "operand.region"),
    )


def test_an_unknown_rule_cannot_be_allowed(tmp_path: Path) -> None:
    error = nki_json("check", write(tmp_path, GOOD), *SMALL, "--allow", "tensor_tensor.shape", code=2)["error"]
    assert (error["code"], error["fix"]) == ("check.allow", "write tensor_tensor.shapes")


def test_more_than_fits_at_once_is_a_warning(several: str) -> None:
    told = nki_json("check", f"{several}::too_large", *SMALL, "--target", "trn2")
    (finding,) = told["findings"]
    assert (finding["code"], finding["severity"]) == ("memory.peak", "warning")
    assert finding["facts"]["bytes"] == 4 * 24000 * 4


def test_an_exception_of_the_kernel_is_a_finding(several: str) -> None:
    told = nki_json("check", f"{several}::raises", *SMALL, code=1)
    assert [finding["code"] for finding in told["findings"]] == ["kernel.exception"]


def test_a_wrong_command_line_is_not_a_refusal(tmp_path: Path) -> None:
    nki("check", write(tmp_path, GOOD), "--arg", "a=x", code=2)
    nki("check", write(tmp_path, GOOD), *SMALL, "--nonsense", code=2)
