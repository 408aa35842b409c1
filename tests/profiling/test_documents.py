"""docs/profile.md says what the schema says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nki.profiling import build, summary
from nki.profiling.formats.neuron_explorer_schema import explorer_schema
from nki.profiling.schema import COUNTER_NAMES, DEPENDENCES, PATHS, TABLES, VERSION, WAITS
from tests.profiling.ladders.__main__ import LADDERS
from tests.profiling.ladders.__main__ import table as ladder_table
from tests.profiling.support import LOOPING, PIPELINE, looping, pipeline, profiled

TEXT = (Path(__file__).resolve().parents[2] / "docs/profile.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_described_where_it_belongs(name: str) -> None:
    section = TEXT.split(f"\n### {name}\n")[1].split("\n### ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", section, re.M)
    assert rows == [(c.name, c.kind, c.unit, c.text) for c in TABLES[name]]


def test_the_summary_has_words_for_every_kind() -> None:
    assert summary._ON_PATH.keys() == PATHS.keys()
    assert summary._SPENT.keys() == {"busy", "barrier", "idle", *WAITS}


def test_every_name_is_explained() -> None:
    for names in (WAITS, DEPENDENCES, PATHS, COUNTER_NAMES):
        for name in names:
            assert f"| `{name}` | " in TEXT
    for rule in build.RULES:
        assert f"| `{rule.__name__.replace('_', '-')}` | " in TEXT
    for table in explorer_schema().tables:
        assert re.search(rf"\b{table}\b", TEXT)
    assert f"## The folder, version {VERSION}\n" in TEXT


@pytest.mark.parametrize("kernel,arguments", [(pipeline, PIPELINE), (looping, LOOPING)])
def test_nothing_is_in_a_profile_that_is_not_explained(kernel: object, arguments: tuple[object, ...]) -> None:
    profile = profiled(kernel, *arguments)  # type: ignore[arg-type]
    about = profile.about.to_json()
    for name in (*about, *about["totals"][0], *about["advice"][0], *about["totals"][0]["bounds"]):
        assert re.search(rf"`{re.sub('unit .*', 'unit NAME', name)}`", TEXT), name
    for name in set(profile["counters"]["counter"]):
        assert f"`{re.sub(r'[0-9]+$', 'N', name)}`" in TEXT
    assert set(profile["instructions"]["wait_kind"]) - {""} <= WAITS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("title", LADDERS)
def test_the_tables_of_followed_advice_are_those_of_today(title: str) -> None:
    assert ladder_table(title, LADDERS[title]) in TEXT
