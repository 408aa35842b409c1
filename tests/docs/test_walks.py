"""The walks of ARCHITECTURE.md name files and functions that exist."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

from tests.together import together

ROOT = Path(__file__).resolve().parents[2]
_HOP = re.compile(r"`([\w/]+)\.py` `([\w.]+)`")


def hops() -> list[tuple[str, str]]:
    """Pairs of a file without its suffix and a function, in the order of the page."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return _HOP.findall(text[text.index("## Four walks") : text.index("## Decisions")])


def test_there_are_four_walks() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    walks = text[text.index("## Four walks") : text.index("## Decisions")]
    assert len(re.findall(r"^1\. ", walks, re.MULTILINE)) == 4 and len(hops()) > 40


@together("hop", sorted(set(hops())))
def test_a_hop_exists(hop: tuple[str, str]) -> None:
    file, function = hop
    module = import_module("nki." + file.replace("/", "."))
    found = reduce(getattr, function.split("."), module)
    assert callable(found)
