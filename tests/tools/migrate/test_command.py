"""What ``nki migrate`` prints, writes and ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.running import nki, nki_json

OLD = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out[nl.arange(128)[:, None], nl.arange(64)[None, :]], value=nl.load(a))  # all of it
    return out
"""
NEW = """\
import nki
import nki.language as nl


@nki.jit
def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:128, 0:64], nl.load(a))  # all of it
    return out
"""
ARG = ("--arg", "a=128x64:float32")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(OLD)
    return path


def test_the_new_text_is_printed(old: Path) -> None:
    result = nki("migrate", str(old), *ARG)
    assert result.stdout == NEW
    assert "kernel: equal: same instructions, --arg" in result.stderr
    assert old.read_text() == OLD


def test_check_says_by_its_exit_code_that_a_file_would_change(old: Path) -> None:
    nki("migrate", str(old), "--check", *ARG, code=1)
    assert old.read_text() == OLD
    old.write_text(NEW)
    nki("migrate", str(old), "--check")


def test_diff_is_one_that_patch_reads(old: Path) -> None:
    lines = nki("migrate", str(old), "--diff", *ARG).stdout.splitlines()
    assert lines[0] == f"--- a/{old}"
    assert "+    nl.store(out[0:128, 0:64], nl.load(a))  # all of it" in lines


def test_in_place_replaces_the_file_and_keeps_its_mode(old: Path) -> None:
    old.chmod(0o640)
    nki("migrate", str(old), "--in-place", *ARG)
    assert old.read_text() == NEW
    assert old.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in old.parent.iterdir() if path.suffix == ".py"] == ["kernels.py"]


def test_json_has_what_became_of_each_kernel(old: Path) -> None:
    (found,) = nki_json("migrate", str(old), *ARG)
    assert found["changed"]
    assert found["complete"]
    assert found["kernels"][0]["name"] == "kernel"
    assert found["kernels"][0]["equal"] is True
    assert found["left"] == []


def test_wrong_input_is_an_error_with_a_code(tmp_path: Path) -> None:
    assert "migrate.file" in nki("migrate", str(tmp_path / "none.py"), code=2).stderr
    broken = tmp_path / "broken.py"
    broken.write_text("def kernel(:\n")
    assert "migrate.syntax" in nki("migrate", str(broken), code=2).stderr
    raising = tmp_path / "raising.py"
    raising.write_text("import neuronxcc.nki\nraise ValueError('no')\n")
    assert "kernel.import" in nki("migrate", str(raising), code=2).stderr
    assert "exclude each other" in nki("migrate", str(broken), "--check", "--in-place", code=2).stderr
