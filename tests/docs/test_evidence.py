"""The table of evidence is up to date, and reports what is missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nki.spec.instruction import REGISTRY
from tests.isa.registry import Breaks, Legal

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evidence_table", ROOT / "scripts" / "evidence_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_document_is_what_the_script_writes(script: ModuleType) -> None:
    assert script.DOCUMENT.read_text() == script.markdown(script.table()), "run `make gen`"


def test_no_cell_is_empty(script: ModuleType) -> None:
    rows = script.table()
    assert rows.keys() == REGISTRY.keys()
    assert script.empty(rows) == []
    assert all(
        cell.keys() in ({"absent"}, {"semantics", "rules", "cost"}) for row in rows.values() for cell in row.values()
    )


def test_an_absent_instruction_names_the_feature(script: ModuleType) -> None:
    assert script.table()["rand2"]["trn1"] == {"absent": "not on trn1: needs feature rand2"}


def test_what_is_missing_is_found(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = (Breaks, "tensor_tensor.shapes"), (Legal, "iota")
    left = tuple(
        (file, e)
        for file, e in script.all_examples()
        if (type(e), e.instruction if isinstance(e, Legal) else e.code) not in gone
    )
    monkeypatch.setattr(script, "all_examples", lambda: left)
    monkeypatch.setattr(script, "_uses", dict)
    monkeypatch.setattr(REGISTRY["memset"], "steps", None)
    missing: list[Any] = script.empty(script.table())
    assert {"iota, trn2: no semantics", "memset, trn3: no cost"} < set(missing)
    assert "tensor_tensor, trn1: no example breaks rule shapes" in missing


def test_tests_count_through_the_functions_of_their_file(script: ModuleType) -> None:
    uses = script._uses()
    test = "tests/isa/test_random.py::test_the_same_seed_gives_the_same_numbers_and_another_one_others"
    assert {"set_rng_seed", "rng"} <= uses[test]
    assert "dropout" not in uses[test]
