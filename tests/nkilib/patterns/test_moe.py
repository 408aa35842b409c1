"""Mixtures of experts are recognised as `transformers` computes them, and computed by kernels of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.nn.functional import grouped_mm, silu

from tests.nkilib.patterns.conftest import normal, of_jax, of_torch, replaced

H, I, E = 64, 32, 4  # noqa: E741 - the names of the documentation

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.usefixtures("always"),
]


class _Mixture(torch.nn.Module):
    """Choices sorted by expert, products of groups, and the sums of each token in its old place."""

    def __init__(self, choices: int = 2, experts: int = E) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        normal = lambda *shape: torch.nn.Parameter(torch.randn(*shape, generator=generator).bfloat16() * 0.2)  # noqa: E731
        self.router, self.choices = normal(experts, H), choices
        self.gate_up, self.down = normal(experts, 2 * I, H), normal(experts, H, I)

    def forward(self, x: Any) -> Any:
        probabilities = (x @ self.router.t()).float().softmax(-1)
        weights, experts = probabilities.topk(self.choices, -1)
        return self.mixed(x, weights / weights.sum(-1, keepdim=True), experts)

    def mixed(self, x: Any, weights: Any, experts: Any) -> Any:
        """The weighted sum of what the chosen experts make of each token."""
        chosen, order = experts.reshape(-1).sort()
        ends = self.ends(chosen)
        gate, up = grouped_mm(x[order // self.choices], self.gate_up.transpose(1, 2), offs=ends).chunk(2, -1)
        made = grouped_mm(silu(gate) * up, self.down.transpose(1, 2), offs=ends)
        made = made * self.weights(weights.reshape(-1), order)[:, None]
        return made[self.back(order)].view(*weights.shape, H).sum(1).to(x.dtype)

    def ends(self, chosen: Any) -> Any:
        counts = torch.histc(chosen.float(), bins=len(self.down), min=0, max=len(self.down) - 1)
        return counts.cumsum(0, dtype=torch.int32)

    def weights(self, weights: Any, order: Any) -> Any:
        return weights[order]

    def back(self, order: Any) -> Any:
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        return place


class _Batched(_Mixture):
    """Weights are gathered for each choice."""

    def mixed(self, x: Any, weights: Any, experts: Any) -> Any:
        """The weighted sum of what the chosen experts make of each token."""
        chosen = experts.reshape(-1)
        repeated = x.repeat_interleave(self.choices, 0)[:, :, None]
        gate, up = torch.bmm(self.gate_up[chosen], repeated)[:, :, 0].chunk(2, -1)
        made = torch.bmm(self.down[chosen], (silu(gate) * up)[:, :, None])[:, :, 0]
        return (made * weights.reshape(-1, 1)).view(*weights.shape, H).sum(1).to(x.dtype)


def _tokens(count: int) -> Any:
    return torch.randn(count, H, generator=torch.Generator().manual_seed(3)).bfloat16()


@pytest.mark.parametrize(("tokens", "choices", "experts"), [(1, 2, 4), (5, 1, 8)])
def test_few_tokens_go_past_all_experts(tokens: int, choices: int, experts: int) -> None:
    made = of_torch(_Mixture(choices, experts), _tokens(tokens), patterns=["moe_cte", "moe_tkg"])
    assert replaced(made) == ["moe_tkg"]


@pytest.mark.parametrize(("tokens", "choices"), [(129, 2)])
def test_many_tokens_lie_in_blocks_of_their_experts(tokens: int, choices: int) -> None:
    made = of_torch(_Mixture(choices), _tokens(tokens), patterns=["moe_cte", "moe_tkg"])
    assert replaced(made) == ["moe_cte"]


class _OtherWeights(_Mixture):
    def weights(self, weights: Any, order: Any) -> Any:
        return weights[order.flip(0)]


class _OtherPlaces(_Mixture):
    def back(self, order: Any) -> Any:
        return order


class _OtherEnds(_Mixture):
    def ends(self, chosen: Any) -> Any:
        counts = torch.histc(chosen.float(), bins=len(self.down), min=0, max=len(self.down) - 1)
        return counts.flip(0).cumsum(0, dtype=torch.int32)


class _OtherOrder(_Mixture):
    def mixed(self, x: Any, weights: Any, experts: Any) -> Any:
        return super().mixed(x, weights, (len(self.down) - 1 - experts).sort(-1)[0].clamp(max=2))


@pytest.mark.parametrize("kind", [_OtherWeights, _OtherPlaces, _OtherEnds])
def test_what_only_looks_like_a_mixture_stays(kind: Callable[[], torch.nn.Module]) -> None:
    assert replaced(of_torch(kind(), _tokens(6), patterns=["moe_cte", "moe_tkg"])) == []


def test_who_chose_the_experts_does_not_matter() -> None:
    """A token may choose an expert twice."""
    assert replaced(of_torch(_OtherOrder(), _tokens(6), patterns=["moe_cte", "moe_tkg"])) == ["moe_tkg"]


def test_weights_that_were_gathered_for_each_choice() -> None:
    assert replaced(of_torch(_Batched(), _tokens(5), patterns=["moe_cte", "moe_tkg"])) == ["moe_tkg"]


def _all_experts(x: Any, weights: Any, gate: Any, up: Any, down: Any) -> Any:
    inner = jax.nn.silu(jnp.einsum("td,edi->tei", x, gate)) * jnp.einsum("td,edi->tei", x, up)
    return jnp.einsum("teh,te->th", jnp.einsum("tei,eih->teh", inner, down), weights)


def _other_tokens(x: Any, weights: Any, gate: Any, up: Any, down: Any) -> Any:
    inner = jax.nn.silu(jnp.einsum("td,edi->tei", x, gate)) * jnp.einsum("td,edi->tei", x[::-1], up)
    return jnp.einsum("teh,te->th", jnp.einsum("tei,eih->teh", inner, down), weights)


@pytest.mark.parametrize(("function", "found"), [(_all_experts, ["moe_tkg"]), (_other_tokens, [])])
def test_all_experts_of_jax(function: Callable[..., Any], found: list[str]) -> None:
    shapes = ((6, H), (6, E), (E, H, I), (E, H, I), (E, I, H))
    inputs = [normal(*shape, dtype="bfloat16", scale=0.3, seed=seed) for seed, shape in enumerate(shapes)]
    assert replaced(of_jax(function, *inputs, patterns=["moe_cte", "moe_tkg"])) == found
