"""Projections to queries, keys and values are recognised in models, and computed by `qkv`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from tests.nkilib.patterns.conftest import normal, of_jax, of_torch, replaced

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
ONLY = ["attention_qkv"]
WIDTH, HEADS, SHARED, D = 64, 4, 2, 16


class _Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + torch.randn(width) / 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class _Block(nn.Module):
    """As Llama and Qwen3 write it, whose heads are normalised."""

    def __init__(self, normed: bool, bias: bool, shared: int = SHARED, by_head: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.by_head = _Norm(WIDTH), by_head
        self.q = nn.Linear(WIDTH, HEADS * D, bias=bias)
        self.k, self.v = (nn.Linear(WIDTH, shared * D, bias=bias) for _ in range(2))
        self.q_norm, self.k_norm = (_Norm(D) if normed else nn.Identity() for _ in range(2))

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        heads = (*x.shape[:2], -1, D)
        n = self.norm(x)
        q, k = self.q_norm(self.q(n).view(heads)).transpose(1, 2), self.k_norm(self.k(n).view(heads)).transpose(1, 2)
        v = self.v(n).view(heads).transpose(1, 2)
        angles = torch.outer(places.float(), 100.0 ** (-torch.arange(0, D, 2) / D))
        both = torch.cat((angles, angles), -1)[None, None]
        if self.by_head:
            both = both * torch.arange(1, HEADS + 1)[None, :, None, None]
        cos, sin = both.cos().to(x.dtype), both.sin().to(x.dtype)
        return _turned(q, cos, sin), _turned(k, cos[:, : k.shape[1]], sin[:, : k.shape[1]]), v * 2


def _inputs(tokens: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    return torch.randn(2, tokens, WIDTH, generator=generator).to(dtype), torch.arange(tokens, dtype=torch.int32) + 3


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("tokens", [1, 5])
def test_rotated_heads_with_norms_and_without(tokens: int, normed: bool) -> None:
    made = of_torch(_Block(normed, bias=normed).bfloat16(), *_inputs(tokens, torch.bfloat16), patterns=ONLY)
    assert replaced(made) == ONLY and made.report.near == ()


@pytest.mark.usefixtures("always")
def test_as_many_heads_of_keys_as_of_queries() -> None:
    made = of_torch(_Block(normed=True, bias=False, shared=HEADS), *_inputs(3, torch.float32), patterns=ONLY)
    assert replaced(made) == ONLY


@pytest.mark.usefixtures("always")
def test_angles_of_heads_are_left_to_the_graph_compiler() -> None:
    block = _Block(normed=False, bias=False, shared=HEADS, by_head=True)
    made = of_torch(block, *_inputs(3, torch.float32), patterns=ONLY)
    (near,) = made.report.near
    assert replaced(made) == [] and near.reason.startswith("its angles are not the same for all heads")


@pytest.mark.usefixtures("always")
def test_weights_that_are_arguments_are_left_where_they_are() -> None:
    def function(x: jnp.ndarray, *weights: jnp.ndarray) -> tuple[jnp.ndarray, ...]:
        q, k, v = ((x @ weight).reshape(2, 3, -1, D) for weight in weights)
        angles = jnp.arange(3.0)[:, None] * jnp.tile(jnp.asarray([1.0, 0.1, 0.01, 0.001] * 2), 2)
        cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
        turn = lambda y: y * cos + jnp.concatenate((-y[..., D // 2 :], y[..., : D // 2]), -1) * sin  # noqa: E731
        return turn(q), turn(k), v

    shapes = (2, 3, WIDTH), (WIDTH, HEADS * D), (WIDTH, SHARED * D), (WIDTH, SHARED * D)
    made = of_jax(function, *(normal(*shape, scale=0.3) for shape in shapes), patterns=ONLY)
    (near,) = made.report.near
    assert replaced(made) == [] and near.reason.startswith("its weights are arguments of the model")


class _Used(_Block):
    def forward(self, x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Values are used before queries are rotated, and so is the norm."""
        q, k, v = super().forward(x, places)
        return q, k, v, torch.tanh(v) @ k.transpose(-1, -2), self.norm(x) + 1


@pytest.mark.usefixtures("always")
def test_what_others_use_is_made_as_well() -> None:
    made = of_torch(_Used(normed=True, bias=False), *_inputs(4, torch.float32), patterns=ONLY)
    assert replaced(made) == ONLY


@pytest.mark.usefixtures("faster")
def test_a_decoding_step_is_faster_with_it() -> None:
    block, inputs = _Block(normed=False, bias=False).bfloat16(), _inputs(1, torch.bfloat16)
    made, plain = of_torch(block, *inputs), of_torch(block, *inputs, patterns=[])
    assert "attention_qkv" in replaced(made) and made.profile().makespan_ns < plain.profile().makespan_ns
    assert np.isfinite(made.profile().makespan_ns)


class _Squashed(_Block):
    def forward(self, x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Something is computed between the product and the rotation."""
        q = torch.tanh(self.q(self.norm(x))).view((*x.shape[:2], -1, D)).transpose(1, 2)
        angles = torch.outer(places.float(), 100.0 ** (-torch.arange(0, D, 2) / D))
        both = torch.cat((angles, angles), -1)[None, None]
        return _turned(q, both.cos().to(x.dtype), both.sin().to(x.dtype)), x


@pytest.mark.usefixtures("always")
def test_what_is_computed_before_the_rotation_is_left_to_the_graph_compiler() -> None:
    made = of_torch(_Squashed(normed=False, bias=False), *_inputs(3, torch.float32), patterns=ONLY)
    (near,) = made.report.near
    assert replaced(made) == [] and near.reason.startswith("what is rotated is no product whose columns are heads")


class _Alone(_Block):
    def forward(self, x: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Keys come from other rows."""
        q, *_ = super().forward(x, places)
        return q, x


@pytest.mark.usefixtures("always")
def test_queries_alone_are_left_to_the_graph_compiler() -> None:
    made = of_torch(_Alone(normed=False, bias=False), *_inputs(3, torch.float32), patterns=ONLY)
    (near,) = made.report.near
    assert near.reason == "1 products read its rows, the kernel makes queries, keys and values"
