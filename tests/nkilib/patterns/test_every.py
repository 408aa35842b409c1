"""The distribution of the library names all of its patterns."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

from nkilib.patterns.every import PATTERNS

_FILE = Path(__file__).parents[3] / "distributions" / "nkilib" / "pyproject.toml"


def test_entry_points_are_the_patterns() -> None:
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["project"]["entry-points"]["nki.patterns"]
    found = []
    for name, where in entries.items():
        module, _, attribute = where.partition(":")
        pattern = getattr(import_module(module), attribute)
        assert pattern.name == name
        found.append(pattern)
    assert sorted(found, key=lambda each: each.name) == list(PATTERNS)


def test_parts_come_after_what_they_are_part_of() -> None:
    names = [pattern.name for pattern in PATTERNS]
    assert names == sorted(names) and names.index("mlp") < min(names.index("norm_layer"), names.index("norm_rms"))
    assert all(pattern.choose == "faster" and pattern.refuses for pattern in PATTERNS)
