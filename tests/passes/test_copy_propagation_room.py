"""Rows stay in PSUM as long as two banks are left to others."""

from __future__ import annotations

import random
from typing import Any

import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.tensor import MemoryRegion
from nki.language.memory import copied_tile
from nki.passes import copy_propagation
from nki.passes.allocation import addresses
from nki.passes.analysis.liveness import liveness
from nki.passes.context import Context
from nki.spec.program import Issued, Program
from nki.target.load import load_target
from tests.passes.broadcasts import (
    COLUMNS,
    COPY,
    ROW,
    ROWS,
    Use,
    X,
    all_at_once,
    around,
    counted,
    product,
    times,
    wide,
)
from tests.passes.kernels import passed, results


def pressed(others: int) -> Use:
    """Products that are in PSUM from before the broadcast until after its reader."""

    def use(x: Any, row: Any, out: Any) -> None:
        held = [product(row) for _ in range(others)]
        times(x, wide(row))
        for one in held:
            times(x, one)

    return use


@pytest.mark.parametrize(("others", "copies"), [(4, 0), (5, 0), (6, 1), (7, 1)])
def test_two_banks_are_left(others: int, copies: int) -> None:
    before, after = passed(around(pressed(others)), [X, ROW], copy_propagation.PASS)
    assert counted(after)[COPY] == copies
    assert results(before, [X, ROW]) == results(after, [X, ROW])


def _read_twice(x: Any, row: Any, out: Any) -> None:
    """Once before six products come, and once among them."""
    tile = wide(row)
    times(x, tile)
    held = [product(row) for _ in range(6)]
    times(x, tile)
    for one in held:
        times(x, one)


def test_the_last_reader_counts() -> None:
    before, after = passed(around(_read_twice), [X, ROW], copy_propagation.PASS)
    assert after is before


def _needed_anyway(x: Any, row: Any, out: Any) -> None:
    """A source that outlives its tile; behind them the most that is allowed."""
    found, tile = product(row), copied_tile((ROWS, COLUMNS), nl.float32)
    nisa.activation(dst=tile, op=nl.copy, data=found)
    times(x, tile)
    times(x, found)
    pressed(5)(x, row, out)


def test_a_source_that_lives_anyway_adds_nothing() -> None:
    before, after = passed(around(_needed_anyway), [X, ROW], copy_propagation.PASS)
    assert (counted(before)[COPY], counted(after)[COPY]) == (2, 0)
    assert results(before, [X, ROW]) == results(after, [X, ROW])


def test_the_last_to_end_give_way() -> None:
    """When the seventh product comes, six rows are held: the sixth goes to SBUF, and then the seventh."""
    before, after = passed(around(all_at_once), [X, ROW], copy_propagation.PASS)
    readers = [issued for issued in after.body.walk() if issued.instruction.name == "tensor_tensor"]
    regions = [str(issued.arguments.data2.region) for issued in readers]
    assert regions == ["psum"] * 5 + ["sbuf"] * 2 + ["psum"]
    assert results(before, [X, ROW]) == results(after, [X, ROW])


def _scattered(seed: int) -> Use:
    """Rows and products that are read at random later times, with as many banks as there are at most."""
    chance = random.Random(seed)

    def use(x: Any, row: Any, out: Any) -> None:
        rows, held = [], []
        for _ in range(60):
            kind = chance.random()
            if kind < 0.4:
                rows.append(wide(row))
            elif kind < 0.55 and len(held) < 7:
                held.append(product(row))
            elif kind < 0.8 and rows:
                times(x, rows.pop(chance.randrange(len(rows))))
            elif held:
                times(x, held.pop(chance.randrange(len(held))))
        for one in (*held, *rows):
            times(x, one)

    return use


def _banks(program: Program) -> list[tuple[Issued, int]]:
    """How many tensors of PSUM are live at each instruction."""
    live = [each for each in liveness(program).buffers if each.buffer.region is MemoryRegion.psum]
    return [
        (issued, sum(each.first <= at <= each.last for each in live)) for at, issued in enumerate(program.body.walk())
    ]


@pytest.mark.parametrize("seed", range(8))
def test_more_than_six_banks_only_where_there_were(seed: int) -> None:
    before, after = passed(around(_scattered(seed)), [X, ROW], copy_propagation.PASS)
    assert counted(before)[COPY] > counted(after)[COPY]
    kept = [pair for pair in _banks(before) if pair[0].instruction.name != COPY or _stays(pair[0], after)]
    for (_, old), (_, new) in zip(kept, _banks(after), strict=True):
        assert new == old or new <= 6
    context = Context(load_target("trn2"))
    assert results(addresses.PASS.run(after, context), [X, ROW]) == results(before, [X, ROW])


def _stays(copy: Issued, program: Program) -> bool:
    return any(copy.arguments.dst.buffer is buffer for buffer in program.body.all_buffers())
