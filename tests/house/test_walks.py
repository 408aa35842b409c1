"""Which way a call takes: on functions made for it, and on a kernel."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from scripts.figures import walks
from scripts.figures.watched import Watch

LAYERS = {
    "nki": [["tools"], ["driver"], ["passes", "native"], ["core"]],
    "nki.passes": [["pipeline"], ["schedule", "allocate"], ["analysis"]],
}


@pytest.mark.parametrize(
    ("caller", "called", "up"),
    [
        ("nki.driver.call", "nki.core.source", False),
        ("nki.core.source", "nki.driver.call", True),
        ("nki.passes.schedule", "nki.native.run", False),
        ("nki.passes.schedule", "nki.passes.allocate", False),
        ("nki.passes.analysis.liveness", "nki.passes.schedule", True),
        ("nki.passes.pipeline", "nki.passes.analysis.liveness", False),
        ("nki.passes.analysis.liveness", "nki.core.source", False),
        ("nki.unknown", "nki.driver", False),
        ("", "nki.driver", False),
    ],
)
def test_what_goes_up(caller: str, called: str, up: bool) -> None:
    assert walks.goes_up(caller, called, LAYERS) is up


def test_contracts_are_read_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.importlinter.contracts]]\ntype = "layers"\ncontainers = ["nki"]\nlayers = ["(a) | b", "c : (d)"]\n'
        '[[tool.importlinter.contracts]]\ntype = "forbidden"\n'
    )
    assert walks.contracts(tmp_path) == {"nki": [["a", "b"], ["c", "d"]]}


def made(folder: Path, name: str, text: str) -> SimpleNamespace:
    """A module of a package of its own, which the test runs."""
    space: dict[str, object] = {}
    exec(compile(text, str(folder / name), "exec"), space)
    return SimpleNamespace(**space)


def test_files_and_changes(tmp_path: Path) -> None:
    low = made(tmp_path, "low.py", "def two(): pass\ndef one():\n    two()\n")
    high = made(tmp_path, "high.py", "def call(low):\n    low.one()\n    inner()\ndef inner(): pass\n")
    watch = Watch(str(tmp_path))
    with watch.watching():
        high.call(low)
        sorted([2, 1], key=lambda number: -number)  # of another folder
    found = walks._walk(watch.events, {})
    assert (found["files"], found["changes"]) == (2, 2)
    assert found["order"] == ["high.py call", "low.py one"]
    assert watch.events[1] == ["call", "high.py", "call", "low.py", "one"]


def test_a_call_through_another_folder_has_its_caller(tmp_path: Path) -> None:
    own = made(tmp_path, "own.py", "def call(others):\n    others(low)\ndef low(): pass\n")
    watch = Watch(str(tmp_path))
    with watch.watching():
        own.call(lambda function: function())
    assert watch.events[1] == ["call", "own.py", "call", "own.py", "low"]


def test_a_kernel_is_walked() -> None:
    found = walks.walked(walks.SCRIPTS, "kernel")
    first, later = found.values()
    assert list(found) == ["tensor_tensor, the first call", "tensor_tensor, a later call"]
    assert 0 < later["files"] < first["files"] and 0 < later["changes"] < first["changes"]
    assert any(line.endswith(".py call") or "Kernel" in line for line in later["order"])
