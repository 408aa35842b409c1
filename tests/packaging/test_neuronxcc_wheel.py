"""The distribution of `neuronxcc`: the names of the first NKI, and no Neuron compiler."""

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.packaging.building import REPOSITORY, build_wheel, run

KERNEL = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
from neuronxcc.nki.typing import tensor
from neuronxcc import nki as same

@nki.jit
def double(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a) * 2.0)
    return out

a = np.ones((4, 8), np.float32)
print(nki is same and bool((double(a) == 2).all()))
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("unpacked")
    with build_wheel(REPOSITORY / "distributions" / "neuronxcc", tmp_path_factory.mktemp("wheel")) as built:
        assert isinstance(built, zipfile.ZipFile)
        built.extractall(folder)
    yield folder


def _python(folder: Path, text: str) -> str:
    return run(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{text}", cwd=REPOSITORY)


def test_a_kernel_of_the_first_nki_runs_as_it_is(unpacked: Path) -> None:
    assert _python(unpacked, KERNEL).strip() == "True"
    assert {path.name for path in (unpacked / "neuronxcc").iterdir()} >= {"__init__.py", "py.typed"}


def test_it_does_not_hide_an_installed_compiler(unpacked: Path, tmp_path: Path) -> None:
    info = tmp_path / "neuronx_cc-2.21.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: neuronx-cc\nVersion: 2.21\n")
    text = f"sys.path.append({str(tmp_path)!r})\ntry:\n    import neuronxcc\nexcept ImportError as e:\n    print(e)"
    assert "neuronx-cc 2.21 is installed and hidden" in _python(unpacked, text)
