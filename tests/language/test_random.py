"""rand and random_seed: range, distribution, dtypes, and that a seed repeats the sequence."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.language as nl
from tests.language.support import BFLOAT16, TARGETS, on_tiles, same, wide
from tests.support import both

NOTHING = np.zeros((1, 1), np.float32)
DTYPES = [nl.float32, nl.bfloat16, nl.float16, nl.tfloat32, nl.float8_e4m3, nl.float8_e5m2]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_uniform_from_zero_to_below_one(dtype: Any, target: str) -> None:
    got = wide(on_tiles(lambda _: nl.rand((128, 600), dtype), NOTHING, target=target))
    assert 0 <= got.min() < 0.01 and got.max() < 1
    coarse = 2.0 ** -(11 if dtype == nl.tfloat32 else ml_dtypes.finfo(dtype.numpy).nmant + 1)
    # Low precision rounds down before trn3 and to nearest from there on.
    assert abs(got.mean() - 0.5) < 0.005 + coarse / 2
    assert got.max() >= 1 - 2 * coarse - 1e-3


def test_values_fill_the_interval_evenly() -> None:
    got = on_tiles(lambda _: nl.rand((128, 800), nl.float32), NOTHING)
    counts, _ = np.histogram(got, bins=64, range=(0, 1))
    expected = got.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 110  # chi square, 63 degrees of freedom, p about 0.0003
    assert len(np.unique(got)) > 0.99 * got.size


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("region", ["sbuf", "psum", "hbm", "shared_hbm"])
def test_regions(region: str, target: str) -> None:
    def kernel(_: Any) -> Any:
        tensor = nl.rand((16, 24), nl.float32, getattr(nl, region), "numbers")
        assert tensor.buffer is getattr(nl, region) and tensor.name == "numbers"
        out = nl.ndarray(tensor.shape, tensor.dtype, buffer=nl.shared_hbm)
        nl.store(out, tensor if nl.is_on_chip(tensor.buffer) else nl.load(tensor))
        return out

    got = both(kernel, NOTHING, target=target)
    assert got.std() > 0.2


@pytest.mark.parametrize("target", TARGETS)
def test_seed_repeats_the_sequence(target: str) -> None:
    def function(_: Any) -> Any:
        seed, other = nl.full((1, 1), 42, nl.int32), nl.full((1, 1), 43, nl.uint32)
        nl.random_seed(seed)
        first = nl.rand((32, 20), nl.float32)
        further = nl.rand((32, 20), nl.float32)
        nl.random_seed(seed)
        again = nl.rand((32, 20), nl.float32)
        nl.random_seed(other)
        return first, further, again, nl.rand((32, 20), nl.float32)

    first, further, again, different = on_tiles(function, NOTHING, target=target)
    same(first, again)
    for others in (further, different):
        assert not np.array_equal(first, others)


def test_bfloat16_is_a_dtype_of_results() -> None:
    assert on_tiles(lambda _: nl.rand((4, 4), nl.bfloat16), NOTHING).dtype == BFLOAT16
