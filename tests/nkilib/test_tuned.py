"""Tiles from tables: which entry is taken, and that a compiled kernel depends on the table."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from benchmarks.library.cases import all_cases

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import tuned
from nkilib.catalogue import CATALOGUE
from nkilib.errors import KernelLimit
from tests.support import environment


@pytest.fixture(autouse=True)
def _target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def table(monkeypatch: pytest.MonkeyPatch, *entries: tuple[Mapping[str, int], Mapping[str, int]]) -> None:
    written = [{"sizes": sizes, "tiles": tiles} for sizes, tiles in entries]
    monkeypatch.setattr(tuned, "TABLES", tuned.tables([{"generation": 3, "kernels": {"widened": written}}]))


@nki.jit
def widened(x: Any, tiles: Any = None) -> Any:
    """A tensor with as many columns as its tile is wide."""
    chosen = tuned.choose("widened", {"rows": x.shape[0], "columns": x.shape[1]}, {"width": 4, "depth": 1}, tiles)
    tile = nl.ndarray((x.shape[0], chosen["width"]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=float(chosen["depth"]))
    out = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def width(rows: int, columns: int, **options: Any) -> int:
    return int(widened(np.zeros((rows, columns), np.float32), **options).shape[1])


def test_the_nearest_entry_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert width(8, 8) == 4
    table(
        monkeypatch,
        ({"rows": 8, "columns": 8}, {"width": 8, "depth": 2}),
        ({"rows": 8, "columns": 20}, {"width": 16, "depth": 2}),
        ({"rows": 8, "columns": 32}, {"width": 32, "depth": 2}),
    )
    assert [width(8, columns) for columns in (8, 4, 12, 13, 25, 26, 64)] == [8, 8, 8, 16, 16, 32, 32]
    assert [width(8, columns) for columns in (3, 65)] == [4, 4]
    assert [width(rows, 8) for rows in (3, 4, 16, 17)] == [4, 8, 8, 4]


def test_equally_near_entries_are_taken_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (
        ({"rows": 8, "columns": 4}, {"width": 7, "depth": 1}),
        ({"rows": 8, "columns": 16}, {"width": 9, "depth": 1}),
    )
    table(monkeypatch, first, second)
    assert width(8, 8) == 7
    table(monkeypatch, second, first)
    assert width(8, 8) == 9


def test_entries_of_other_names_and_targets_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    table(
        monkeypatch,
        ({"rows": 8}, {"width": 8, "depth": 1}),
        ({"rows": 8, "columns": 8}, {"width": 8, "height": 1}),
    )
    assert width(8, 8) == 4
    table(monkeypatch, ({"rows": 8, "columns": 8}, {"width": 8, "depth": 1}))
    assert width(8, 8) == 8
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE="trn3"):
        assert widened(np.zeros((8, 8), np.float32)).shape == (8, 4)


def test_an_entry_may_have_some_of_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    table(monkeypatch, ({"rows": 8, "columns": 8}, {"width": 8}))
    found = widened(np.zeros((8, 8), np.float32))
    assert found.shape == (8, 8)
    assert found[0, 0] == 1


def test_what_the_caller_says_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    table(monkeypatch, ({"rows": 8, "columns": 8}, {"width": 8, "depth": 2}))
    assert widened(np.zeros((8, 8), np.float32), tiles={"width": 5})[0, 0] == 2
    assert width(8, 8, tiles={"width": 5}) == 5
    with pytest.raises(KernelLimit, match="name some of width, depth") as caught:
        width(8, 8, tiles={"height": 5})
    assert caught.value.code == "nkilib.argument"


def test_another_table_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory and on disk: a compiled kernel is used again only while the table is the same."""
    x = np.zeros((8, 8), np.float32)
    hashes = []
    for depth in (2, 3, 2):
        table(monkeypatch, ({"rows": 8, "columns": 8}, {"width": 8, "depth": depth}))
        assert widened(x)[0, 0] == depth
        assert nki.jit(widened.func)(x)[0, 0] == depth  # nothing in memory: what is on disk
        assert widened.report is not None
        hashes.append(widened.report.kernel_hash)
    assert hashes[0] == hashes[2] != hashes[1]
    widened(x)
    assert widened.report.compiled == "memory"


def test_written_tables_belong_to_kernels_of_the_catalogue() -> None:
    names = [each.name for each in files("nkilib.tuned").iterdir() if each.name.endswith(".json")]
    assert names
    for entries in tuned.TABLES.values():
        assert set(entries) <= set(CATALOGUE)


def test_written_entries_are_found_by_what_kernels_ask_for() -> None:
    """A size that a kernel asks for since leaves its entries without effect."""
    asked = {case.kernel: case.sizes.keys() for case in all_cases() if case.sizes}
    for entries in tuned.TABLES.values():
        for name, some in entries.items():
            assert {frozenset(sizes) for sizes, _ in some} == {frozenset(asked[name])}, name
