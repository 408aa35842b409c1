"""What decides the form of an instruction, and that a fault in making one is not taken for a reason."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.native.records import forms
from tests.support import environment


def filled(a: Any, *, values: tuple[float, ...]) -> Any:
    """A row of the result for each value."""
    out = nl.ndarray((len(values), 8), dtype=nl.float32, buffer=nl.shared_hbm)
    for row, value in enumerate(values):
        tile = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(tile, value)
        nisa.dma_copy(out[row : row + 1], tile)
    return out


def test_numbers_that_are_equal_or_not_even_that_have_forms_of_their_own() -> None:
    values = (0.0, -0.0, math.nan, -math.nan, 1.0, math.inf)
    with environment(NKI_NATIVE="always"):
        kernel = nki.jit(filled)
        bits = kernel(np.zeros((1, 1), np.float32), values=values).view(np.uint32)[:, 0]
    assert kernel.report.executed.native
    assert bits.tolist() == [0, 1 << 31, 0x7FC00000, 0xFFC00000, 0x3F800000, 0x7F800000]


def test_a_fault_is_not_a_reason_for_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise TypeError("a fault of the tracer")

    monkeypatch.setattr(forms, "_FORMS", {})
    monkeypatch.setattr(forms, "trace", broken)
    monkeypatch.setattr(forms, "moves", broken)
    with environment(NKI_NATIVE="always"), pytest.raises(TypeError, match="a fault of the tracer"):
        nki.jit(filled)(np.zeros((1, 1), np.float32), values=(2.0,))
