"""Rows that indices choose: gathered, and added to, with indices that repeat."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.misc import gather, scatter_add
from nkilib.experimental.misc.gather_reference import gather_reference
from nkilib.experimental.misc.scatter_add_reference import scatter_add_reference

ODD = some.sampled_from([1, 2, 127, 129, 300])


def call(rows: int = 7, columns: int = 5, indices: int = 9, dtype: Any = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(rows + columns + indices)
    return {
        "input": rng.standard_normal((rows, columns)).astype(dtype),
        "dim": 0,
        "index": rng.integers(0, rows, indices).astype(np.int32),
        "src": rng.integers(-8, 8, (indices, columns)).astype(dtype),
    }


def gathered(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("input", "dim", "index")}


@settings(max_examples=5, deadline=None)
@given(
    ODD, some.sampled_from([1, 100, 513]), ODD, some.sampled_from([np.float32, bfloat16, np.int8]), some.integers(1, 2)
)
def test_any_rows_are_gathered(rows: int, columns: int, indices: int, dtype: Any, cores: int) -> None:
    given = gathered(call(rows, columns, indices, dtype))
    assert np.array_equal(nki.simulate(gather)[cores](**given), gather_reference(**given))


@settings(max_examples=5, deadline=None)
@given(some.sampled_from([1, 3, 129]), some.sampled_from([1, 100, 5000]), ODD, some.integers(1, 2))
def test_rows_that_repeat_are_all_added(rows: int, columns: int, indices: int, cores: int) -> None:
    given = call(rows, columns, indices)
    given["input"] = np.round(given["input"] * 4)  # sums of small integers are exact
    wanted = scatter_add_reference(**given)
    made = nki.simulate(scatter_add)[cores](**given)
    assert np.array_equal(made, wanted) and np.array_equal(given["input"], wanted)


def test_sums_of_16_bits_round_once_for_each_128_rows() -> None:
    given = call(4, 40, 400, bfloat16)
    wanted = scatter_add_reference(**given)
    made = scatter_add(**given).astype(np.float64)
    assert np.abs(made - wanted).max() <= 4 * 2.0**-9 * np.abs(wanted).max()


def test_torch_and_jax() -> None:
    given = call(200, 30, 150)
    arrays = given["input"], given["index"], given["src"]
    x, index, src = map(torch.from_numpy, (each.copy() for each in arrays))
    assert torch.equal(gather(x, 0, index), x[index.long()])
    assert np.array_equal(np.asarray(gather(jnp.asarray(arrays[0]), 0, jnp.asarray(arrays[1]))), arrays[0][arrays[1]])
    wanted = x.clone().scatter_add(0, index.long()[:, None].expand_as(src), src)
    made = scatter_add(x, 0, index, src)
    assert torch.allclose(made, wanted, atol=1e-5) and torch.allclose(x, wanted, atol=1e-5)
    other = scatter_add(jnp.asarray(arrays[0]), 0, *map(jnp.asarray, arrays[1:]))
    assert np.allclose(np.asarray(other), wanted, atol=1e-5)


def test_an_index_outside_is_an_error() -> None:
    given = gathered(call())
    given["index"][3] = 7
    with pytest.raises(nki.errors.NkiError, match="7"):
        nki.simulate(gather)(**given)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.shape", "input has 1 dimensions", {"input": np.ones(7, np.float32)}),
        ("nkilib.shape", "index has 2 dimensions", {"index": np.ones((9, 1), np.int32)}),
        ("nkilib.shape", "dimension 0 of src is 8, not K=9", {"src": np.ones((8, 5), np.float32)}),
        ("nkilib.dtype", "index is float32", {"index": np.ones(9, np.float32)}),
        ("nkilib.dtype", "src is bfloat16", {"src": np.ones((9, 5), bfloat16)}),
        ("nkilib.dtype", "input is int32", {"input": np.ones((7, 5), np.int32), "src": np.ones((9, 5), np.int32)}),
        ("nkilib.option", "dim is 1", {"dim": 1}),
    ],
)
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    given = call() | change
    for kernel in (scatter_add, gather) if "src" not in change else (scatter_add,):
        with pytest.raises(KernelLimit) as caught:
            kernel(**(given if kernel is scatter_add else gathered(given)))
        assert caught.value.code == code and words in caught.value.message


def test_more_rows_than_float32_counts_are_refused() -> None:
    shapes = {name: nki.ShapeDtype(v.shape, v.dtype) if hasattr(v, "shape") else v for name, v in call().items()}
    with pytest.raises(KernelLimit, match="N is 16777217"):
        nki.predict(scatter_add)(**shapes | {"input": nki.ShapeDtype(((1 << 24) + 1, 5), "float32")})


def test_trainium1_has_no_dma_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(KernelLimit, match="the target has NeuronCore-v2"):
        gather(**gathered(call()))
