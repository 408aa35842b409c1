"""A warning has the file and the line of the call that led to it, and not one of the package."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.report import NkiWarning


@nki.jit
def half(a: Any) -> Any:
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[0:2], src=nl.load(a[0:2]))
    return out


A = np.ones((4, 8), np.float32)
CALLS: dict[str, Callable[[], Any]] = {
    "compiled": lambda: half(A),
    "two cores": lambda: half[2](A),
    "eager": lambda: nki.simulate(half)(A),
    "unpacked": lambda: half(*[A], **{}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_warning_is_at_the_call(name: str) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        CALLS[name]()
    lines = Path(__file__).read_text().splitlines()
    mine = [each for each in found if each.category is NkiWarning]
    assert mine
    for each in mine:
        assert each.filename == __file__
        assert f'"{name}": lambda' in lines[each.lineno - 1]


def test_a_warning_is_told_once_for_each_line() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            half(A)
        half(A)
    assert len({each.lineno for each in found}) == len(found) == 2
