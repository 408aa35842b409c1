"""Gradients of attention are recognised in training steps, and computed by the library's kernel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from nki.graph.compile import compile_module
from nki.graph.importers.torch.decompositions.table import decompositions
from nki.graph.importers.torch.import_graph import import_graph
from tests.nkilib.patterns.conftest import array, compare, normal, of_jax, replaced

QUERIES, KEYS = (2, 40, 4, 16), (2, 40, 2, 16)
"""Batch, positions, heads, features."""

ONLY = ["attention_bwd", "attention_prefill"]


def _step(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """As `transformers` writes it, with positions before heads, and heads of keys that several heads share."""
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    made = scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)
    return (made * made).sum(), made


def _gradients(q: Any, k: Any, v: Any, causal: bool) -> tuple[Any, ...]:
    loss, made = _step(q, k, v, causal)
    return (made, *torch.autograd.grad(loss, (q, k, v)))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_a_training_step_of_torch(causal: bool, shared: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    shapes = (QUERIES, KEYS, KEYS) if shared else (QUERIES,) * 3
    inputs = [torch.randn(shape, generator=generator).bfloat16().requires_grad_() for shape in shapes]
    with sdpa_kernel([SDPBackend.MATH]):
        wanted = _gradients(*inputs, causal)
        graph = torch.fx.experimental.proxy_tensor.make_fx(
            lambda *given: _gradients(*given, causal), decomposition_table=decompositions(), tracing_mode="fake"
        )(*inputs)
    made = compile_module(import_graph(graph).module, target="trn2", patterns=ONLY)
    compare(made.run([array(each) for each in inputs]), [array(each) for each in wanted], "bfloat16")
    assert replaced(made) == ONLY


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_jax(causal: bool) -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            made = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
            return (made.astype(jnp.float32) ** 2).sum(), made

        return jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(q, k, v)

    inputs = [normal(*QUERIES, dtype="bfloat16", seed=seed) for seed in range(3)]
    assert replaced(of_jax(function, *inputs, patterns=ONLY)) == ONLY
