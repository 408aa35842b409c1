"""`nki ir`: a form for people, and MLIR that reads back to the same program."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.ir.read import read
from nki.ir.text import from_text
from tests.tools.kernels import GOOD, SMALL, write
from tests.tools.running import nki, nki_json


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    return write(tmp_path, GOOD)


def test_the_readable_form_names_instructions_and_lines(kernel: str) -> None:
    lines = nki("ir", kernel, *SMALL, "--target", "trn2").stdout.splitlines()
    assert lines[0] == "kernel double for trn2, core 0 of 1:"
    (scaled,) = (line for line in lines if "tensor_scalar" in line)
    assert "operand0=2.0" in scaled
    assert "kernels.py:12" in scaled


def test_mlir_reads_back(kernel: str, tmp_path: Path) -> None:
    out = tmp_path / "double.mlir"
    assert nki("ir", kernel, *SMALL, "--mlir", "--lnc", "2", "-o", str(out)).stdout == ""
    programs = read(from_text(out.read_text()))
    assert [program.core for program in programs] == [0, 1]
    assert [issued.instruction.name for issued in programs[0].body.walk()] == ["dma_copy", "tensor_scalar", "dma_copy"]


def test_the_hash_is_that_of_a_run(kernel: str) -> None:
    ran = nki_json("run", kernel, *SMALL)["kernel_hash"]
    assert nki_json("ir", kernel, *SMALL)["kernel_hash"] == ran
    assert nki_json("ir", kernel, *SMALL, "--arg", "times=3.0")["kernel_hash"] != ran


def test_a_kernel_that_is_refused_has_no_ir(tmp_path: Path) -> None:
    wrong = write(tmp_path, GOOD.replace("src=tile)", "src=tile[:, 0:3])"))
    assert nki_json("ir", wrong, *SMALL, code=1)["error"]["code"] == "dma_copy.element-count"


def test_an_output_that_cannot_be_written(kernel: str, tmp_path: Path) -> None:
    told = nki_json("ir", kernel, *SMALL, "-o", str(tmp_path / "no" / "out.txt"), code=2)
    assert told["error"]["code"] == "output.directory"
