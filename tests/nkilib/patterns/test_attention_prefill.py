"""Attention of prompts is recognised in models, and computed by `attention_cte`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from nki.graph.compile import compile_module
from tests.graph import xla
from tests.nkilib.patterns.conftest import normal, of_jax, of_torch, replaced

QUERIES, KEYS = (2, 40, 4, 16), (2, 40, 2, 16)
"""Batch, positions, heads, features."""

ONLY = ["attention_prefill"]
"""So few queries are those of a decoding step as well, which comes first."""


def _inputs(dtype: str = "bfloat16") -> list[Any]:
    return [normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate((QUERIES, KEYS, KEYS))]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_jax_with_shared_heads(causal: bool) -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=causal)

    assert replaced(of_jax(function, *_inputs(), patterns=ONLY)) == ["attention_prefill"]


class _Attention(torch.nn.Module):
    """As `transformers` writes it: positions before heads, a causal mask with a batch, numbers that are added."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        seen = torch.ones(q.shape[0], 1, q.shape[2], k.shape[2], dtype=torch.bool).tril()
        mask = torch.where(seen, torch.zeros((), dtype=q.dtype), torch.full((), float("-inf"), dtype=q.dtype))
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.usefixtures("always")
def test_attention_of_torch_with_a_mask_that_is_causal() -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(shape, generator=generator).bfloat16() for shape in (QUERIES, KEYS, KEYS)]
    assert replaced(of_torch(_Attention(), *inputs, patterns=ONLY)) == ["attention_prefill"]


def _windowed(q: Any, k: Any, v: Any) -> Any:
    near = jnp.abs(jnp.arange(40)[:, None] - jnp.arange(40)) < 9
    return jax.nn.dot_product_attention(q, k, v, mask=near[None, None])


@pytest.mark.usefixtures("always")
def test_reports_say_why_the_kernel_is_not_used() -> None:
    for function, dtype, reason in (
        (_windowed, "bfloat16", "it has a mask"),
        (jax.nn.dot_product_attention, "float32", "it is float32"),
    ):
        made = of_jax(function, *_inputs(dtype), patterns=ONLY)
        assert "attention_prefill" not in replaced(made)
        assert [each.reason.startswith(reason) for each in made.report.near if each.pattern == "attention_prefill"]


@pytest.mark.usefixtures("faster")
def test_the_faster_of_two_kernels_for_attention_is_used() -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.where(jnp.tril(jnp.ones((512, 512), bool)), q @ jnp.swapaxes(k, -1, -2) / 8, -jnp.inf)
        return jax.nn.softmax(scores, -1) @ v

    text = xla.lowered(function, *(normal(2, 512, 64, dtype="bfloat16", seed=seed) for seed in range(3)))
    made, other = compile_module(text, target="trn2"), compile_module(text, target="trn2", patterns=["attention"])
    assert (replaced(made), replaced(other)) == (["attention_prefill"], ["attention"])
    assert made.profile().makespan_ns < other.profile().makespan_ns
