"""`nki run`: arguments, results, files, and errors that users cause."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.tools.kernels import GOOD, SEVERAL, SMALL, write
from tests.tools.running import nki, nki_json


@pytest.fixture
def several(tmp_path: Path) -> str:
    return write(tmp_path, SEVERAL)


def test_the_result_is_what_numpy_says(tmp_path: Path) -> None:
    a = np.arange(128 * 8, dtype=np.float32).reshape(128, 8)
    np.save(tmp_path / "a.npy", a)
    out = tmp_path / "out.npy"
    kernel = write(tmp_path, GOOD)
    nki("run", kernel, "--arg", f"a=128x8:float32:{tmp_path / 'a.npy'}", "--arg", "times=3.0", "-o", str(out))
    np.testing.assert_array_equal(np.load(out), a * 3)


def test_json_says_what_ran_and_what_came_out(tmp_path: Path) -> None:
    told = nki_json("run", write(tmp_path, GOOD), "--arg", "a=128x8:float32:ones", "--target", "trn2")
    (result,) = told["results"]
    assert (result["shape"], result["dtype"], result["min"], result["max"]) == ([128, 8], "float32", 2.0, 2.0)
    assert (told["target"], told["mode"], told["cores"]) == ("trn2", "compiled", 1)
    assert told["instructions"] == {"dma": 2, "vector": 1}
    assert told["memory_peak"] == {"sbuf_bytes_per_partition": 32, "psum_bytes_per_partition": 0}
    assert "trn2" in told["provenance"]


def test_both_modes_give_the_same_bytes(tmp_path: Path) -> None:
    kernel = write(tmp_path, GOOD)
    told = [nki_json("run", kernel, *SMALL, "--mode", mode) for mode in ("compiled", "eager")]
    assert [each["mode"] for each in told] == ["compiled", "eager"]
    assert told[0]["results"] == told[1]["results"]


def test_the_seed_decides_what_random_is(tmp_path: Path) -> None:
    kernel = write(tmp_path, GOOD)
    hashes = [nki_json("run", kernel, *SMALL, "--seed", seed)["results"][0]["sha256"] for seed in ("1", "1", "2")]
    assert hashes[0] == hashes[1] != hashes[2]


def test_bfloat16_survives_a_file(tmp_path: Path) -> None:
    kernel, first, second = write(tmp_path, GOOD), tmp_path / "1.npy", tmp_path / "2.npy"
    nki("run", kernel, "--arg", "a=128x8:bfloat16", "-o", str(first))
    nki("run", kernel, "--arg", f"a=128x8:bfloat16:{first}", "--arg", "times=1.0", "-o", str(second))
    assert np.load(first).dtype.itemsize == np.dtype(ml_dtypes.bfloat16).itemsize
    assert np.load(first).tobytes() == np.load(second).tobytes()


def test_several_results_keep_their_names(several: str, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    nki("run", f"{several}::two_results", "--arg", "a=128x8:float32:ones", "-o", str(out))
    with np.load(out) as stored:
        assert {name: stored[name].max() for name in stored.files} == {"result['first']": 2.0, "result['second']": 3.0}


def test_an_argument_that_is_written_to_is_a_result(several: str) -> None:
    (result,) = nki_json("run", f"{several}::in_place", *SMALL)["results"]
    assert (result["name"], result["min"], result["max"]) == ("argument a", 7.0, 7.0)


def test_a_plain_function_is_a_kernel_too(several: str) -> None:
    assert nki_json("run", f"{several}::plain", *SMALL)["kernel"] == "plain"


def test_two_cores(tmp_path: Path) -> None:
    assert nki_json("run", write(tmp_path, GOOD), *SMALL, "--lnc", "2")["cores"] == 2


def test_the_command_line_wins_over_the_environment_and_leaves_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    kernel = write(tmp_path, GOOD)
    told = nki_json("run", kernel, *SMALL, "--target", "trn2", "--mode", "compiled")
    assert (told["target"], told["mode"]) == ("trn2", "compiled")
    told = nki_json("run", kernel, *SMALL)
    assert (told["target"], told["mode"]) == ("trn1", "eager")
    assert os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] == "trn1"


def test_prints_of_the_kernel_do_not_spoil_the_json(several: str) -> None:
    assert nki_json("run", f"{several}::talks", *SMALL)["results"]
    assert "hello from the kernel" in nki("run", f"{several}::talks", *SMALL).stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["a"], "arg.form"),
        (["1=2"], "arg.form"),
        (["a=128x8:float32", "a=1"], "arg.twice"),
        (["a=128x8:float31"], "arg.dtype"),
        (["a=128x8:float64"], "arg.dtype"),
        (["a=0x8:float32"], "arg.shape"),
        (["a=128x8"], "arg.literal"),
        (["a=fast"], "arg.literal"),
        (["a=128x8:float32:nowhere.npy"], "arg.file"),
        (["a=128x8:float8_e5m2_x4"], "arg.fill"),
    ],
)
def test_arguments_that_are_written_wrongly(tmp_path: Path, words: list[str], code: str) -> None:
    texts = [part for word in words for part in ("--arg", word)]
    told = nki_json("run", write(tmp_path, GOOD), *texts, code=2)
    assert told["error"]["code"] == code
    assert told["error"]["location"] == []


def test_a_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((8, 128), np.float32))
    told = nki_json("run", write(tmp_path, GOOD), "--arg", f"a=128x8:float32:{tmp_path / 'a.npy'}", code=2)
    assert told["error"]["code"] == "arg.file-contents"


@pytest.mark.parametrize(("name", "code"), [("out.txt", "output.suffix"), ("no/out.npy", "output.directory")])
def test_outputs_that_cannot_be_written(tmp_path: Path, name: str, code: str) -> None:
    told = nki_json("run", write(tmp_path, GOOD), *SMALL, "-o", str(tmp_path / name), code=2)
    assert told["error"]["code"] == code


def test_two_results_do_not_fit_one_array_file(several: str, tmp_path: Path) -> None:
    told = nki_json("run", f"{several}::two_results", *SMALL, "-o", str(tmp_path / "out.npy"), code=2)
    assert told["error"]["code"] == "output.count"


# --- the file and the kernel in it


def test_no_such_file() -> None:
    assert "no file" in nki("run", "nowhere.py::f", code=2).stderr


def test_a_misspelt_kernel_is_told_its_name(several: str) -> None:
    error = nki_json("run", f"{several}::two_result", code=2)["error"]
    assert (error["code"], error["fix"]) == ("kernel.name", f"use {several}::two_results")


def test_several_kernels_are_listed(several: str) -> None:
    error = nki_json("run", several, code=2)["error"]
    assert error["code"] == "kernel.name"
    assert "double" in error["message"]


def test_what_is_no_kernel(several: str) -> None:
    assert nki_json("run", f"{several}::number", code=2)["error"]["code"] == "kernel.kind"


@pytest.mark.parametrize(
    ("text", "expected", "line"),
    [
        ("x = 1\nimport not_a_package_here\n", "ModuleNotFoundError", 2),
        ("x = 1\ndef f(:\n    pass\n", "SyntaxError", 2),
        ("x = 1\ny = 2\nx / 0\n", "ZeroDivisionError", 3),
        ("import sys\nsys.exit(3)\n", "SystemExit", 2),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path: Path, text: str, expected: str, line: int) -> None:
    file = write(tmp_path, text, "broken.py")
    error = nki_json("run", f"{file}::f", code=2)["error"]
    assert error["code"] == "kernel.import"
    assert expected in error["message"]
    assert (error["location"][0]["file"], error["location"][0]["line"]) == (file, line)
    assert text.splitlines()[line - 1] in nki("run", f"{file}::f", code=2).stderr


@pytest.mark.parametrize(
    "line",
    [
        "import neuronxcc.nki.isa as nisa",
        "import neuronxcc.nki as old; old.jit",
        "from neuronxcc.nki import language as nl",
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_file_that_imports_the_first_nki_gets_it(tmp_path: Path, line: str, command: str) -> None:
    file = write(tmp_path, f"{line}\n{GOOD}", "old.py")
    assert nki_json(command, file, "--arg", "a=128x8:float32:ones"), "the kernel itself is one of today"


def test_what_the_first_nki_does_not_have_is_an_error_at_its_line(tmp_path: Path) -> None:
    error = nki_json("run", write(tmp_path, f"import neuronxcc.nki.nothing\n{GOOD}", "old.py"), code=1)["error"]
    assert error["code"] == "name.removed" and error["location"][0]["line"] == 1


def test_files_beside_it_and_packages_around_it_can_be_imported(tmp_path: Path) -> None:
    package = tmp_path / "some_kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    write(package, "TIMES = 5.0\n", "constants.py")
    file = write(package, "from .constants import TIMES\n" + GOOD.replace("times=2.0", "times=TIMES"))
    assert nki_json("run", file, "--arg", "a=128x8:float32:ones")["results"][0]["max"] == 5.0


def test_a_file_may_be_called_like_a_module_of_python(tmp_path: Path) -> None:
    assert nki_json("run", write(tmp_path, GOOD, "json.py"), *SMALL)["kernel"] == "double"


# --- errors while the kernel is called


def test_an_exception_of_the_kernel_is_shown_at_its_line(several: str) -> None:
    shown = nki("run", f"{several}::raises", *SMALL, code=1).stderr
    assert "error[kernel.exception]: the Python code of raises raised ZeroDivisionError" in shown
    assert "return double(a, 1 / n)" in shown
    assert "return helper(a, 0)" in shown
    assert "click" not in shown


def test_a_wrong_call_points_at_the_kernel(tmp_path: Path) -> None:
    error = nki_json("run", write(tmp_path, GOOD), "--arg", "b=1", code=1)["error"]
    assert error["code"] == "call.kernel-arguments"
    assert error["location"][0]["function"] == "double"


def test_an_unknown_target(tmp_path: Path) -> None:
    error = nki_json("run", write(tmp_path, GOOD), *SMALL, "--target", "trn9", code=2)["error"]
    assert error["code"] == "target.unknown"


def test_a_refused_instruction(several: str) -> None:
    shown = nki("run", f"{several}::wrong_twice", *SMALL, "--arg", "b=1", code=1).stderr
    assert "error[tensor_tensor.shapes]" in shown
    assert "^^^" in shown
