"""What is in the wheel and in the source archive: the package, its data, and nothing else."""

import sys
import tarfile
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from tests.packaging.building import REPOSITORY, build_wheel, run

PACKAGE = REPOSITORY / "src" / "nki"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with build_wheel(REPOSITORY, tmp_path_factory.mktemp("wheel")) as built:
        yield built


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, unpacked."""
    place = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", place, cwd=REPOSITORY)
    (packed,) = place.glob("*.tar.gz")
    with tarfile.open(packed) as tar:
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not in Python 3.11.0 to 3.11.3
        tar.extractall(place, **safely)
    (unpacked,) = (path for path in place.iterdir() if path.is_dir())
    return unpacked


def metadata(wheel: zipfile.ZipFile) -> dict[str, list[str]]:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    message = Parser().parsestr(wheel.read(name).decode())
    return {key: message.get_all(key) for key in set(message.keys())}


def contents(wheel: zipfile.ZipFile) -> dict[str, bytes]:
    """Every file but the list of the files, whose order is the builder's."""
    return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith(".dist-info/RECORD")}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    (info,) = {name.split("/")[0] for name in wheel.namelist()} - {"nki", "nki_torch_autoload.py"}
    assert info.startswith("nki-")
    assert info.endswith(".dist-info")


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    kinds = {".py", ".toml", ".typed", ".html", ".css", ".js", ".svg"}
    written = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*") if path.suffix in kinds}
    written |= {"nki/py.typed", "nki/VERSION"}
    written |= {f"nki/examples/{path.name}" for path in (REPOSITORY / "examples").glob("*.py")}
    assert {name for name in wheel.namelist() if name.startswith("nki/")} == written


def test_the_command_is_installed(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    points = ConfigParser()
    points.read_string(wheel.read(name).decode())
    assert {group: dict(points[group]) for group in points.sections()} == {
        "console_scripts": {"nki": "nki.tools.cli:main"},
        "torch_dynamo_backends": {"neuron": "nki.interop.torch_compile:neuron"},
        "torch.backends": {"neuron": "nki_torch_autoload:load"},
    }


def test_the_core_needs_no_framework(wheel: zipfile.ZipFile) -> None:
    core = [need for need in metadata(wheel)["Requires-Dist"] if "extra ==" not in need]
    names = {need.replace(">", "=").replace("<", "=").split("=")[0].strip().replace("_", "-") for need in core}
    assert names == {"click", "ml-dtypes", "numpy", "platformdirs", "rich", "torch-mlir"}


def test_wheel_metadata_and_the_file_inside_name_the_same_version(wheel: zipfile.ZipFile) -> None:
    (told,) = metadata(wheel)["Version"]
    assert wheel.read("nki/VERSION").decode().strip() == told


def test_an_unpacked_wheel_tells_its_own_version(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    told = run(sys.executable, "-c", "from nki.version import version; print(version())", cwd=tmp_path)
    assert told.strip() == wheel.read("nki/VERSION").decode().strip()


def test_the_source_archive_builds_the_same_wheel(archive: Path, wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    assert contents(build_wheel(archive, tmp_path)) == contents(wheel)


def test_building_writes_nothing_into_the_tree(wheel: zipfile.ZipFile, archive: Path) -> None:
    assert not (PACKAGE / "VERSION").exists()
