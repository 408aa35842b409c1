"""The library as it is installed: its entry points are those of its distribution's file."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nki.beta1.library import GROUP, _served
from nki.beta1.served import serve

_FILE = Path(__file__).parents[3] / "distributions" / "nkilib" / "pyproject.toml"


@pytest.fixture(autouse=True)
def neuronxcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``neuronxcc.nki`` is there, with what the library serves below it."""
    entries = tomllib.loads(_FILE.read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
    metadata = tmp_path / "served-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: served\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    kept, finders = dict(sys.modules), list(sys.meta_path)
    _served.cache_clear()
    serve()
    yield
    for name in [each for each in sys.modules if each.partition(".")[0] == "neuronxcc"]:
        del sys.modules[name]
    sys.modules.update({name: kept[name] for name in kept if name.partition(".")[0] == "neuronxcc"})
    sys.meta_path[:] = finders
    _served.cache_clear()
