"""The page of concepts says what the target's data say, in its pictures, in its table and in its sentences."""

from __future__ import annotations

import importlib.util
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nki.target import load_target
from tests.explorer import browser

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
T = load_target("trn2")
KIB = 2**10
NUMBERS = {
    "partitions, and rows and columns of the array": {T.partitions, T.pe.rows, T.pe.columns, T.pe.max_stationary_free},
    "free": {T.pe.max_moving_free_f32, T.psum.bank_bytes // 4},
    "SBUF": {T.sbuf.bytes_per_partition // KIB, T.sbuf.bytes_per_partition * T.partitions // KIB**2},
    "PSUM": {T.psum.banks, T.psum.bank_bytes // KIB, T.psum.bytes_per_partition * T.partitions // KIB**2},
    "HBM": {T.hbm.bytes // KIB**3, T.hbm.bandwidth_gbps, T.cores_per_device},
    "DMA": {T.dma.engines, T.dma.aggregate_gbps, round(1000 * T.peak.tensor_bf16_tflops / T.dma.aggregate_gbps)},
    "clocks": {getattr(T.engines, name).ghz for name in ("tensor", "vector", "scalar", "gpsimd")},
    "GpSimd": {T.gpsimd.cores},
    "where tiles begin": {n for count, starts in T.access.start_rules for n in (count, *starts)},
    "examples, and the name of the target": {1, 2, 72, 200, 1000},
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return _load("concept_pictures")


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_pictures_and_the_table_are_what_the_script_makes(script: ModuleType) -> None:
    drawn = script.draw()
    assert {path.name for path in FOLDER.glob("*.svg")} == drawn.keys()
    for name, text in drawn.items():
        assert (FOLDER / name).read_text() == text, f"{name}: run `make gen`"
    assert script.PAGE.read_text() == script.page(), "run `make gen`"


def test_every_number_in_the_sentences_is_one_of_the_target(script: ModuleType) -> None:
    prose = re.sub(r"\]\([^)]*\)|`[^`]*`", "", script.PAGE.read_text().partition(script.HEADING)[0])
    known = set().union(*NUMBERS.values())
    stated = {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?(?!\w)", prose)}
    assert stated <= known
    assert {float(n) for n in NUMBERS["SBUF"] | NUMBERS["HBM"] | NUMBERS["clocks"]} <= stated


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(re.findall(r"\[([\w-]+\.md)\]", index)) == sorted(pages)


def _size(picture: bytes) -> tuple[int, ...]:
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", picture[16:24])


def test_the_picture_of_the_explorer_is_the_scripts_and_small() -> None:
    drawing = _load("explorer_picture")
    picture = (FOLDER / "explorer.png").read_bytes()
    assert _size(picture) == (drawing.WIDTH, drawing.HEIGHT)
    assert len(picture) < 300_000


@pytest.mark.slow
@pytest.mark.skipif(browser.find() is None, reason="Chromium is not installed")
def test_the_picture_of_the_explorer_can_be_made_again(tmp_path: Path) -> None:
    made = tmp_path / "explorer.png"
    subprocess.run([sys.executable, ROOT / "scripts" / "explorer_picture.py", made], check=True, timeout=300)
    drawing = _load("explorer_picture")
    assert _size(made.read_bytes()) == (drawing.WIDTH, drawing.HEIGHT)
    assert len(made.read_bytes()) > 50_000  # an empty page is a tenth of that
