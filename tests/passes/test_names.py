"""A pass, its file, its name and its heading in the documents are one word; older names are understood, and told."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from nki.core.errors import UsageError
from nki.driver import gate
from nki.graph.passes.pipeline import STAGES
from nki.options import Options
from nki.passes.names import RENAMED, current, renamed
from nki.passes.pipeline import PIPELINE, Stage, passes_named, remaining
from nki.report import NkiWarning
from tests.passes.cse_kernels import A, around, chain
from tests.passes.kernels import passed

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = [item.name for item in PIPELINE]


def headings(page: str) -> list[str]:
    """The names below the heading for passes."""
    (section,) = re.findall(r"^## The passes\n(.*?)^## ", (DOCS / page).read_text(), re.S | re.M)
    return re.findall(r"^### (.*)$", section, re.M)


def test_a_pass_of_kernels_is_called_like_its_file_and_its_heading() -> None:
    found = {item.name: sys.modules[f"nki.passes.{item.name}"] for item in PIPELINE}
    assert all(found[item.name].PASS is item for item in PIPELINE)
    assert headings("compiler.md") == NAMES


def test_a_pass_of_models_is_called_like_its_file_and_its_heading() -> None:
    steps = dict.fromkeys(step for steps in STAGES.values() for step in steps)
    assert [step.__module__.rpartition(".")[2] for step in steps] == [step.__name__ for step in steps]
    assert headings("graph.md") == [step.__name__ for step in steps]


@pytest.mark.parametrize("old", RENAMED)
def test_an_older_name_is_understood_and_told(old: str) -> None:
    for spelled in (old, old.replace("_", "-")):
        assert [item.name for item in passes_named([spelled])] == [RENAMED[old]]
        (note,) = renamed([spelled, spelled])
        assert (note.code, note.severity, note.facts) == (
            "pass.renamed",
            "warning",
            {"old": spelled, "name": RENAMED[old]},
        )
    assert RENAMED[old] in NAMES and old not in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_today_has_two_spellings_and_no_note(name: str) -> None:
    assert renamed([name, name.replace("_", "-")]) == ()
    assert [item.name for item in passes_named([name.replace("_", "-")])] == [name]


def test_an_unknown_name_is_refused_as_it_was_written() -> None:
    with pytest.raises(UsageError, match="no pass is called 'forward-copy'"):
        passes_named(["forward-copy"])
    assert current("all") == "all"


def test_a_program_that_went_through_passes_of_older_names_needs_the_others() -> None:
    before, _ = passed(around(chain), [A])
    before.passed = ("canonicalize", "dead-code", "reuse-results", "forward-copies", "accumulate-flags", "unroll")
    newer = ["keep_loads", "zero_fills"]
    assert [item.name for item in remaining([before])] == [*newer, "allocate_and_schedule", "schedule", "check_races"]
    before.passed = (*before.passed, "allocate", "schedule", "check-races")
    assert remaining([before]) == ()


@pytest.mark.parametrize("name", ["cse,", "fuse", "every"])
def test_the_variable_refuses_what_no_pass_is_called(name: str) -> None:
    with pytest.raises(UsageError, match="no pass is called"):
        gate._stage_writer(Options(print_after=name), "chained")


@pytest.mark.parametrize("name", ["all", "trace", "cse", "check-races"])
def test_the_variable_takes(name: str) -> None:
    assert gate._stage_writer(Options(print_after=name), "chained") is not None


def test_the_variable_takes_an_older_name_and_tells(capsys: pytest.CaptureFixture[str]) -> None:
    program, _ = passed(around(chain), [A])
    with pytest.warns(NkiWarning, match=r"\[pass.renamed\] the pass reuse-results is called cse; write cse"):
        write = gate._stage_writer(Options(print_after="reuse-results"), "chained")
    assert write is not None
    write(Stage("cse", (program,), 0.0))
    write(Stage("unroll", (program,), 0.0))
    assert capsys.readouterr().err.count("// chained after") == 1
