"""What is written in a way that is close to the right one: the fix is what was meant, and it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.core.dtypes import as_dtype
from nki.core.errors import DtypeError
from tests.tools.kernels import GOOD, write
from tests.tools.running import nki, nki_json


@pytest.mark.parametrize(
    ("text", "code", "fix"),
    [
        ("a=4x8:f32", "arg.dtype", "--arg a=4x8:float32"),
        ("a=4x8:int", "arg.dtype", "--arg a=4x8:int32"),
        ("a=4x8:u8", "arg.dtype", "--arg a=4x8:uint8"),
        ("a=4x8:fp8", "arg.dtype", "--arg a=4x8:float8_e4m3"),
        ("a=4x8", "arg.literal", "--arg a=4x8:float32"),
        ("a:4x8", "arg.form", "--arg a=4x8:float32"),
        ("a:4x8:bfloat16", "arg.form", "--arg a=4x8:bfloat16"),
        ("a=4x8:float32:rand", "arg.fill", "--arg a=4x8:float32:random"),
        ("a=4x8:float32:zero", "arg.fill", "--arg a=4x8:float32:zeros"),
    ],
)
def test_an_array_as_other_programs_write_it(tmp_path: Path, text: str, code: str, fix: str) -> None:
    file = write(tmp_path, GOOD)
    error = nki_json("run", file, "--arg", text, code=2)["error"]
    assert error["code"] == code
    assert error["fix"].removeprefix("write ").partition(", ")[0] == fix
    nki("run", file, *fix.split())


def test_an_array_without_its_name(tmp_path: Path) -> None:
    error = nki_json("run", write(tmp_path, GOOD), "--arg", "4x8:float32", code=2)["error"]
    assert error["fix"] == "put the name of the argument before it: --arg NAME=4x8:float32"


def test_a_file_that_is_missing_is_no_way_to_fill(tmp_path: Path) -> None:
    error = nki_json("run", write(tmp_path, GOOD), "--arg", "a=4x8:float32:ones.npy", code=2)["error"]
    assert error["code"] == "arg.file"


def test_an_array_that_is_no_option(tmp_path: Path) -> None:
    assert "Did you mean '--arg a=4x8:float32'?" in nki("run", write(tmp_path, GOOD), "a=4x8:float32", code=2).stderr


@pytest.mark.parametrize("form", ["{file}:{name}", "{stem}:{name}", "{stem}.{name}"])
def test_a_kernel_as_other_programs_write_it(tmp_path: Path, form: str) -> None:
    file = Path(write(tmp_path, GOOD).partition("::")[0])
    written = form.format(file=file, stem=file.with_suffix(""), name="double")
    assert nki_json("check", written, code=2)["error"]["fix"] == f"write {file}::double"


def test_an_ending_that_is_misspelt_is_no_kernel(tmp_path: Path) -> None:
    file = Path(write(tmp_path, GOOD).partition("::")[0])
    assert nki_json("check", str(file).removesuffix("y"), code=2)["error"]["fix"] == f"write {file}"


@pytest.mark.parametrize(
    ("short", "meant"), [("f32", "float32"), ("half", "float16"), ("int", "int32"), ("e5m2", "float8_e5m2")]
)
def test_a_dtype_as_other_programs_call_it(short: str, meant: str) -> None:
    with pytest.raises(DtypeError) as caught:
        as_dtype(short)
    assert caught.value.fix == f"write nl.{meant}"
