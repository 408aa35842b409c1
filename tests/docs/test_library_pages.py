"""The pages of docs/library: as the kernels and the records are, with links that lead somewhere and small pictures."""

from __future__ import annotations

import re

import pytest
from benchmarks.library.cases import all_cases
from benchmarks.library.measure import measured
from benchmarks.library.record import record_of
from benchmarks.library.timeline import timeline
from scripts.library.docstrings import Docstring, markdown
from scripts.library_pages import FOLDER, differing, written

from nkilib.catalogue import CATALOGUE

SMALL = "cumsum: 64 x 8192, bfloat16"
"""A case that is predicted in a moment."""


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return written()


def test_pages_are_those_of_the_kernels_and_records(files: dict[str, str]) -> None:
    assert differing(files) == [], "run python scripts/library_pages.py"


def test_each_kernel_with_a_case_was_measured() -> None:
    missing = {case.kernel for case in all_cases() if record_of(case.kernel) is None}
    assert not missing, "run python -m benchmarks.library --write --kernel NAME"


def test_records_say_what_the_timing_model_says_now() -> None:
    case = next(case for case in all_cases() if case.key == SMALL)
    record = record_of(case.kernel)
    assert record is not None
    row = next(row for row in record["cases"] if row["key"] == SMALL)
    assert measured(case).ns == pytest.approx(row["ns"], rel=1e-4), "run python -m benchmarks.library --write"


def test_a_record_has_all_cases_of_its_kernel() -> None:
    for name in CATALOGUE:
        record = record_of(name)
        if record is not None:
            assert [row["key"] for row in record["cases"]] == [case.key for case in all_cases() if case.kernel == name]


def test_a_timeline_works_as_much_as_the_profile_says() -> None:
    found = timeline(next(case for case in all_cases() if case.key == SMALL))
    for engine in ("vector", "scalar", "sync"):
        levels = [int(each, 36) / 25 for each in found["engines"][engine]]
        assert sum(levels) / len(levels) == pytest.approx(found["time"][engine].get("busy", 0.0), abs=0.01)
    assert set(found["engines"]["gpsimd"]) == {"0"}


def test_pictures_are_small(files: dict[str, str]) -> None:
    sizes = {name: len(text.encode()) for name, text in files.items() if name.endswith(".svg")}
    assert sizes
    assert max(sizes.values()) <= 30_000


def test_links_and_pictures_of_pages_are_there(files: dict[str, str]) -> None:
    for name, text in files.items():
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL) if name.endswith(".md") else ""
        for target in re.findall(r"\]\(([^)#:]+)", prose):
            assert target in files or (FOLDER / target).exists(), f"{name}: {target}"


def test_docstrings_become_markdown() -> None:
    parts = ("Add ``a`` to b.", "    c = a < b", "Args:\n    a, b: of shape\n        (n, <m>).", "Returns:\n    c.")
    told = Docstring("\n\n".join(parts))
    assert told.text == "Add `a` to b.\n\n    c = a < b"
    assert list(told.sections()) == ["### Arguments\n\n* `a`, `b`: of shape (n, &lt;m>).", "### Result\n\nc."]
    assert markdown("Norm: of rows.\n\nLimits: none.") == "Norm: of rows.\n\n**Limits:** none."
