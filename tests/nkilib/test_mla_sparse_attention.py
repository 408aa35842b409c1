"""Sparse attention over latents against the rows one by one, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.mla.deepseek import mla_sparse_attention_cte_kernel
from nkilib.experimental.mla.deepseek.mla_sparse_attention_cte_reference import (
    mla_sparse_attention_cte_kernel_reference,
)

RNG = np.random.default_rng(35)


def call(queries: int, heads: int, keys: int, cached: int, rotated: int = 64) -> dict[str, Any]:
    def normal(*shape: int) -> Any:
        return RNG.standard_normal(shape).astype(bfloat16)

    return {
        "q_lift_hbm": normal(1, queries, heads, 512),
        "q_pe_hbm": normal(1, queries, heads, rotated),
        "c_kv_hbm": normal(1, cached, 512),
        "k_pe_hbm": normal(1, cached, rotated),
        "topk_indices_hbm": RNG.integers(0, cached, (1, queries, keys)).astype(np.int32),
        "softmax_scale": 1 / 24,
    }


def close(made: Any, arguments: dict[str, Any]) -> None:
    wanted = mla_sparse_attention_cte_kernel_reference(**arguments)
    assert made.shape == wanted.shape
    assert np.abs(np.asarray(made).astype(np.float64) - wanted).max() <= 2e-2 * wanted.std()  # bfloat16 has 8 bits


@settings(max_examples=4, deadline=None)
@given(
    queries=st.sampled_from([1, 3, 5]),
    heads=st.sampled_from([1, 16, 127, 128]),
    keys=st.sampled_from([128, 384, 640]),
    cached=st.sampled_from([1, 129, 513]),
    rotated=st.sampled_from([1, 64, 127]),
    cores=st.sampled_from([1, 2]),
)
def test_any_size(queries: int, heads: int, keys: int, cached: int, rotated: int, cores: int) -> None:
    arguments = call(queries, heads, keys, cached, rotated)
    close(nki.simulate(mla_sparse_attention_cte_kernel)[cores](**arguments), arguments)


def test_more_queries_than_lie_beside_each_other() -> None:
    arguments = call(130, 1, 128, 40, 2)
    close(nki.simulate(mla_sparse_attention_cte_kernel)(**arguments), arguments)


def test_tiled_indices_are_those_of_the_queries_in_order() -> None:
    arguments = call(3, 4, 256, 300)
    flat = mla_sparse_attention_cte_kernel(**arguments)
    tiled = np.zeros((1, 16, 128, 16), np.int32)
    for query in range(3):
        tiled[0, query // 8, 16 * (query % 8) : 16 * (query % 8) + 16] = arguments["topk_indices_hbm"][
            0, query
        ].reshape(16, 16)
    arguments |= {"topk_indices_hbm": tiled, "topk_tiled": True}
    assert np.array_equal(mla_sparse_attention_cte_kernel(**arguments), flat)
    close(flat, arguments)


def test_scores_far_from_zero() -> None:
    arguments = call(1, 4, 128, 64) | {"softmax_scale": 20.0}
    made = np.asarray(mla_sparse_attention_cte_kernel(**arguments)).astype(np.float64)
    wanted = mla_sparse_attention_cte_kernel_reference(**arguments)
    assert np.isfinite(made).all()
    assert np.abs(made - wanted).max() <= 2e-2 * np.abs(wanted).max()


def test_frameworks() -> None:
    arguments = call(2, 16, 128, 200)
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    wanted = np.asarray(mla_sparse_attention_cte_kernel(**arguments)).astype(np.float32)
    tensors = {
        name: torch.from_numpy(value.astype(np.float32)).bfloat16()
        if value.dtype == bfloat16
        else torch.from_numpy(value)
        for name, value in arrays.items()
    }
    made = mla_sparse_attention_cte_kernel(**tensors, softmax_scale=1 / 24)
    assert np.array_equal(made.float().numpy(), wanted)
    traced = jax.jit(lambda each: mla_sparse_attention_cte_kernel(**each, softmax_scale=1 / 24))
    assert np.array_equal(traced(jax.tree.map(jnp.asarray, arrays)).astype(np.float32), wanted)


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        (
            {"q_lift_hbm": np.zeros((1, 2, 4, 256), bfloat16)},
            "nkilib.shape",
            "dimension 3 of q_lift_hbm is 256",
        ),
        ({"q_lift_hbm": np.zeros((2, 2, 4, 512), bfloat16)}, "nkilib.shape", "dimension 0 of q_lift_hbm is 2, not 1"),
        ({"k_pe_hbm": np.zeros((1, 9, 64), bfloat16)}, "nkilib.shape", "dimension 1 of k_pe_hbm is 9, not S_kv=50"),
        ({"topk_indices_hbm": np.zeros((1, 2, 100), np.int32)}, "nkilib.shape", "K is 100"),
        ({"topk_indices_hbm": np.zeros((1, 2, 192), np.int32)}, "nkilib.shape", "K is 192, 64 more than a multiple"),
        ({"topk_indices_hbm": np.zeros((1, 2, 4096), np.int32)}, "nkilib.shape", "K is 4096"),
        ({"topk_indices_hbm": np.zeros((1, 2, 128), np.uint32)}, "nkilib.dtype", "topk_indices_hbm is uint32"),
        ({"c_kv_hbm": np.zeros((1, 50, 512), np.float32)}, "nkilib.dtype", "c_kv_hbm is float32"),
        ({"topk_tiled": True}, "nkilib.shape", "topk_indices_hbm has 3 dimensions"),
        ({"softmax_scale": -1.0}, "nkilib.argument", "softmax_scale is -1.0"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], code: str, text: str) -> None:
    with pytest.raises(KernelLimit, match=text) as caught:
        nki.simulate(mla_sparse_attention_cte_kernel)(**call(2, 4, 128, 50) | changed)
    assert caught.value.code == code


def test_too_many_heads_and_an_older_target(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernelLimit, match="H is 129"):
        nki.simulate(mla_sparse_attention_cte_kernel)(**call(1, 129, 128, 50))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(KernelLimit, match="NeuronCore-v2"):
        nki.simulate(mla_sparse_attention_cte_kernel)(**call(1, 1, 128, 50))
