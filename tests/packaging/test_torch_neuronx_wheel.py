"""The distribution of `torch_neuronx`: that module and nothing else, in the version of the package that it needs."""

import sys
import zipfile
from collections.abc import Iterator

import pytest
from tests.packaging.building import REPOSITORY, build_wheel, run

PACKAGE = REPOSITORY / "src" / "torch_neuronx"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with build_wheel(REPOSITORY / "distributions" / "torch_neuronx", tmp_path_factory.mktemp("wheel")) as built:
        yield built


def test_it_holds_the_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    written = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*.py")} | {
        "torch_neuronx/py.typed"
    }
    (info,) = {name.split("/")[0] for name in wheel.namelist()} - {"torch_neuronx"}
    assert info.startswith("open_nki_torch-")
    assert {name for name in wheel.namelist() if not name.startswith(info)} == written


def test_it_has_the_version_of_the_package(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    lines = wheel.read(name).decode().splitlines()
    told = run(sys.executable, "-c", "from nki.version import version; print(version())", cwd=REPOSITORY).strip()
    assert f"Version: {told}" in lines
    assert "Requires-Dist: nki[torch]>=0.7.0.dev0" in lines


def test_it_does_not_take_the_name_of_the_sdk_s_distribution(wheel: zipfile.ZipFile) -> None:
    assert not [name for name in wheel.namelist() if name.startswith("torch_neuronx-")]
