"""The layers in ARCHITECTURE.md are those of the contract, and every folder has one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "nki"


def contracts() -> list[dict[str, Any]]:
    """The contracts of import-linter."""
    found: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    return found


def levels() -> dict[str, int]:
    """The number of the line of the contract that has a module."""
    lines = next(each["layers"] for each in contracts() if each["id"] == "layers")
    return {name: number for number, line in enumerate(lines) for name in re.findall(r"\w+", line)}


def rows(text: str) -> list[list[str]]:
    """The modules of each row of the table of layers, from its first column."""
    table = text[text.index("| layer |") :].split("\n\n")[0]
    return [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:]]


def out_of_order(found: list[list[str]], level: dict[str, int]) -> list[str]:
    """Modules of the table that the contract has higher than a row above them, and names that it has not."""
    wrong, above = [], -1
    for row in found:
        wrong += [name for name in row if level.get(name, -1) < above]
        above = max([above, *(level.get(name, -1) for name in row)])
    return wrong


def test_the_table_has_the_order_of_the_contract() -> None:
    assert out_of_order(rows((ROOT / "ARCHITECTURE.md").read_text()), levels()) == []


def test_the_table_has_every_module_once() -> None:
    named = [name for row in rows((ROOT / "ARCHITECTURE.md").read_text()) for name in row]
    assert sorted(named) == sorted(levels())


def test_two_rows_in_the_wrong_order_are_found() -> None:
    table = "| layer | what |\n|---|---|\n| `low` | x |\n| `high`, `none` | y |\n\n"
    assert out_of_order(rows(table), {"high": 0, "low": 1}) == ["high", "none"]


@pytest.mark.parametrize(
    "folder",
    sorted(str(init.parent.relative_to(PACKAGE)) for init in PACKAGE.rglob("*/__init__.py") if init.parent != PACKAGE),
)
def test_every_folder_has_a_contract(folder: str) -> None:
    """A line of the layers of what it is in, or a contract of its own that forbids."""
    module = ".".join(["nki", *Path(folder).parts])
    layered = {container for each in contracts() for container in each.get("containers", ())}
    forbidding = {source for each in contracts() for source in each.get("source_modules", ())}
    assert module.rpartition(".")[0] in layered or module in forbidding
