"""Random programs of index expressions and masks in both modes, against NumPy (`tests.beta1.fuzz`)."""

from __future__ import annotations

import pytest

from tests.beta1 import fuzz

FEW, ALL = 20, 5000
GROUP = 250


@pytest.mark.parametrize("start", range(0, FEW, 10))
def test_random_programs(start):
    assert [found for seed in range(start, start + 10) for found in fuzz.differences(seed)] == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(FEW, ALL, GROUP))
def test_more_random_programs(start):
    seeds = range(start, min(start + GROUP, ALL))
    assert [found for seed in seeds for found in fuzz.differences(seed)] == []
