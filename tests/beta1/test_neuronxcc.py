"""The one module of neuronx-cc that kernel libraries of today import, and all that must not be found."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import nki
import nki.typing
from nki.beta1.neuronxcc import TypingFinder, install

FORMS = {
    "from the module": "from neuronxcc.nki.typing import tensor, mutable_tensor",
    "under a name": "import neuronxcc.nki.typing as nt\ntensor, mutable_tensor = nt.tensor, nt.mutable_tensor",
    "from the package": "from neuronxcc.nki import typing as t\ntensor, mutable_tensor = t.tensor, t.mutable_tensor",
    "in a large file": "".join(f"x{n} = 'x{n}'\n" for n in range(300))
    + "from neuronxcc.nki.typing import tensor, mutable_tensor",
    "all of it": "from neuronxcc.nki.typing import *",
    "whole": "import neuronxcc.nki.typing\ntensor = neuronxcc.nki.typing.tensor\n"
    "mutable_tensor = neuronxcc.nki.typing.mutable_tensor",
}
KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl
from neuronxcc.nki.typing import tensor


@nki.jit
def double(a: tensor[4, 8]):
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
PROBES = """
from importlib.util import find_spec

def found():
    for name in ("neuronxcc", "neuronxcc.nki", "neuronxcc.nki.typing"):
        try:
            if find_spec(name) is not None:
                return name
        except ModuleNotFoundError:
            pass
    try:
        import neuronxcc
        return "imported"
    except ModuleNotFoundError:
        pass
    try:
        import neuronxcc.nki as old
        return "imported"
    except ModuleNotFoundError:
        return "nothing"
"""


@pytest.fixture(autouse=True)
def without_neuronxcc() -> Iterator[None]:
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "neuronxcc"}
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "neuronxcc"]:
        del sys.modules[name]
    sys.modules.update(kept)


def run(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(code, names)
    return names


@pytest.mark.parametrize("form", FORMS)
def test_annotations_are_those_of_nki(form: str) -> None:
    names = run(FORMS[form])
    assert names["tensor"] is nki.typing.tensor and names["mutable_tensor"] is nki.typing.mutable_tensor
    assert find_spec("neuronxcc") is None, "the statement is over"
    assert not any(name.startswith("neuronxcc") for name in sys.modules)


def test_who_looks_for_a_compiler_finds_none(tmp_path: Path) -> None:
    """In a new process: after `import nki`, while a kernel file is imported, and afterwards."""
    (tmp_path / "probes.py").write_text(PROBES)
    during = "from probes import found\nduring = found()\n\n@nki.jit"
    (tmp_path / "kernels.py").write_text(KERNEL.replace("@nki.jit", during))
    code = (
        "import nki; from probes import found; before = found()\nimport kernels; print(before, kernels.during, found())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "nothing nothing nothing", done.stderr


def test_a_kernel_file_that_imports_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels_with_annotations.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    kernel = importlib.import_module("kernels_with_annotations").double
    a = np.ones((4, 8), np.float32)
    for origin in ("compiled", "memory"):
        np.testing.assert_array_equal(kernel(a), 2 * a)
        assert kernel.report.compiled == origin


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("import neuronxcc.nki", "neuronxcc.nki"),
        ("import neuronxcc.nki as old", "neuronxcc.nki"),
        ("from neuronxcc import nki", "neuronxcc.nki"),
        ("from neuronxcc.nki import language", "neuronxcc.nki.language"),
        ("from neuronxcc.nki import typing, language", "neuronxcc.nki.language"),
        ("import neuronxcc.nki.isa as nisa", "neuronxcc.nki.isa"),
        ("from neuronxcc.nki.kernels.attention import flash_fwd", "neuronxcc.nki.kernels.attention"),
    ],
)
def test_the_rest_of_it_says_what_to_write(statement: str, name: str) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        run(statement)
    assert isinstance(caught.value, nki.errors.RemovedImportError)
    assert f"{name} does not exist: neuronx-cc is not installed" in str(caught.value)
    assert "nki migrate" in caught.value.fix and "nki.beta1" in caught.value.fix
    assert not any(each.startswith("neuronxcc") for each in sys.modules)


@pytest.mark.parametrize("statement", ["import neuronxcc", "import neuronxcc.driver", "from neuronxcc import driver"])
def test_the_compiler_is_not_there_as_python_says_it(statement: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'neuronxcc'") as caught:
        run(statement)
    assert type(caught.value) is ModuleNotFoundError


def test_an_installed_one_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "neuronxcc" / "nki"
    package.mkdir(parents=True)
    for directory in (package.parent, package):
        (directory / "__init__.py").write_text("")
    (package / "typing.py").write_text("tensor = 'theirs'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert run("from neuronxcc.nki.typing import tensor")["tensor"] == "theirs"


def test_it_is_installed_once() -> None:
    install()
    assert [isinstance(finder, TypingFinder) for finder in sys.meta_path].count(True) == 1
