"""Attention of new tokens over a cache is recognised in models, and computed by `attention_tkg`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.nkilib.patterns.conftest import normal, of_jax, replaced

HEADS, SHARED, KEYS, D = 4, 2, 40, 16


def _inputs(heads: int = HEADS, dtype: str = "bfloat16") -> list[Any]:
    shapes = ((2, heads, 1, D), (2, SHARED, KEYS, D), (2, SHARED, KEYS, D))
    return [normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]


def _attended(q: Any, k: Any, v: Any, mask: Any, low: float | None) -> Any:
    """One new token; a mask of truth values, or numbers that are added."""
    grouped = q.reshape(2, SHARED, -1, D)
    scores = (grouped @ jnp.swapaxes(k, -1, -2)).astype(jnp.float32) * D**-0.5
    scores = jnp.where(mask, scores, -jnp.inf) if low is None else scores + jnp.where(mask, 0.0, low)
    return (jax.nn.softmax(scores, -1).astype(v.dtype) @ v).reshape(q.shape)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("low", [None, -1e30])
@pytest.mark.parametrize("heads", [HEADS, SHARED])
def test_keys_up_to_a_position_count(heads: int, low: float | None) -> None:
    def function(q: Any, k: Any, v: Any, place: Any) -> Any:
        return _attended(q, k, v, jnp.arange(KEYS) <= place, low)

    made = of_jax(function, *_inputs(heads), np.int32(17))
    assert replaced(made) == ["attention_decode"]


@pytest.mark.usefixtures("always")
def test_without_a_mask_all_keys_count() -> None:
    made = of_jax(lambda q, k, v: _attended(q, k, v, True, None), *_inputs(dtype="float32"))
    assert replaced(made) == ["attention_decode"]


@pytest.mark.usefixtures("always")
def test_numbers_that_nobody_knows_are_left_to_the_graph_compiler() -> None:
    def function(q: Any, k: Any, v: Any, bias: Any) -> Any:
        scores = (q.reshape(2, SHARED, -1, D) @ jnp.swapaxes(k, -1, -2)) * D**-0.5 + bias
        return (jax.nn.softmax(scores, -1) @ v).reshape(q.shape)

    made = of_jax(function, *_inputs(dtype="float32"), normal(KEYS))
    assert "attention_decode" not in replaced(made)
    reasons = [each.reason for each in made.report.near if each.pattern == "attention_decode"]
    assert reasons == ["its mask has numbers that are not known, the kernel takes one that hides keys"]
