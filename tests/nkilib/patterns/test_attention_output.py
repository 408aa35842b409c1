"""Attention of a prompt with the projection of its heads is recognised in models, and one kernel computes both."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.nkilib.patterns.conftest import normal, of_jax, replaced

BATCH, POSITIONS, HEADS, SHARED, D, WIDTH = 2, 40, 4, 2, 16, 48
ONLY = ["attention_output"]
"""So few queries are those of a decoding step as well, which comes first."""


def _inputs(dtype: str = "bfloat16") -> list[Any]:
    keys = (BATCH, POSITIONS, SHARED, D)
    shapes = ((BATCH, POSITIONS, HEADS, D), keys, keys, (HEADS * D, WIDTH), (WIDTH,))
    return [normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]


def _projected(q: Any, k: Any, v: Any, weight: Any, bias: Any) -> Any:
    heads = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return heads.reshape(BATCH, POSITIONS, -1) @ weight + bias


@pytest.mark.usefixtures("always")
def test_heads_that_share_keys_and_a_bias() -> None:
    assert replaced(of_jax(_projected, *_inputs(), patterns=ONLY)) == ONLY


@pytest.mark.usefixtures("always")
def test_a_weight_that_is_turned() -> None:
    def function(q: Any, k: Any, v: Any, weight: Any) -> Any:
        heads = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(BATCH, POSITIONS, -1)
        return jax.lax.dot_general(heads, weight, (((2,), (1,)), ((), ())))

    q, k, v, weight, _ = _inputs()
    assert replaced(of_jax(function, q, k, v, weight.T.copy(), patterns=ONLY)) == ONLY


@pytest.mark.usefixtures("always")
def test_another_order_of_heads_and_features_is_told() -> None:
    def mixed(q: Any, k: Any, v: Any, weight: Any, bias: Any) -> Any:
        heads = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return jnp.swapaxes(heads, 2, 3).reshape(BATCH, POSITIONS, -1) @ weight + bias

    made = of_jax(mixed, *_inputs(), patterns=ONLY)
    reasons = {each.reason for each in made.report.near}
    assert not replaced(made)
    assert reasons == {"what is projected is not all heads of a query beside each other in one dtype"}
