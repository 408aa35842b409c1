"""Goldens are compared, written when asked for and never in CI; none is left that no test compares."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests import goldens
from tests.goldens import Goldens, refusal
from tests.together import together

HERE = Path(__file__).parent
DATA = sorted(
    path for path in HERE.rglob("*") if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
)


def relative(path: Path) -> str:
    return path.relative_to(HERE).as_posix()


@together("file", [path for path in DATA if path.suffix == goldens.SUFFIX])
def test_every_golden_is_compared(file: Path) -> None:
    importlib.import_module(".".join(("tests", *file.relative_to(HERE).with_suffix("").parts)))
    assert file in goldens.MADE, "no module keeps its texts here: delete it"
    assert list(goldens.MADE[file].texts) == goldens.MADE[file].names, "delete what no test compares"


@together("file", [path for path in DATA if path.suffix != goldens.SUFFIX])
def test_every_other_file_is_read_by_a_module_beside_it(file: Path) -> None:
    names = (f'"{file.name}"', f'"*{file.suffix}"')
    texts = [path.read_text(encoding="utf-8") for path in file.parent.glob("*.py")]
    assert any(name in text for text in texts for name in names)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Goldens:
    monkeypatch.setattr(goldens, "MADE", {})
    (tmp_path / "of.expected").write_text("=== first\none\n\n=== second\ntwo\nlines\n")
    return Goldens(str(tmp_path / "of.py"), lambda: ["first", "second", "third"])


def test_a_text_that_changed_fails_and_says_how_to_write_it(kept: Goldens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goldens, "UPDATE", False)
    before = kept.file.read_text()
    kept.check("second", "two\nlines\n")
    for name, text, said in (("first", "other", "something else"), ("third", "three", "no text 'third'")):
        with pytest.raises(AssertionError, match=f"{said}.*NKI_UPDATE_GOLDENS=1"):
            kept.check(name, text)
    assert kept.file.read_text() == before


def test_texts_are_written_in_the_order_of_the_module(kept: Goldens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goldens, "UPDATE", True)
    kept.check("third", "three")
    kept.check("first", "new")
    assert kept.file.read_text() == "=== first\nnew\n\n=== second\ntwo\nlines\n\n=== third\nthree\n"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, ""),
        ({"CI": "true"}, ""),
        ({"NKI_UPDATE_GOLDENS": "0", "CI": "true"}, ""),
        ({"NKI_UPDATE_GOLDENS": "1"}, ""),
        ({"NKI_UPDATE_GOLDENS": "yes"}, "0 or 1"),
        ({"NKI_UPDATE_GOLDENS": "1", "CI": "true"}, "in CI"),
        ({"NKI_UPDATE_GOLDENS": "1", "NKI_TESTS_COMPLETE": "1"}, "in CI"),
        ({"NKI_UPDATE_GOLDENS": "1", "PYTEST_XDIST_WORKER": "gw0"}, "several processes"),
    ],
)
def test_where_goldens_may_not_be_written(environment: dict[str, str], said: str) -> None:
    found = refusal(environment)
    assert re.search(said, found) if said else found == ""
