"""Every file, folder and module that the documents name exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.docs.test_documents import DOCUMENTS, ROOT
from tests.together import together

TOP = ("src", "tests", "docs", "benchmarks", "scripts", "examples", "distributions", ".github", ".ci")
PACKAGE = ROOT / "src" / "nki"
SOURCE = (".py", ".toml", ".js", ".sh", ".yml", ".lock")
STAND_INS = {"kernels.py", "module.py"}
"""Files of the reader's, and names that stand for any."""


def named(text: str) -> set[str]:
    """What looks like a path in this repository: from its root in any text, in other forms between backticks."""
    found = {word.rstrip(".") for word in re.findall(rf"(?<![\w./-])(?:{'|'.join(TOP)})/[\w./*-]*", text)}
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir()} | {"nki"}
    for word in re.findall(r"`([\w./*-]+)`", text):
        if word.endswith(SOURCE) or ("/" in word and word.split("/")[0] in rooms):
            found.add(word)
    return {word for word in found if word not in STAND_INS and "NAME" not in word}


def exists(word: str) -> bool:
    """Whether it is a path from the root, from the package or below, or the name of a file anywhere."""
    bases = (ROOT, ROOT / "src", PACKAGE)
    if any(any(base.glob(word.rstrip("/"))) for base in bases):
        return True
    return "/" not in word and any(any((ROOT / top).rglob(word)) for top in TOP)


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_paths_exist(path: Path) -> None:
    assert [word for word in sorted(named(path.read_text(encoding="utf-8"))) if not exists(word)] == []


@together("path", DOCUMENTS)
def test_modules_that_commands_run_exist(path: Path) -> None:
    modules = re.findall(r"python3? -m ((?:benchmarks|tests)[\w.]*)", path.read_text(encoding="utf-8"))
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


def test_what_is_missing_is_found() -> None:
    text = "See src/nki/gone/x.py, `passes/gone.py`, `gone.py` and `tests/docs/`, `core/dtypes.py`, docs/README.md."
    missing = {word for word in named(text) if not exists(word)}
    assert missing == {"src/nki/gone/x.py", "passes/gone.py", "gone.py"}
    assert named(text) - missing == {"tests/docs/", "core/dtypes.py", "docs/README.md"}
