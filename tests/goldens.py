"""Texts that tests hold on to, in a file beside the module whose they are.

``GOLDENS = Goldens(__file__, names)`` in ``module.py`` keeps its texts in ``module.expected``, and
``GOLDENS.check(name, text)`` compares one. ``NKI_UPDATE_GOLDENS=1`` (`make goldens`) writes what the code says now;
read the difference before you commit it. A file or a text that no test compares any more is a failing test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

SUFFIX = ".expected"
SWITCH = "NKI_UPDATE_GOLDENS"
UPDATE = os.environ.get(SWITCH) == "1"
_HEADING = re.compile(r"^=== (.+)\n", re.MULTILINE)

MADE: dict[Path, Goldens] = {}
"""The goldens of the modules that were imported, by file."""


class Goldens:
    """The texts of one module."""

    def __init__(self, module: str, names: Callable[[], Iterable[str]]) -> None:
        """`module` is its ``__file__``; `names` tells the names of all texts, in the order of the file."""
        self.file = Path(module).with_suffix(SUFFIX)
        self._names = names
        self._texts: dict[str, str] | None = None
        MADE[self.file] = self

    @property
    def names(self) -> list[str]:
        """What must have a text."""
        return list(self._names())

    @property
    def texts(self) -> dict[str, str]:
        """What the file says, by name."""
        if self._texts is None:
            self._texts = _read(self.file)
        return self._texts

    def check(self, name: str, text: str) -> None:
        """Compare; or write, if goldens are updated."""
        text = text.strip("\n")
        if UPDATE:
            self._write(name, text)
        assert name in self.texts, f"no text {name!r} in {self.file.name}: {SWITCH}=1 writes it"
        assert text == self.texts[name], f"{self.file.name} says something else of {name!r}: {SWITCH}=1 writes it anew"

    def _write(self, name: str, text: str) -> None:
        kept = {**self.texts, name: text}
        self._texts = {name: kept[name] for name in self.names if name in kept}
        sections = [f"=== {name}\n{text}\n" for name, text in self._texts.items()]
        self.file.write_text("\n".join(sections), encoding="utf-8")


def refusal(environment: dict[str, str] | os._Environ[str]) -> str:
    """Why goldens may not be written in this run; "" if they may, or are not."""
    if environment.get(SWITCH, "0") not in ("0", "1", ""):
        return f"{SWITCH} is 0 or 1"
    if environment.get(SWITCH) != "1":
        return ""
    if environment.get("CI") or environment.get("NKI_TESTS_COMPLETE") == "1":
        return f"{SWITCH}=1 in CI, where tests compare: update goldens where you read the difference"
    if "PYTEST_XDIST_WORKER" in environment:
        return f"{SWITCH}=1 and several processes, which would write one file: leave -n out, or run `make goldens`"
    return ""


def _read(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    parts = _HEADING.split(file.read_text(encoding="utf-8"))
    return {name: text.strip("\n") for name, text in zip(parts[1::2], parts[2::2], strict=True)}
