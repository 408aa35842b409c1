"""Each entry of the glossary is a sentence, and its concept is in the file that it names."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_documents import ROOT
from tests.docs.test_paths import PACKAGE, exists
from tests.together import together

PAGE = ROOT / "docs" / "glossary.md"
ROW = re.compile(r"^\| \*\*(.+?)\*\*.*?\| (.+?) \| `(.+?)` \|$", re.M)
TABLES = [ROW.findall(part) for part in PAGE.read_text().split("\n## ")[1:]]
ENTRIES = [entry for table in TABLES for entry in table]
STEM = 4
"""Letters of a word that stay in its other forms: link, linker, linking."""


def text_of(place: str) -> str:
    """A path and the text of its file, or of all files of a folder, named from the package or from the root."""
    (base,) = [path for path in (PACKAGE / place, ROOT / place) if path.exists()]
    files = [base] if base.is_file() else sorted(base.rglob("*.py"))
    return " ".join([place, *(path.read_text(encoding="utf-8") for path in files)]).lower()


@together("word, meaning, place", ENTRIES)
def test_an_entry_is_a_sentence_about_what_its_file_holds(word: str, meaning: str, place: str) -> None:
    assert meaning[0].isupper() and meaning.endswith(".")
    assert exists(place)
    text = text_of(place)
    assert [part for part in re.findall(r"\w+", word.lower().split(" (")[0]) if part[:STEM] not in text] == []


def test_entries_are_in_the_order_of_the_alphabet_and_none_is_there_twice() -> None:
    words = [[word.lower() for word, _, _ in table] for table in TABLES]
    assert words == [sorted(table) for table in words]
    assert len(ENTRIES) == len({word for word, _, _ in ENTRIES}) == PAGE.read_text().count("\n| **") > 80


@pytest.mark.parametrize("page", ["README.md", "docs/README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_it_is_linked_where_readers_begin(page: str) -> None:
    assert "glossary.md)" in (ROOT / page).read_text()
