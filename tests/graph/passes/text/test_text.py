"""Every pass of the graph compiler has its file of cases, to which its description leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from nki.graph.passes.pipeline import STAGES
from tests.text_cases import cases

HERE = Path(__file__).parent
PAGE = HERE.parents[3] / "docs" / "graph.md"
NAMES = sorted({step.__name__ for steps in STAGES.values() for step in steps})


def test_every_pass_has_a_file_and_its_description_leads_there() -> None:
    assert sorted(path.stem for path in HERE.glob("*.txt")) == NAMES
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"### {name}\n" in page and f"](../tests/graph/passes/text/{name}.txt)" in page for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_shows_what_a_pass_does(name: str) -> None:
    wanted = [case.wanted for case in cases(HERE / f"{name}.txt")]
    assert len(wanted) >= 2
    assert any(text != "unchanged" for text in wanted)
