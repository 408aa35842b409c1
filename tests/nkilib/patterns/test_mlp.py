"""MLPs and norms of models are recognised as JAX and PyTorch write them, and computed by kernels of the library."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

from nki.graph.compile import compile_module
from tests.graph import xla
from tests.nkilib.patterns.conftest import normal, of_jax, of_torch, replaced

TOKENS, H, I = (2, 5), 64, 96  # noqa: E741 - the names of the documentation


def _rms(x: Any, weight: Any) -> Any:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * weight


def _layer(x: Any, weight: Any, bias: Any, fast: bool = False) -> Any:
    middle = x.mean(-1, keepdims=True)
    variance = (
        (x * x).mean(-1, keepdims=True) - middle * middle if fast else ((x - middle) ** 2).mean(-1, keepdims=True)
    )
    return (x - middle) * (jax.lax.rsqrt(variance + 1e-5) * weight) + bias


def _weights(dtype: str = "float32") -> tuple[Any, ...]:
    gate, up = (normal(H, I, dtype=dtype, scale=H**-0.5, seed=seed) for seed in (1, 2))
    return gate, up, normal(I, H, dtype=dtype, scale=I**-0.5)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gated_unit_of_jax_with_its_norm(dtype: str) -> None:
    def function(x: Any, weight: Any, gate: Any, up: Any, down: Any) -> Any:
        n = _rms(x, weight)
        return x + (jax.nn.silu(n @ gate) * (n @ up)) @ down

    weight = normal(H, dtype=dtype)
    made = of_jax(function, normal(*TOKENS, H, dtype=dtype), weight, *_weights(dtype))
    assert replaced(made) == ["mlp"]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("gelu", [False, True])
def test_two_products_of_jax_with_biases(gelu: bool) -> None:
    def function(x: Any, up: Any, first: Any, down: Any, second: Any) -> Any:
        inner = x @ up + first
        return (jax.nn.gelu(inner) if gelu else jax.nn.relu(inner)) @ down + second

    _, up, down = _weights()
    assert replaced(of_jax(function, normal(*TOKENS, H), up, normal(I), down, normal(H))) == ["mlp"]


class _Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.norm = torch.nn.RMSNorm(H, eps=1e-5)
        self.gate, self.up = (torch.nn.Linear(H, I, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(I, H, bias=False)
        torch.nn.init.uniform_(self.norm.weight, 0.5, 1.5)

    def forward(self, x: Any) -> Any:
        n = self.norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(n)) * self.up(n))


class _Plain(torch.nn.Module):
    def __init__(self, approximate: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.norm = torch.nn.LayerNorm(H)
        self.up, self.down = torch.nn.Linear(H, I), torch.nn.Linear(I, H)
        self.approximate = approximate
        torch.nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        torch.nn.init.uniform_(self.norm.bias)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x)), approximate=self.approximate))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("make", [_Gated, lambda: _Plain("none"), lambda: _Plain("tanh")])
def test_torch_models_with_constant_weights(make: Any) -> None:
    x = torch.randn(*TOKENS, H, generator=torch.Generator().manual_seed(3)).bfloat16()
    assert replaced(of_torch(make().bfloat16().eval(), x)) == ["mlp"]


@pytest.mark.usefixtures("always")
def test_a_norm_that_others_need_is_made_for_them() -> None:
    def function(x: Any, weight: Any, gate: Any, up: Any, down: Any) -> Any:
        n = _rms(x, weight)
        return (jax.nn.silu(n @ gate) * (n @ up)) @ down, n

    made = of_jax(function, normal(*TOKENS, H), normal(H), *_weights())
    assert replaced(made) == ["mlp", "norm_rms"]


@pytest.mark.usefixtures("always")
def test_norms_alone() -> None:
    x, weight, bias = normal(*TOKENS, H), normal(H), normal(H, seed=1)
    assert replaced(of_jax(_rms, x, weight)) == ["norm_rms"]
    for fast in (False, True):
        made = of_jax(lambda x, weight, bias, fast=fast: _layer(x, weight, bias, fast), x, weight, bias)
        assert replaced(made) == ["norm_layer"]


def _other_inputs(x: Any, gate: Any, up: Any, down: Any) -> Any:
    return (jax.nn.silu(x @ gate) * (jnp.flip(x, 0) @ up)) @ down


def _no_activation(x: Any, gate: Any, up: Any, down: Any) -> Any:
    return ((x @ gate) * (x @ up)) @ down


def _other_activation(x: Any, gate: Any, up: Any, down: Any) -> Any:
    inner = x @ gate
    return (inner * jax.nn.sigmoid(inner * 1.5) * (x @ up)) @ down


def _inner_is_needed(x: Any, gate: Any, up: Any, down: Any) -> Any:
    return _other_activation(x, gate, up, down) * 0.5 * (1 + jax.lax.erf(x * 0.6))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("function", [_other_inputs, _no_activation, _other_activation, _inner_is_needed])
def test_what_only_looks_like_an_mlp_stays(function: Any) -> None:
    assert replaced(of_jax(function, normal(*TOKENS, H), *_weights())) == []


@pytest.mark.usefixtures("always")
def test_what_only_looks_like_a_norm_stays() -> None:
    def other_mean(x: Any, weight: Any, bias: Any) -> Any:
        below = x - x.mean(-1, keepdims=True)
        return below * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight + bias

    def other_count(x: Any, weight: Any, bias: Any) -> Any:
        below = x - x.sum(-1, keepdims=True) / (H - 4)
        return below * jax.lax.rsqrt((below * below).mean(-1, keepdims=True) + 1e-5) * weight + bias

    for function in (other_mean, other_count):
        made = of_jax(function, normal(*TOKENS, H), normal(H), normal(H, seed=1))
        assert "norm_layer" not in replaced(made)


@pytest.mark.usefixtures("faster")
def test_the_timing_model_decides() -> None:
    def function(x: Any, weight: Any, gate: Any, up: Any, down: Any) -> Any:
        n = _rms(x, weight)
        return x + (jax.nn.silu(n @ gate) * (n @ up)) @ down

    shapes = ((256, 256), (256,), (256, 512), (256, 512), (512, 256))
    text = xla.lowered(function, *(normal(*shape, dtype="bfloat16") for shape in shapes))
    made, without = compile_module(text, target="trn2"), compile_module(text, target="trn2", patterns=[])
    (found,) = made.report.replaced
    assert found.pattern == "mlp" and found.ns < found.own_ns
    assert made.profile().makespan_ns < without.profile().makespan_ns


def _reasons(made: Any) -> list[str]:
    return [each.reason for each in made.report.near if each.pattern == "mlp"]


@pytest.mark.usefixtures("always")
def test_a_gate_with_another_function_is_nearly_one() -> None:
    def function(x: Any, gate: Any, up: Any, down: Any) -> Any:
        return (jnp.tanh(x @ gate) * (x @ up)) @ down

    made = of_jax(function, normal(*TOKENS, H), *_weights())
    (reason,) = _reasons(made)
    assert replaced(made) == [] and reason.startswith("the function of its gate is unknown, the kernel has SiLU")


@pytest.mark.usefixtures("always")
def test_products_of_other_rows_are_nearly_one() -> None:
    def function(x: Any, gate: Any, up: Any, down: Any) -> Any:
        return (jax.nn.silu(jnp.sin(x) @ gate) * (x @ up)) @ down

    made = of_jax(function, normal(*TOKENS, H), *_weights())
    assert replaced(made) == [] and _reasons(made) == ["its first products read different rows"]
