"""The largest elements of rows, cut or whole, against NumPy: values, and indices that name them once each."""

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
import nki.language as nl
from nkilib.core.topk import (
    RotationalTopkConfig,
    SupportedTopkMethods,
    cleanup_rotational_constants,
    create_rotational_topk_config,
    create_topk_config,
    prepare_rotational_constants,
    rotational_topk,
    topk,
)
from nkilib.core.topk.rotational_topk_reference import rotational_topk_reference, topk_reference
from nkilib.core.topk.topk_plan import TopkPlan, planned
from nkilib.core.utils.logging import Logger, LogLevel
from nkilib.errors import KernelLimit


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check(made: tuple[Any, Any], x: Any, k: int, ordered: bool = True) -> None:
    values, indices = made
    wanted, _ = topk_reference(x, k)
    assert values.dtype == x.dtype and indices.dtype == np.uint32 and values.shape == (*x.shape[:-1], k)
    assert np.array_equal(np.take_along_axis(x, indices.astype(int), -1), values)
    assert all(len(set(row)) == k for row in indices.reshape(-1, k).tolist())
    found = values.astype(np.float64) if ordered else -np.sort(-values.astype(np.float64), -1)
    assert np.array_equal(found, wanted.astype(np.float64))


def run(x: Any, k: int, plan: TopkPlan, ordered: bool = True, cores: int = 1) -> tuple[Any, Any]:
    asked = create_topk_config(x.shape, nl.float32, k, ordered, cores)
    return nki.simulate(rotational_topk)[cores](x, RotationalTopkConfig(x.shape, asked, plan))


@settings(max_examples=8, deadline=None)
@given(
    some.sampled_from([1, 2, 7, 129]),
    some.sampled_from([1, 5, 127, 129, 513]),
    some.integers(1, 40),
    some.booleans(),
    some.booleans(),
    some.sampled_from([1, 2]),
)
def test_any_rows(rows: int, columns: int, k: int, short: bool, ordered: bool, cores: int) -> None:
    x, k = normal(rows, columns, dtype=bfloat16 if short else np.float32), min(k, columns)
    check(nki.simulate(topk)[cores](x, k, ordered), x, k, ordered)


@settings(max_examples=6, deadline=None)
@given(
    some.integers(2, 9), some.integers(1, 5), some.sampled_from([40, 100, 333]), some.integers(9, 40), some.booleans()
)
def test_rows_in_any_number_of_segments(segments: int, rows: int, columns: int, k: int, ordered: bool) -> None:
    length = -(-columns // segments)
    segments = -(-columns // length)
    plan = TopkPlan(segments, max(8, length), 8 * -(-k // segments // 8) or 8)
    if plan.segments * plan.share < k or plan.length * (plan.segments - 1) >= columns:
        return
    x = normal(rows, columns)
    x[0] = np.sort(x[0])[::-1]  # all large ones are in the first segments
    check(run(x, k, plan, ordered), x, k, ordered)


def test_the_worst_row_needs_every_stage() -> None:
    x = normal(2, 400)
    x[:, :32] += 100  # the first segment has all of the largest
    check(run(x, 32, TopkPlan(4, 100, 8)), x, 32)
    values, _ = run(x, 32, TopkPlan(3, 134, 8))  # which gives too few: 24 of the 32
    assert (values > 50).sum() == 2 * 24


def test_equal_masked_and_extreme_elements() -> None:
    x = np.round(2 * normal(3, 300))
    check(topk(x, 100), x, 100)
    x[:, 20:] = -np.inf
    x[:, 0] = np.inf
    for whole in (SupportedTopkMethods.SCANNING, SupportedTopkMethods.ROTATIONAL):
        check(topk(x, 64, method=whole), x, 64)
    check(topk(x.astype(bfloat16), 64), x.astype(bfloat16), 64)


def test_a_plan_has_the_least_cycles_that_fit() -> None:
    assert planned(128, 3168, 256) == TopkPlan(1, 3168, 256)
    assert planned(1, 25600, 256) == TopkPlan(32, 800, 8)
    assert planned(1, 200_000, 2048, whole=True) is None


def test_the_call_of_the_config() -> None:
    x = normal(5, 600)
    config = create_rotational_topk_config((5, 600), create_topk_config((5, 1, 600), nl.float32, 20))
    for made, wanted in zip(rotational_topk[2](x, config), rotational_topk_reference(x, config), strict=True):
        assert np.array_equal(made, wanted)


def test_a_config_says_what_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = create_topk_config((5, 2, 600), nl.float32, 20)
    assert (asked.BxS, asked.vocab_size, asked.out_shape) == (10, 600, (5, 2, 20))
    config = create_rotational_topk_config((asked.BxS, asked.vocab_size), asked)
    assert prepare_rotational_constants(config) is config
    config.log_strategy()
    assert not capsys.readouterr().out
    monkeypatch.setattr(sys.modules[RotationalTopkConfig.__module__], "_LOGGER", Logger("topk", LogLevel.INFO))
    config.log_strategy()
    assert "20 of 600, 10 rows on 2 cores: whole" in capsys.readouterr().out
    cleanup_rotational_constants()


def test_torch_and_jax() -> None:
    x = normal(2, 3, 70)
    wanted = torch.topk(torch.from_numpy(x), 9)
    values, indices = topk(torch.from_numpy(x), 9)
    assert torch.equal(values, wanted.values) and np.array_equal(indices.numpy(), wanted.indices.numpy())
    assert np.array_equal(np.asarray(topk(jnp.asarray(x), 9)[0]), values.numpy())


@pytest.mark.parametrize(
    ("code", "words", "x", "k", "options"),
    [
        ("nkilib.shape", "k is 0", normal(2, 9), 0, {}),
        ("nkilib.shape", "k is 10", normal(2, 9), 10, {}),
        ("nkilib.argument", "inp_shape is [9]", normal(9), 2, {}),
        ("nkilib.dtype", "inp is int32", np.ones((2, 9), np.int32), 2, {}),
        ("nkilib.not-built", "method", normal(2, 9), 2, {"method": SupportedTopkMethods.CASCADED}),
        ("nkilib.shape", "k is 4, a row has 20000", normal(1, 20000), 4, {"method": SupportedTopkMethods.SCANNING}),
    ],
)
def test_what_is_refused(code: str, words: str, x: Any, k: int, options: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit) as caught:
        topk(x, k, **options)
    assert caught.value.code == code and words in caught.value.message


def test_a_config_of_another_shape_is_refused() -> None:
    config = create_rotational_topk_config((5, 60), create_topk_config((5, 60), nl.float32, 20))
    with pytest.raises(KernelLimit, match="dimension 0 of inp is 4, not 5"):
        rotational_topk(normal(4, 60), config)
    with pytest.raises(KernelLimit, match=r"inp_shape is \[6, 60\]"):
        create_rotational_topk_config((6, 60), create_topk_config((5, 60), nl.float32, 20))
