"""Cross entropy and its gradient are recognised as frameworks write them, and computed by kernels of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from nki.graph.compile import compile_module
from nki.graph.importers.torch.decompositions.table import decompositions
from nki.graph.importers.torch.import_graph import import_graph
from tests.nkilib.patterns.conftest import array, compare, normal, of_jax, replaced

ROWS, WORDS = 6, 40
BOTH = ["cross_entropy_backward", "cross_entropy_forward"]

pytestmark = pytest.mark.usefixtures("always")


def _step(logits: Any, targets: Any, reduction: str) -> tuple[Any, ...]:
    """The loss and its gradient; a target of -100 does not count."""
    loss = cross_entropy(logits.float(), targets, reduction=reduction)
    return (loss, *torch.autograd.grad(loss, (logits,)))


@pytest.mark.parametrize(("reduction", "dtype"), [("mean", torch.bfloat16), ("sum", torch.float32)])
def test_a_training_step_of_torch(reduction: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = (torch.randn(ROWS, WORDS, generator=generator) * 3).to(dtype).requires_grad_()
    targets = torch.tensor([0, WORDS - 1, -100, 7, 7, 1])
    wanted = _step(logits, targets, reduction)
    graph = torch.fx.experimental.proxy_tensor.make_fx(
        lambda *given: _step(*given, reduction), decomposition_table=decompositions(), tracing_mode="fake"
    )(logits, targets)
    made = compile_module(import_graph(graph).module, target="trn2", patterns=BOTH)
    found = made.run([array(logits), targets.numpy().astype(np.int32)])
    compare(found, [array(each) for each in wanted], str(dtype).removeprefix("torch."))
    assert replaced(made) == BOTH


def _jax_loss(logits: Any, targets: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], axis=-1).sum()


def test_the_loss_of_jax_and_its_gradient() -> None:
    targets = np.array([0, WORDS - 1, 3, 7, 7, 1], np.int32)
    made = of_jax(jax.value_and_grad(_jax_loss), normal(ROWS, WORDS), targets, patterns=BOTH)
    assert replaced(made) == BOTH


def _other_sum(logits: Any, targets: Any) -> Any:
    shifted = logits - logits.max(-1, keepdims=True)
    total = jnp.exp(shifted * 0.5).sum(-1, keepdims=True)
    return jnp.take_along_axis(shifted - jnp.log(total), targets[:, None], axis=-1)


def _other_maximum(logits: Any, targets: Any) -> Any:
    shifted = logits - logits.max(0, keepdims=True)
    total = jnp.exp(shifted).sum(-1, keepdims=True)
    return jnp.take_along_axis(logits - jnp.log(total), targets[:, None], axis=-1)


def _other_gradient(logits: Any, targets: Any) -> Any:
    shares, picked = jax.nn.log_softmax(logits), jnp.zeros_like(logits).at[jnp.arange(ROWS), targets].set(-1.0)
    return picked + jnp.exp(shares) * picked.sum(-1, keepdims=True)


@pytest.mark.parametrize("function", [_other_sum, _other_maximum, _other_gradient])
def test_what_only_looks_like_cross_entropy_stays(function: Callable[..., Any]) -> None:
    targets = np.array([0, WORDS - 1, 3, 7, 7, 1], np.int32)
    assert replaced(of_jax(function, normal(ROWS, WORDS), targets, patterns=BOTH)) == []
