"""Commands on files of the first NKI: they run as they are, on grids, with one note on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.tools.running import nki, nki_json

HELPER = """
import neuronxcc.nki.language as nl

def plus(tile, by=1.0):
    return tile + by
"""
KERNELS = """
from neuronxcc import nki
import neuronxcc.nki.language as nl
from helper_for_rows import plus

@nki.jit
def rows(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(1)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    nl.store(out[i * 128 + p, j * 64 + f], plus(nl.load(a[i * 128 + p, j * 64 + f])))
    return out

def plain(a, by=1.0):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, plus(nl.load(a), by))
    return out
"""
REFERENCES = """
def rows(a):
    return a + 1

def plain(a, by=1.0):
    return a + by
"""
TODAY = """
import nki
import nki.language as nl

@nki.jit
def today(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out
"""
NOTE = "is for the first NKI; `nki migrate kernels_of_the_first.py` rewrites it"
ROWS = ("--arg", "a=256x128:float32")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    kept = dict(sys.modules)
    for name, text in {
        "helper_for_rows": HELPER,
        "kernels_of_the_first": KERNELS,
        "references_of_rows": REFERENCES,
        "kernels_of_today": TODAY,
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [each for each in sys.modules if each not in kept]:
        if name.partition(".")[0] in ("neuronxcc", "helper_for_rows", "kernels_of_the_first", "references_of_rows"):
            del sys.modules[name]


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("check",),
        ("profile",),
        ("compare", "--reference", "references_of_rows.py::rows"),
        ("compile", "--emit", "neff", "-o", "rows.neff"),
        ("ir",),
    ],
    ids=lambda words: words[0],
)
def test_a_file_of_the_first_nki_is_taken_as_it_is(folder: Path, words: tuple[str, ...]) -> None:
    done = nki(words[0], "kernels_of_the_first.py::rows", "--grid", "2,2", *ROWS, *words[1:])
    assert done.stderr.count(NOTE) == 1 and NOTE not in done.stdout


def test_on_every_grid_the_result_is_the_same(folder: Path) -> None:
    found = {}
    for grid, cores in (("2,2", 1), ("nc2,2", 2), ("2,nc2", 2)):
        made = nki_json("run", "kernels_of_the_first.py::rows", "--grid", grid, *ROWS)
        assert made["cores"] == cores
        found[grid] = made["results"]
    assert found["2,2"] == found["nc2,2"] == found["2,nc2"]


def test_a_plain_function_on_cores(folder: Path) -> None:
    made = nki_json("run", "kernels_of_the_first.py::plain", "--lnc", "2", "--arg", "a=128x64:float32")
    assert made["cores"] == 2


def test_tuning_its_parameters(folder: Path) -> None:
    made = nki_json(
        "tune",
        "kernels_of_the_first.py::plain",
        *("--arg", "a=128x64:float32", "--config", "by=1.0", "--config", "by=2.0"),
    )
    assert len(made["candidates"]) == 3  # and the kernel as it is


def test_grading_on_a_grid(folder: Path) -> None:
    words = ("--file", "helper_for_rows.py", "--reference", "references_of_rows.py::rows", "--only-given", *ROWS)
    for grid, cores in (("2,2", 1), ("2,nc2", 2)):
        made = nki_json("grade", "kernels_of_the_first.py::rows", "--grid", grid, *words)
        assert made["passed"] and made["cores"] == cores


def test_a_grid_that_cannot_be(folder: Path) -> None:
    today = nki("run", "kernels_of_today.py::today", "--grid", "2,2", "--arg", "a=128x64:float32", code=2)
    assert "command.grid" in today.stderr and "--lnc 2" in today.stderr
    both = nki("run", "kernels_of_the_first.py::rows", "--grid", "2", "--lnc", "2", *ROWS, code=2)
    assert "--grid 2,nc2" in both.stderr
    assert "is no grid" in nki("run", "kernels_of_the_first.py::rows", "--grid", "2x2", *ROWS, code=2).stderr


def test_a_file_of_today_gets_no_note_and_no_neuronxcc(folder: Path) -> None:
    done = nki("run", "kernels_of_today.py::today", "--arg", "a=128x64:float32")
    assert "first NKI" not in done.stderr
    assert find_spec("neuronxcc") is None
