"""Sparse attention over latents against the rows one by one, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import nki
from nkilib.errors import KernelLimit
from nkilib.experimental.mla.deepseek import mla_sparse_attention_cte_kernel
from nkilib.experimental.mla.deepseek.mla_sparse_attention_cte_reference import (
    mla_sparse_attention_cte_kernel_reference,
)
from tests.nkilib.mla import RNG, normal, same_in_frameworks


def call(queries: int, heads: int, keys: int, cached: int, rotated: int = 64) -> dict[str, Any]:
    return {
        "q_lift_hbm": normal(1, queries, heads, 512),
        "q_pe_hbm": normal(1, queries, heads, rotated),
        "c_kv_hbm": normal(1, cached, 512),
        "k_pe_hbm": normal(1, cached, rotated),
        "topk_indices_hbm": RNG.integers(0, cached, (1, queries, keys)).astype(np.int32),
        "softmax_scale": 1 / 24,
    }


def check(made: Any, arguments: dict[str, Any]) -> None:
    """Weights and results are rounded to 8 bits each, and no result is larger than the largest latent."""
    wanted = mla_sparse_attention_cte_kernel_reference(**arguments)
    assert made.shape == wanted.shape
    largest = np.abs(arguments["c_kv_hbm"].astype(np.float64)).max()
    assert np.abs(np.asarray(made).astype(np.float64) - wanted).max() <= 1.05 * 2**-8 * largest


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
    check(nki.simulate(mla_sparse_attention_cte_kernel)[cores](**arguments), arguments)


def test_more_queries_than_lie_beside_each_other() -> None:
    arguments = call(130, 1, 128, 40, 2)
    check(nki.simulate(mla_sparse_attention_cte_kernel)(**arguments), arguments)


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
    check(flat, arguments)


def test_scores_far_from_zero() -> None:
    arguments = call(1, 4, 128, 64) | {"softmax_scale": 20.0}
    check(mla_sparse_attention_cte_kernel(**arguments), arguments)


def test_frameworks() -> None:
    same_in_frameworks(mla_sparse_attention_cte_kernel, call(2, 16, 128, 200))


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
