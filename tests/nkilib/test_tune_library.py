"""`scripts/tune_library.py`: the winner of a case becomes an entry that kernels choose."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.library.case import Case
from scripts import tune_library

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import tuned

RULE = {"columns": 64}


@nki.jit
def doubled(x: Any, tiles: Any = None) -> Any:
    """``2 * x``, in pieces of columns; 512 columns are too many for its scratch tensor."""
    columns = tuned.choose("doubled", {"columns": x.shape[1]}, RULE, tiles)["columns"]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray((128, 256), dtype=x.dtype, buffer=nl.sbuf)
    for start in range(0, x.shape[1], columns):
        tile = scratch[:, :columns]
        nisa.dma_copy(dst=tile, src=x[:, start : start + columns])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[:, start : start + columns], src=tile)
    return out


CASE = Case(
    "doubled",
    "1024 columns",
    lambda make: {"x": make((128, 1024), nl.float32)},
    0,
    2**20,
    tiles=(RULE, {"columns": 256}, {"columns": 512}),
    sizes={"columns": 1024},
)


@pytest.fixture(autouse=True)
def _kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_library, "kernel", lambda name: doubled)


def test_a_winner_becomes_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tune_library.tuned(CASE)
    assert found.tiles == {"columns": 256}
    assert list(found.refused) == ["tiles={'columns': 512}"]
    winner = tune_library.winner_of([found])
    assert winner.gain > 1.5
    tune_library.written(CASE, winner, tmp_path)
    table = json.loads((tmp_path / "trn2.json").read_text())
    (entry,) = table["kernels"]["doubled"]
    assert entry["cases"][CASE.key]["ns"] < entry["cases"][CASE.key]["own_ns"]
    assert len(entry["model"]) == 16
    monkeypatch.setattr(tuned, "TABLES", tuned.tables([table]))
    assert nki.predict(doubled, target="trn2")(**CASE.shapes()).ns == found.ns
    again = tune_library.tuned(CASE)
    assert again.own_ns == again.ns == found.ns


def test_the_rule_of_the_kernel_stays_where_nothing_is_faster() -> None:
    found = tune_library.tuned(replace(CASE, tiles=(RULE, {"columns": 32})))
    assert found.tiles in (None, RULE)
    assert tune_library.winner_of([found]).gain == 1.0


def test_cases_of_the_same_sizes_share_the_winner_that_is_best_for_all() -> None:
    first = tune_library.tuned(CASE)
    other = replace(CASE, name="2 cores", lnc=2, tiles=(RULE, {"columns": 128}))
    winner = tune_library.winner_of([first, tune_library.tuned(other)])
    assert winner.tiles == {"columns": 256}  # for the other one it is faster too, which it did not try
    assert set(winner.times) == {CASE.key, other.key}
    assert all(ns < own for ns, own in winner.times.values())


def test_an_entry_takes_the_place_of_one_for_the_same_sizes(tmp_path: Path) -> None:
    for columns, size in ((8, 2048), (16, 1024), (32, 2048)):
        case = replace(CASE, sizes={"columns": size})
        tune_library.written(case, tune_library.Winner({"columns": columns}, {"": (1.0, 2.0)}), tmp_path)
    entries = json.loads((tmp_path / "trn2.json").read_text())["kernels"]["doubled"]
    assert [(entry["sizes"]["columns"], entry["tiles"]["columns"]) for entry in entries] == [(1024, 16), (2048, 32)]
    assert [each.name for each in tmp_path.iterdir()] == ["trn2.json"]
