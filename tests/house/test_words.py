"""Texts of the package name their subject: each can be read without the name and the neighbours of what it is about."""

from __future__ import annotations

from pathlib import Path

from scripts.figures import words
from scripts.figures.tree import sources


def test_no_docstring_and_no_text_below_a_value_begins_with_a_fragment() -> None:
    found = sources(Path(__file__).resolve().parents[2])
    assert len(found) > 500, "the package is read"
    assert words.fragments(found) == {"docstrings": [], "values": []}
