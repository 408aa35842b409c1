"""What tests of the front end share."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.frontend.check.checking import HEAD, Load

_NUMBERS = itertools.count()


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Imports a snippet from a file of its own."""
    made: list[str] = []

    def from_text(text: str) -> ModuleType:
        name = f"snippet_{next(_NUMBERS)}"
        path = tmp_path / f"{name}.py"
        path.write_text(HEAD + textwrap.dedent(text), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield from_text
    for name in made:
        del sys.modules[name]
