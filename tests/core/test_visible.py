"""Names that come from files: what a terminal shows of them, and where files of their name are."""

from __future__ import annotations

import io
import unicodedata

import numpy as np
import pytest
from rich.table import Table

from nki.core.errors import NkiError, render
from nki.core.source import UNKNOWN
from nki.core.visible import file_name, visible
from nki.report import NkiWarning
from nki.spec.rule import Finding
from nki.tools.output import SafeConsole, echo
from nki.tools.run.model import save_results

EVIL = "\x1b]0;pwn\x07\u202ek\r\x9b2J\u2066\ud800"
SHOWN = r"\x1b]0;pwn\x07\u202ek\r\x9b2J\u2066\ud800"


def test_no_character_is_obeyed() -> None:
    assert visible(EVIL) == SHOWN
    assert visible("a\tb\nc µ × \u05d0 \u4e2d") == "a\tb\nc µ × \u05d0 \u4e2d"
    obeyed = {c for c in map(chr, range(0x3000)) if unicodedata.category(c) in ("Cc", "Zl", "Zp")} - {"\t", "\n"}
    bidirectional = {
        c
        for c in map(chr, range(0x3000))
        if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    }
    for each in obeyed | bidirectional:
        assert visible(each) == ascii(each)[1:-1] != each


def test_what_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    echo(EVIL)
    table = Table()
    table.add_column(EVIL)
    table.add_row(EVIL)
    held = io.StringIO()
    SafeConsole(file=held, width=200).print(EVIL, table, markup=False)
    finding = Finding("a.b", "warning", EVIL, EVIL, "", EVIL, UNKNOWN, {})
    for text in (
        capsys.readouterr().out,
        held.getvalue(),
        render(NkiError("a.b", EVIL, fix=EVIL)),
        str(NkiWarning(finding)),
    ):
        assert SHOWN in text and all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize(
    "name", ["../../x", "/abs/x", "..", ".", "", "a/../../b", "\x00", "\u202ek", "~/x", "C:\\x", "a" * 500]
)
def test_files_stay_in_their_folder(name: str) -> None:
    found = file_name(name)
    assert found and len(found) <= 100 and not set(found) & set("/\\\x00:") and not found.startswith(".")


def test_results_whose_names_would_be_one_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    named = [("a/b", np.zeros(1)), ("a_b", np.ones(1)), ("c", np.ones(2))]
    files = save_results(tmp_path, named)
    assert [file.name for file in files] == ["a_b.0.npy", "a_b.1.npy", "c.npy"]
    assert [float(np.load(file)[0]) for file in files] == [0, 1, 1]
