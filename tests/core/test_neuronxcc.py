"""The one module of neuronx-cc that kernel libraries of today import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nki
import nki.typing
from nki.core.neuronxcc import TypingFinder, install


@pytest.fixture(autouse=True)
def without_neuronxcc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "neuronxcc"}
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "neuronxcc"]:
        del sys.modules[name]
    sys.modules.update(kept)


def test_annotations_are_those_of_nki() -> None:
    import neuronxcc.nki.typing as nt  # type: ignore[import-not-found]

    assert nt.tensor is nki.typing.tensor and nt.mutable_tensor is nki.typing.mutable_tensor
    assert nt.mutable_tensor[128, 512].mutable


def test_the_rest_of_it_says_what_to_write() -> None:
    old = importlib.import_module("neuronxcc.nki")
    with pytest.raises(nki.errors.RemovedError, match=r"neuronxcc\.nki\.jit does not exist.*not installed") as caught:
        _ = old.jit
    assert "write `import nki`" in caught.value.fix
    with pytest.raises(nki.errors.RemovedImportError, match=r"neuronxcc\.nki\.language does not exist"):
        exec("from neuronxcc.nki import language", {})
    assert not hasattr(old, "__wrapped__")
    with pytest.raises(nki.errors.RemovedImportError, match=r"neuronxcc\.nki\.isa does not exist"):
        importlib.import_module("neuronxcc.nki.isa")


def test_an_installed_one_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "neuronxcc" / "nki"
    package.mkdir(parents=True)
    for directory in (package.parent, package):
        (directory / "__init__.py").write_text("")
    (package / "typing.py").write_text("tensor = 'theirs'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("neuronxcc.nki.typing").tensor == "theirs"


def test_it_is_installed_once() -> None:
    install()
    assert [isinstance(finder, TypingFinder) for finder in sys.meta_path].count(True) == 1
