"""Advice that is followed literally: what it promises is a bound, and in the end a kernel is twice as fast."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import nki
from tests.profiling.ladders import Ladder
from tests.profiling.ladders.attention import ATTENTION
from tests.profiling.ladders.layer_norm import LAYER_NORM
from tests.profiling.ladders.matmul_gelu import MATMUL_GELU
from tests.profiling.support import advice, profiled

LADDERS = {"matmul and gelu": MATMUL_GELU, "attention": ATTENTION, "layer norm": LAYER_NORM}


@pytest.mark.parametrize(
    "name,size",
    [
        pytest.param("matmul and gelu", MATMUL_GELU.size, marks=pytest.mark.slow),
        ("attention", ATTENTION.size),
        ("layer norm", LAYER_NORM.size),
    ],
)
def test_each_promise_is_a_bound_and_the_last_version_is_twice_as_fast(name: str, size: int) -> None:
    ladder = LADDERS[name]
    arguments = ladder.arguments(size)
    profiles = [profiled(rung.kernel, *arguments) for rung in ladder.rungs]
    for before, (rung, after) in itertools.pairwise(zip(ladder.rungs, profiles, strict=True)):
        promised = advice(before[1], rung.advice)
        got = before[1].makespan_ns - after.makespan_ns
        assert 0.0 < got <= promised["saving_ns"], rung
        assert promised["expected_ns"] <= promised["saving_ns"]
    assert 2.0 * profiles[-1].makespan_ns <= profiles[0].makespan_ns


@pytest.mark.parametrize("name,rung", [(name, at) for name, each in LADDERS.items() for at in range(len(each.rungs))])
def test_every_version_computes_the_same(name: str, rung: int) -> None:
    ladder: Ladder = LADDERS[name]
    arguments = ladder.arguments(ladder.small)
    found = np.asarray(nki.jit(ladder.rungs[rung].kernel)(*arguments), dtype=np.float64)
    expected = ladder.reference(*arguments)
    assert np.abs(found - expected).max() <= ladder.tolerance * np.abs(expected).max()
