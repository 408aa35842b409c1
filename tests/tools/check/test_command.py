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


@pytest.mark.parametrize(
    ("text", "cause", "line", "fix"),
    [
        ("x = 1\ny = x + z\n", "NameError: name 'z' is not defined", 2, "define or import z above this line"),
        (
            "try:\n    int('x')\nexcept ValueError as problem:\n    raise RuntimeError('no settings') from problem\n",
            "RuntimeError: no settings, because of ValueError: invalid literal for int() with base 10: 'x'",
            4,
            "correct this line; `python FILE` shows all calls that led there",
        ),
        (
            "import nki\nfrom nki.language import softmx\n",
            "ImportError: cannot import name 'softmx' from 'nki.language'",
            2,
            "import softmax",
        ),
        (
            "import nki\nfrom nki.language import qqqqqqq\n",
            "ImportError: cannot import name 'qqqqqqq' from 'nki.language'",
            2,
            "remove qqqqqqq from the import: nki.language has no such name",
        ),
        (
            "import nki.elsewhere\n",
            "ModuleNotFoundError: No module named 'nki.elsewhere'",
            1,
            "remove the import: nki has no module nki.elsewhere",
        ),
        ("def k(a)\n    return a\n", "SyntaxError: expected ':'", 1, "correct the syntax of this line, or"),
        ("import json\njson.loads('{')\n", "JSONDecodeError: Expecting property name", 2, "correct this line; `python"),
    ],
)
def test_the_cause_of_an_import_that_fails(tmp_path: Path, text: str, cause: str, line: int, fix: str) -> None:
    file = write(tmp_path, text, "broken.py")
    error = nki_json("check", file, code=2)["error"]
    assert (error["code"], error["location"][0]["line"]) == ("kernel.import", line)
    assert error["message"].startswith(f"{file} cannot be imported: {cause}")
    assert error["fix"].startswith(fix.replace("FILE", file))
    shown = nki("check", file, code=2).stderr.splitlines()
    source = next(place for place, row in enumerate(shown) if row.endswith(text.splitlines()[line - 1]))
    assert set(shown[source + 1].strip(" |")) == {"^"}


def test_a_relative_import_outside_a_package(tmp_path: Path) -> None:
    error = nki_json("check", write(tmp_path, "from .tiles import size\n", "broken.py"), code=2)["error"]
    assert error["fix"].startswith(f"add an __init__.py to {tmp_path}, or import without the dot")


@pytest.mark.parametrize("data", [b"x = '\xff'\n", b"x = 1\0\n"])
def test_a_file_that_is_no_text(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "broken.py").write_bytes(data)
    error = nki_json("check", str(tmp_path / "broken.py"), code=2)["error"]
    assert error["code"] == "kernel.import" and error["location"] == []


def test_a_name_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    wrong = GOOD.replace("nisa.tensor_scalar(", "nisa.tensor_scaler(")
    (finding,) = nki_json("check", write(tmp_path, wrong), *SMALL, code=1)["findings"]
    assert finding["code"] == "kernel.exception"
    assert "'nki.isa' has no attribute 'tensor_scaler'; did you mean tensor_scalar" in finding["message"]
    assert finding["location"][0]["line"] == 1 + wrong[: wrong.index("tensor_scaler")].count("\n")


def test_an_output_without_a_store_is_a_warning(tmp_path: Path) -> None:
    wrong = GOOD.replace("nisa.dma_copy(dst=out, src=tile)", "pass")
    told = nki_json("check", write(tmp_path, wrong), *SMALL)
    (finding,) = told["findings"]
    assert (finding["code"], finding["severity"], told["accepted"]) == ("return.unwritten", "warning", True)
    assert finding["location"][0]["line"] == 1 + wrong[: wrong.index("out = ")].count("\n")


def test_an_output_that_one_core_stores_is_stored(tmp_path: Path) -> None:
    store = "    nisa.dma_copy(dst=out, src=tile)"
    one = GOOD.replace(store, "    if nl.program_id(0) == 1:\n    " + store)
    assert nki_json("check", write(tmp_path, one), *SMALL, "--target", "trn2", "--lnc", "2")["findings"] == []


def test_an_input_that_is_returned_need_not_be_stored(tmp_path: Path) -> None:
    same = "import nki\n\n\n@nki.jit\ndef same(a):\n    return a\n"
    assert nki_json("check", write(tmp_path, same), *SMALL)["findings"] == []


def test_a_kernel_that_returns_nothing_is_refused(tmp_path: Path) -> None:
    wrong = GOOD.replace("    return out\n", "")
    (finding,) = nki_json("check", write(tmp_path, wrong), *SMALL, code=1)["findings"]
    assert (finding["code"], finding["severity"]) == ("return.nothing", "error")
    assert "what it stores into shared_hbm0 is lost" in finding["message"]
    (warning,) = nki_json("run", write(tmp_path, wrong, "same.py"), *SMALL)["findings"]
    assert (warning["code"], warning["severity"]) == ("return.nothing", "warning")


@pytest.mark.parametrize("name", ["in_place", "talks_on_the_device"])
def test_a_kernel_that_leaves_something_returns_nothing(tmp_path: Path, name: str) -> None:
    prints = GOOD.replace("def double", "def talks_on_the_device").replace("return out", "nl.device_print('a', tile)")
    file = write(tmp_path, SEVERAL + prints[prints.index("@nki.jit") :])
    assert nki_json("check", f"{file}::{name}", *SMALL)["findings"] == []


def test_mistakes_that_calls_tell_are_told(tmp_path: Path) -> None:
    part = GOOD.replace("nisa.dma_copy(dst=out, src=tile)", "nisa.dma_copy(dst=out[0:96], src=tile[0:96])")
    file = write(tmp_path, part)
    for command in ("check", "run"):
        told = nki_json(command, file, *SMALL)
        (finding,) = told["findings"]
        assert finding["code"] == "return.partly-written" and finding["message"].startswith("out[96:128, :] is never")
    assert nki_json("check", file, *SMALL, "--allow", "return.partly-written")["findings"] == []


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("float32[4,8]", "write --arg a=4x8:float32"),
        ("(4,8):nl.bfloat16", "write --arg a=4x8:bfloat16"),
        ("int32:4x8", "write --arg a=4x8:int32"),
        ("4x8", "write --arg a=4x8:float32, or another dtype"),
        ("4 by 8", "write --arg a=4x8:float32"),
    ],
)
def test_an_array_in_another_form(tmp_path: Path, text: str, fix: str) -> None:
    error = nki_json("check", write(tmp_path, GOOD), "--arg", f"a={text}", code=2)["error"]
    assert (error["code"], error["fix"]) == ("arg.literal", fix)
    nki("check", write(tmp_path, GOOD), *fix.partition(",")[0].split()[1:])


OTHER_LANGUAGE = """
from nki.core.source import of_function
from nki.driver.launch import Launch
from nki.frontend.nki import NkiFrontEnd
from nki.kernel import Kernel
from nki.spec.rule import Finding


class Short(NkiFrontEnd):
    def check(self, function):
        at = of_function(function.__code__)
        return (Finding("short.name", "error", "double is long", "names have one letter", "", "write d", at, {}),)


double = Kernel(Launch(double.func, front_end=Short()))
"""


def test_the_language_of_a_kernel_is_that_of_its_front_end(tmp_path: Path) -> None:
    told = nki_json("check", f"{write(tmp_path, GOOD + OTHER_LANGUAGE)}::double", *SMALL, "--target", "trn2", code=1)
    assert [finding["code"] for finding in told["findings"]] == ["short.name"]
