"""The published library takes the place of this one where it is installed, unless the switch says otherwise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nkilib import _published

CODE = """
import nkilib
from nkilib.core.thing import kernel
import nkilib.core.thing as thing, nkilib_src.nkilib.core.thing as theirs
assert thing is theirs, (thing, theirs)
print(nkilib.__name__, thing.__spec__.name, kernel())
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a package of the published library's name."""
    core = tmp_path / "nkilib_src" / "nkilib" / "core"
    core.mkdir(parents=True)
    for folder in (core, core.parent, core.parent.parent):
        (folder / "__init__.py").write_text("")
    (core / "thing.py").write_text("def kernel():\n    return 'published'\n")
    return tmp_path


def told(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(Path(_published.__file__).parents[1])])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_yields(installed: Path) -> None:
    done = told(installed, CODE)
    assert done.stdout.split() == ["nkilib_src.nkilib", "nkilib_src.nkilib.core.thing", "published"], done.stderr


def test_its_patterns_stand_back(installed: Path) -> None:
    """Models are compiled as if there were none, since the kernels that they call are not there."""
    code = """
import importlib.metadata as metadata
from nki.graph.patterns.registry import installed, installed_names
names = {name for name in installed_names() if name in ("mlp", "norm_rms")}
assert names and all(installed(name) is None for name in names), names
import nkilib
assert nkilib.__name__ == "nkilib_src.nkilib"
"""
    done = told(installed, code)
    assert done.returncode == 0, done.stderr
    there = code.replace("is None", "is not None").split("import nkilib")[0]
    kept = told(installed, there, NKILIB_FORCE_BUNDLED_LIBRARY="1")
    assert kept.returncode == 0, kept.stderr


def test_the_switch_keeps_this_one(installed: Path) -> None:
    code = "import nkilib, nkilib.streaming; print(nkilib.__name__)"
    done = told(installed, code, NKILIB_FORCE_BUNDLED_LIBRARY="1")
    assert done.stdout.strip() == "nkilib", done.stderr


def test_how_the_switch_is_spelt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_published, "PUBLISHED", "json.decoder")  # which is installed
    for value, wanted in {"1": False, "true": False, "YES": False, " on ": False, "0": True, "": True}.items():
        monkeypatch.setenv(_published.SWITCH, value)
        assert _published._wanted() is wanted, value


def test_other_values_do_not(installed: Path) -> None:
    done = told(installed, CODE, NKILIB_FORCE_BUNDLED_LIBRARY="0")
    assert done.stdout.split()[0] == "nkilib_src.nkilib", done.stderr


def test_nothing_happens_where_it_is_not_installed(tmp_path: Path) -> None:
    done = told(tmp_path, "import nkilib.streaming as st; print(st.__name__)")
    assert done.stdout.strip() == "nkilib.streaming", done.stderr
