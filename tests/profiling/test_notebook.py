"""Results in a notebook: texts that are returned and not shown instead, and tables as HTML."""

from __future__ import annotations

import builtins
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest

import nki
from nki.core.html import html_table
from nki.core.source import UNKNOWN
from nki.graph.report import GraphReport
from nki.spec.rule import Finding
from nki.tune.tuned import Candidate, Tuned
from tests.profiling.support import PIPELINE, array, loaded, pipeline, stored
from tests.tools.running import nki as command


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """As rich finds out that it runs in Jupyter."""
    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)


@nki.jit
def copied(a: Any) -> Any:
    return stored(loaded(a))


def _tuned(label: str = "tile=4") -> Tuned:
    return Tuned("k", "trn2", "all", (Candidate(label, "chosen", 1000.0, 500.0, default=True),))


@pytest.mark.usefixtures("notebook")
def test_the_summary_in_a_notebook_is_the_text() -> None:
    profile = nki.profile(copied)(array(128, 512))
    assert profile.summary().startswith("copied on trn2: ")
    assert "critical path" in profile.summary()


@pytest.mark.usefixtures("notebook")
def test_commands_in_a_notebook_print_to_their_stream() -> None:
    assert "trn2" in command("targets").stdout


def _cells(shown: Any) -> str:
    """The texts of a table, which must be well-formed."""
    return " ".join(ET.fromstring(shown._repr_html_()).itertext())


def test_what_is_shown_as_a_table() -> None:
    copied(array(128, 512))
    assert copied.report is not None
    profile = nki.profile(pipeline)(*PIPELINE)
    found = {
        "report": (copied.report, "copied on trn2, 1 core"),
        "profile": (profile, "in nine of ten measured kernels on trn2"),
        "advice": (profile, profile.advice[0]["fix"]),
        "benchmark": (nki.benchmark(copied)(array(128, 512)), "bound by"),
        "tuned": (_tuned(), "tile=4"),
        "times": (_tuned(), "compared with published measurements"),
        "graph": (GraphReport("m", "trn2", operations=3, kernels={"copy": 2}), "2 copy"),
    }
    for name, (shown, text) in found.items():
        assert text in _cells(shown), name
        assert not re.search(r"color|background|#[0-9a-f]{3}", shown._repr_html_()), "the page's own, light or dark"


def test_names_in_tables_are_escaped() -> None:
    hostile = "<script>alert(1)</script>\u202e"
    copied(array(128, 512))
    assert copied.report is not None
    for shown in (replace(copied.report, kernel=hostile), _tuned(hostile), GraphReport(hostile, "trn2")):
        html = shown._repr_html_()
        assert "<script" not in html
        assert "\u202e" not in html
        assert "alert(1)" in html
    assert "&lt;b&gt;" in html_table("t", [["<b>"]])


def test_the_text_of_a_report_has_ten_lines_at_most() -> None:
    copied(array(128, 512))
    report = copied.report
    assert report is not None
    finding = Finding("some.code", "warning", "two\nlines", "", "", "", UNKNOWN, {})
    full = replace(report, findings=(finding,) * 30, doubt="why", statements=("one", "two"), precise_fp=False)
    for each in (report, full):
        text = str(each)
        assert len(text.splitlines()) <= 10
        assert text.splitlines()[0] == "copied on trn2, 1 core"
        assert "dma 2" in text
    assert "[some.code] two lines" in str(full)
    assert "and 28 more warnings" in str(full)
    assert len(repr(report)) < 100
