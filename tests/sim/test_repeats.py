"""Scatters that write one row more than once, in both modes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.report import NkiWarning
from tests.support import environment


def scatter(data: Any, rows: Any, size: int = 16, skip: bool = False) -> Any:
    out = nl.ndarray((size, 4), nl.float32, buffer=nl.shared_hbm)
    t = nl.ndarray(data.shape, data.dtype, buffer=nl.sbuf)
    i = nl.ndarray(rows.shape, rows.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=out, src=nl.zeros((size, 4), nl.float32, buffer=nl.sbuf))
    nisa.dma_copy(dst=t, src=data)
    nisa.dma_copy(dst=i, src=rows)
    mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error
    nisa.dma_copy(dst=out.vector_select(0, i), src=t, oob_mode=mode)
    return out


def told(rows: list[int], values: np.ndarray | None = None, **options: Any) -> list[Any]:
    """What a compiled call says, twice; simulate must say the same."""
    data = np.arange(4.0 * len(rows), dtype=np.float32).reshape(-1, 4) if values is None else values
    index = np.array(rows, np.int32).reshape(-1, 1)
    found = []
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE="trn2"):
        compiled = nki.jit(scatter)
        for run in (compiled, compiled, nki.simulate(nki.jit(scatter))):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always", NkiWarning)
                run(data, index, **options)
            found.append([w.message.finding for w in seen if isinstance(w.message, NkiWarning)])
    texts = [[(f.code, f.message) for f in each] for each in found]
    assert texts[0] == texts[1] == texts[2]
    return found[0]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            [3, 5, 3, 7],
            "a scatter of 4 rows to shared_hbm0 writes 1 of them more than once, with different values",
        ),
        ([0, 0, 0, 0], "row 0 by 0, 1, 2, 3"),
        ([1, 1, 2, 2], "writes 2 of them more than once, with different values: row 1 by 0, 1; row 2 by 2, 3"),
        ([15, 15, 2, 2], "row 2 by 2, 3; row 15 by 0, 1"),
    ],
)
def test_rows_that_repeat(rows: list[int], says: str) -> None:
    (finding,) = told(rows)
    assert finding.code == "access.repeated-rows" and says in finding.message
    assert finding.rule and finding.fix and finding.location.frame.file == __file__


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([3, 5, 2, 7], {}),
        ([15, 15, 2, 15], {}),  # padding goes to the last row
        ([3, 99, 99, 7], {"skip": True}),
    ],
)
def test_rows_that_do_not(rows: list[int], options: dict[str, Any]) -> None:
    assert told(rows, **options) == []


def test_equal_values_are_no_conflict() -> None:
    assert told([3, 3, 4, 5], np.ones((4, 4), np.float32)) == []
