"""Refused kernels: what their authors are told, when the kernel is called and when it is simulated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from importlib import import_module

from scripts.replaying.case import Case, Found
from scripts.replaying.digest import digest
from scripts.replaying.places import ROOT
from tests.rejected import support

_OWN = re.compile(r"^.*\bsrc/nki/(?!examples/).*$", re.MULTILINE)
"""Lines that show a line of the package."""


def cases() -> Iterator[Case]:
    """Every kernel of tests/rejected."""
    for file in sorted((ROOT / "tests" / "rejected").glob("*.py")):
        if not file.stem.startswith("test_") and "TOPIC = Topic(" in file.read_text(encoding="utf-8"):
            topic = import_module(f"tests.rejected.{file.stem}").TOPIC
            for case in topic.cases:
                yield Case(f"refused {file.stem} {case.name}", partial(_refused, case))


def _refused(case: support.Case) -> Found:
    return {"error": digest(_OWN.sub("", support.rendered(error)) for error in support.errors(case))}
