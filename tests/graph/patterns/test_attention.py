"""Attention in models of JAX and PyTorch is recognised however it is written, and computed by one kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from nki.core.errors import NkiError
from nki.graph.compile import compile_module
from nki.graph.executable import Executable
from nki.graph.importers.torch.decompositions.table import decompositions
from nki.graph.importers.torch.exported_program import module_of
from nki.graph.patterns import register, unregister
from nki.graph.patterns.attention.pattern import ATTENTION
from nki.interop.jax import compile as compile_jax
from nki.interop.torch import compiled_graphs
from tests.graph import xla

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
Shape = tuple[int, ...]

WHOLE, GROUPED = (2, 256, 4, 64), (2, 256, 2, 64)
"""Batch, sequence, heads and the head's dimension: as many heads of keys as of queries, and half as many."""

LIMIT = {"float32": 6e-6, "bfloat16": 2e-2}
"""Of results up to 4: roundings in another order, and weights that are rounded before they are divided."""


@pytest.fixture(autouse=True)
def _always() -> Iterator[None]:
    """The kernel computes what is found, also where it is not faster."""
    register(replace(ATTENTION, choose="always"))
    yield
    unregister("attention")


def _by_hand(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


def _windowed(q: Any, k: Any, v: Any) -> Any:
    near = jnp.abs(jnp.arange(256)[:, None] - jnp.arange(256)) < 40
    return jax.nn.dot_product_attention(q, k, v, mask=near[None, None])


def _of_matrices(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax((q @ jnp.swapaxes(k, -1, -2)) * 0.125, axis=-1) @ v


def _biased(q: Any, k: Any, v: Any) -> Any:
    distance = (jnp.arange(256)[:, None] - jnp.arange(256)).astype(q.dtype)
    return jax.nn.dot_product_attention(q, k, v, bias=-0.01 * distance[None, None] ** 2)


def _causal(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


JAX: dict[str, tuple[Function, Shape, Shape]] = {
    "jax.nn": (jax.nn.dot_product_attention, WHOLE, WHOLE),
    "jax.nn, grouped": (jax.nn.dot_product_attention, WHOLE, GROUPED),
    "jax.nn, causal": (_causal, WHOLE, WHOLE),
    "jax.nn, causal and grouped": (_causal, WHOLE, GROUPED),
    "jax.nn, window": (_windowed, WHOLE, WHOLE),
    "jax.nn, bias": (_biased, WHOLE, WHOLE),
    "by hand, causal": (_by_hand, WHOLE, WHOLE),
    "matrices": (_of_matrices, (300, 64), (520, 64)),
    "a batch of matrices": (_of_matrices, (3, 256, 32), (3, 257, 32)),
}


def _inputs(queries: Shape, keys: Shape, dtype: Any = np.float32) -> list[Array]:
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype(dtype) for shape in (queries, keys, keys)]


def _replaced(made: Executable) -> list[str]:
    return [each.pattern for each in made.report.replaced]


def _far(one: Array, other: Array) -> float:
    return float(np.abs(one.astype(np.float64) - other.astype(np.float64)).max())


@pytest.mark.parametrize("name", JAX)
def test_jax_with_and_without_the_kernel(name: str) -> None:
    function, queries, keys = JAX[name]
    inputs = _inputs(queries, keys)
    text = xla.lowered(function, *inputs)
    (wanted,) = xla.run(text, inputs)
    with_kernel, without = compile_module(text), compile_module(text, patterns=frozenset())
    assert (_replaced(with_kernel), _replaced(without)) == (["attention"], [])
    assert ".py:" in with_kernel.report.replaced[0].where
    for made in (with_kernel, without):
        assert _far(made.run(inputs)[0], wanted) < LIMIT["float32"]


@pytest.mark.parametrize("name", ["jax.nn, causal and grouped", "matrices"])
def test_bfloat16(name: str) -> None:
    function, queries, keys = JAX[name]
    inputs = _inputs(queries, keys, ml_dtypes.bfloat16)
    made = compile_module(xla.lowered(function, *inputs))
    assert _replaced(made) == ["attention"]
    wide = [array.astype(np.float32) for array in inputs]
    (wanted,) = xla.run(xla.lowered(function, *wide), wide)
    assert _far(made.run(inputs)[0], wanted) < LIMIT["bfloat16"]


def _hidden_twice(q: Any, k: Any, v: Any, seen: Any, low: float, added: bool) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, low)
    scores = scores + jnp.where(seen, 0.0, low) if added else jnp.where(seen, scores, low)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


@pytest.mark.parametrize(("low", "added", "names"), [(-1e9, False, ["attention"]), (-1e9, True, [])])
def test_queries_all_of_whose_keys_are_hidden(low: float, added: bool, names: list[str]) -> None:
    """Padding on the left: where all scores are the same low number, weights are equal, also those of later keys."""
    inputs = _inputs((2, 256, 1, 32), (2, 256, 1, 32))
    seen = np.arange(256) >= np.array([40, 3])[:, None, None, None]
    text = xla.lowered(lambda q, k, v, seen: _hidden_twice(q, k, v, seen, low, added), *inputs, seen)
    made = compile_module(text)
    assert _replaced(made) == names
    assert _far(made.run([*inputs, seen])[0], xla.run(text, [*inputs, seen])[0]) < LIMIT["float32"]


@pytest.mark.parametrize("truth", [True, False])
def test_a_mask_of_one_element(truth: bool) -> None:
    inputs = _inputs((256, 16), (257, 16))
    mask = np.ones((1, 1), bool) if truth else np.full((1, 1), 0.5, np.float32)

    def function(q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = q @ k.T
        return jax.nn.softmax(jnp.where(mask, scores, -1e9) if truth else scores + mask, -1) @ v

    text = xla.lowered(function, *inputs, mask)
    made = compile_module(text)
    assert _replaced(made) == ["attention"]
    assert _far(made.run([*inputs, mask])[0], xla.run(text, [*inputs, mask])[0]) < LIMIT["float32"]


def test_a_causal_mask_saves_what_it_hides() -> None:
    inputs = _inputs((1, 1024, 1, 64), (1, 1024, 1, 64))
    whole, causal = (
        compile_module(xla.lowered(function, *inputs)).profile().makespan_ns
        for function in (jax.nn.dot_product_attention, _causal)
    )
    assert causal < 0.85 * whole


class _Attention(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


def _hidden() -> torch.Tensor:
    """Half of the scores, and all of one query."""
    mask = torch.rand(2, 1, 256, 256, generator=torch.Generator().manual_seed(7)) > 0.5
    mask[0, 0, 5] = False
    return mask


TORCH: dict[str, tuple[dict[str, Any], int, Callable[[], torch.Tensor | None]]] = {
    "plain": ({}, 4, lambda: None),
    "causal": ({"is_causal": True}, 4, lambda: None),
    "causal and grouped": ({"is_causal": True, "enable_gqa": True}, 2, lambda: None),
    "scale": ({"scale": 0.3}, 4, lambda: None),
    "truth values": ({}, 4, _hidden),
    "numbers": ({}, 4, lambda: torch.linspace(-3, 3, 2 * 256 * 256).reshape(2, 1, 256, 256)),
}


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize("name", TORCH)
def test_torch_with_and_without_the_kernel(name: str) -> None:
    options, heads, mask = TORCH[name]
    generator = torch.Generator().manual_seed(1)
    given = mask()
    inputs = [torch.randn(2, count, 256, 64, generator=generator) for count in (4, heads, heads)]
    inputs += [] if given is None else [given]
    with sdpa_kernel([SDPBackend.MATH]):
        program = torch.export.export(_Attention(**options), tuple(inputs)).run_decompositions(decompositions())
        wanted = _Attention(**options)(*inputs).numpy()
    arrays = [tensor.numpy() for tensor in inputs]
    with_kernel = compile_module(module_of(program))
    without = compile_module(module_of(program), patterns=frozenset())
    assert (_replaced(with_kernel), _replaced(without)) == (["attention"], [])
    for made in (with_kernel, without):
        assert _far(made.run(arrays)[0], wanted) < LIMIT["float32"]


@pytest.mark.parametrize("name", ["plain", "causal and grouped", "truth values"])
def test_torch_compile_with_and_without_the_kernel(name: str) -> None:
    options, heads, mask = TORCH[name]
    generator = torch.Generator().manual_seed(1)
    given = mask()
    inputs = [torch.randn(2, count, 256, 64, generator=generator) for count in (4, heads, heads)]
    inputs += [] if given is None else [given]
    wanted = _Attention(**options)(*inputs).numpy()
    for patterns in (None, []):
        torch.compiler.reset()
        found = torch.compile(_Attention(**options), backend="neuron", options={"patterns": patterns})(*inputs)
        assert _replaced(compiled_graphs()[-1].executable) == (["attention"] if patterns is None else [])
        assert _far(found.numpy(), wanted) < LIMIT["float32"]


def _one_query(q: Any, k: Any, v: Any) -> Any:
    return _of_matrices(q[:1], k, v)


def _softmax_of_queries(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T, axis=0) @ v


def _other_maximum(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.T
    powers = jnp.exp(scores - (scores + v[:, :1].T).max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


def _weights_too(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(q @ k.T, axis=-1)
    return weights @ v, weights


def _gradient(q: Any, k: Any, v: Any) -> Any:
    return jax.value_and_grad(lambda q: (_of_matrices(q, k, v) ** 2).sum())(q)


@pytest.mark.parametrize("function", [_softmax_of_queries, _other_maximum, _weights_too, _gradient])
def test_what_is_not_for_the_kernel_stays(function: Function) -> None:
    inputs = _inputs((256, 32), (256, 32))
    text = xla.lowered(function, *inputs)
    made = compile_module(text)
    assert _replaced(made) == []
    for found, wanted in zip(made.run(inputs), xla.run(text, inputs), strict=True):
        assert _far(found, wanted) <= 1e-5 * max(1.0, float(np.abs(wanted).max()))


def test_one_query() -> None:
    inputs = _inputs((256, 32), (256, 32))
    text = xla.lowered(_one_query, *inputs)
    made = compile_module(text)
    assert _replaced(made) == ["attention"]
    assert _far(made.run(inputs)[0], xla.run(text, inputs)[0]) < LIMIT["float32"]


def test_frameworks_switch_patterns_off() -> None:
    inputs = _inputs((256, 64), (256, 64))
    for patterns, names in ((None, ["attention"]), ((), []), (("attention",), ["attention"])):
        assert _replaced(compile_jax(_of_matrices, patterns=patterns).executable(*inputs)) == names
    with pytest.raises(NkiError, match=r"jax\.compile-options"):
        compile_jax(_of_matrices, patterns=("atention",))
