"""Files of cases: what they must hold, and how a difference is told and written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import goldens
from tests.text_cases import DifferentText, cases, compare

TEXT = """// One thing. It has a setting.
// with: spill=True ring=2
given
// =>
wanted
// -----
// Another thing.
lines
of text
// =>
unchanged
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(goldens, "UPDATE", False)
    path = tmp_path / "cse.txt"
    path.write_text(TEXT)
    return path


def test_a_case_has_sentences_settings_and_two_texts(file: Path) -> None:
    one, other = cases(file)
    assert (one.sentences, one.settings) == ("One thing. It has a setting.", {"spill": True, "ring": 2})
    assert (one.given, one.wanted, other.given, other.wanted) == ("given", "wanted", "lines\nof text", "unchanged")
    assert "\n// -----\n".join(case.text(case.wanted) for case in (one, other)) + "\n" == TEXT


def test_a_difference_is_shown_and_changes_no_file(file: Path) -> None:
    one, _ = cases(file)
    compare(one, "wanted\n")
    with pytest.raises(DifferentText, match=r"One thing(?s:.*)-wanted\n\+other\nNKI_UPDATE_GOLDENS=1"):
        compare(one, "other")
    assert file.read_text() == TEXT


def test_a_difference_is_written_when_goldens_are_updated(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goldens, "UPDATE", True)
    for case, out in zip(cases(file), ("new\ntext", "unchanged"), strict=True):
        compare(case, out)
    assert file.read_text() == TEXT.replace("wanted", "new\ntext")


@pytest.mark.parametrize("end", ["", "// =>\n"])
def test_what_comes_out_of_a_new_case_is_written(file: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    file.write_text(TEXT.replace("// =>\nunchanged\n", end))
    monkeypatch.setattr(goldens, "UPDATE", True)
    compare(cases(file)[1], "unchanged")
    assert file.read_text() == TEXT


def test_a_case_without_what_comes_out_is_refused(file: Path) -> None:
    file.write_text(TEXT.replace("// =>\nunchanged", ""))
    with pytest.raises(ValueError, match=r"cse.txt, case 1: no line // =>"):
        cases(file)
