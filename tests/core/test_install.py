"""The command that installs an extra: from where the package came, and never another package of its name."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import nki
from nki.core import install

CHECKOUT = Path(nki.__file__).parents[2]
WHEEL = "file:///downloads/nki-0.7.0-py3-none-any.whl"


class _Installed:
    requires = (
        "numpy<3,>=2.0",
        "perfetto<1,>=0.59; extra == 'profile'",
        'pyarrow<27,>=22; extra == "profile"',
        "torch<3; extra == 'torch'",
    )

    def __init__(self, direct: str | None) -> None:
        self._direct = direct

    def read_text(self, name: str) -> str | None:
        return self._direct if name == "direct_url.json" else None


@pytest.fixture(autouse=True)
def activated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package lay in site-packages."""
    monkeypatch.setattr(install, "_PACKAGE", tmp_path / "site-packages" / "nki")


def _installed(monkeypatch: pytest.MonkeyPatch, found: Any) -> str:
    def distribution(name: str) -> Any:
        assert name == "nki"
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(metadata, "distribution", distribution)
    return install.install_extra("profile")


def test_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(CHECKOUT)
    assert install.install_extra("profile") == "pip install -e '.[profile]'"
    monkeypatch.chdir(tmp_path)
    assert install.install_extra("torch") == f"pip install -e '{CHECKOUT}[torch]'"


@pytest.mark.usefixtures("elsewhere")
def test_a_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    direct = json.dumps({"archive_info": {}, "url": WHEEL})
    assert _installed(monkeypatch, _Installed(direct)) == f"pip install 'nki[profile] @ {WHEEL}'"


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("direct", [None, "no JSON", "[]", '{"dir_info": {}, "url": "file:///gone"}'])
def test_an_origin_that_is_not_known(monkeypatch: pytest.MonkeyPatch, direct: str | None) -> None:
    """The packages are named; the name of this one would bring another."""
    assert _installed(monkeypatch, _Installed(direct)) == "pip install 'perfetto<1,>=0.59' 'pyarrow<27,>=22'"


def test_an_environment_that_is_not_activated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setattr(sys, "prefix", "/somewhere/.venv")
    monkeypatch.setattr(sys, "executable", str(CHECKOUT / ".venv/bin/python"))
    monkeypatch.chdir(CHECKOUT)
    assert install.install_extra("profile") == ".venv/bin/python -m pip install -e '.[profile]'"


def test_nothing_installs_a_package_of_that_name_from_an_index() -> None:
    """In code, catalogue and documents."""
    places = [
        *(CHECKOUT / "src/nki").rglob("*.py"),
        *(CHECKOUT / "src/nki").rglob("*.toml"),
        *(CHECKOUT / "docs").glob("*.md"),
        CHECKOUT / "README.md",
    ]
    found = [str(p) for p in places if re.search(r"pip install ['\"]?nki\b(?! *@)", p.read_text(encoding="utf-8"))]
    assert found == [str(CHECKOUT / "src/nki/core/install.py")], "only the sentence that says why"
