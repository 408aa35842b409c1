"""How full memories are: each byte counts once, whoever has it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.profiling.facts.counters import series
from nki.profiling.facts.memory_occupancy import _covered
from nki.target.load import load_target
from tests.profiling.support import hbm, profiled, psum, sbuf


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ([(0.0, 4.0, 0, 8), (2.0, 6.0, 0, 8)], [(0.0, 8.0), (6.0, 0.0)]),
        ([(0.0, 4.0, 0, 8), (2.0, 6.0, 4, 20)], [(0.0, 8.0), (2.0, 20.0), (4.0, 16.0), (6.0, 0.0)]),
        ([(0.0, 4.0, 0, 2), (4.0, 6.0, 0, 2), (1.0, 3.0, 2, 4)], [(0.0, 2.0), (1.0, 4.0), (3.0, 2.0), (6.0, 0.0)]),
        ([(0.0, 9.0, 0, 8), (2.0, 2.0, 0, 8), (3.0, 4.0, 16, 16)], [(0.0, 8.0), (9.0, 0.0)]),
    ],
)
def test_bytes_of_several_count_once(held: list[Any], wanted: list[tuple[float, float]]) -> None:
    assert series(_covered(held)) == wanted


def test_bytes_are_those_that_a_search_of_each_instant_finds() -> None:
    rng = np.random.default_rng(5)
    firsts, lows = rng.integers(0, 50, 40), rng.integers(0, 60, 40)
    lasts, highs = firsts + rng.integers(1, 20, 40), lows + rng.integers(1, 30, 40)
    held = [
        tuple(map(float, each[:2])) + tuple(map(int, each[2:])) for each in zip(firsts, lasts, lows, highs, strict=True)
    ]
    found = series(_covered(held))
    for time in range(80):
        there = {byte for first, last, low, high in held if first <= time < last for byte in range(low, high)}
        assert ([0.0] + [value for start, value in found if start <= time])[-1] == len(there)


@nki.jit
def turning(a):
    """Products that fill four banks, read by halves while the next one moves into what is free."""
    tile, out = sbuf((128, 128), nl.bfloat16), hbm((5, 128, 2048))
    nisa.dma_copy(dst=tile, src=a)
    for turn in range(5):
        whole, kept = psum((128, 2048)), sbuf((128, 2048))
        for bank in range(4):
            nisa.nc_matmul(dst=whole[:, bank * 512 : bank * 512 + 128], stationary=tile, moving=tile)
        for half, copy in enumerate((nisa.tensor_copy, nisa.tensor_copy)):
            columns = slice(1024 * half, 1024 * half + 640)
            copy(dst=kept[:, columns], src=whole[:, columns], engine=nisa.engine.vector)
        nisa.dma_copy(dst=out[turn, :, :128], src=kept[:, :128])
    return out


def test_no_memory_is_fuller_than_it_is() -> None:
    profile = profiled(turning, np.zeros((128, 128), ml_dtypes.bfloat16))
    target = load_target("trn2")
    for row in profile["counters"].rows():
        if row["counter"].startswith("psum_bank"):
            assert 0 <= row["value"] <= target.psum.bank_bytes
    assert profile.about.totals[0]["psum_peak_bytes"] <= target.psum.bank_bytes * target.psum.banks
