"""Kernels of several products, with views of operands, reductions of rows and transposed results, against JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nki.graph.compile import compile_module
from tests.graph import xla


def _numbers(seed: int, *shape: int, dtype: object = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _same(function: object, *inputs: np.ndarray, kernels: dict[str, int], target: str = "trn2") -> None:
    text = xla.lowered(function, *inputs)
    made = compile_module(text, target=target, name="together", patterns=[])
    assert {kind: made.report.kernels.get(kind, 0) for kind in kernels} == kernels
    xla.assert_same(made.run(inputs), xla.run(text, inputs))


def _gated(x, gate, up):
    return jax.nn.silu(x @ gate) * (x @ up), x @ gate


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_two_products_in_one_epilogue(target):
    arrays = _numbers(1, 150, 200), _numbers(2, 200, 600), _numbers(3, 200, 600)
    _same(_gated, *arrays, kernels={"dot": 1}, target=target)


def test_three_products_in_bfloat16():
    def mixed(x, q, k, v):
        return x @ q, x @ k + 1, jnp.tanh(x @ v)

    arrays = [_numbers(seed, *shape, dtype=jnp.bfloat16) for seed, shape in enumerate([(70, 96), *[(96, 130)] * 3])]
    _same(mixed, *arrays, kernels={"dot": 1})


def test_long_sums_of_two_products():
    arrays = _numbers(1, 3, 40_000) / 200, _numbers(2, 40_000, 20), _numbers(3, 40_000, 20)
    _same(_gated, *arrays, kernels={"dot": 1})


def _attention(q, k, v, seen):
    scores = jnp.einsum("qgrd,kgd->grqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("grqk,kgd->qgrd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1), v)


@pytest.mark.parametrize("queries", [1, 8, 130])
def test_attention_of_grouped_queries_with_a_mask(queries):
    q, k, v = _numbers(1, queries, 2, 4, 16), _numbers(2, 72, 2, 16), _numbers(3, 72, 2, 16)
    seen = np.tril(np.ones((queries, 72), bool), 3)
    _same(_attention, q, k, v, seen, kernels={"dot": 2, "rows": 0, "move": 0})


def test_norm_of_a_product_that_is_a_result_itself():
    def normed(x, w, residual, scale, shift):
        y = x @ w + residual
        mean = y.mean(-1, keepdims=True)
        return y, (y - mean) * jax.lax.rsqrt(((y - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale + shift

    arrays = _numbers(1, 3, 50, 40), _numbers(2, 40, 96), _numbers(3, 3, 50, 96), _numbers(4, 96), _numbers(5, 96)
    _same(normed, *arrays, kernels={"dot": 1, "rows": 0})


def test_norm_over_two_dimensions_of_the_right_operand():
    def normed(x, w):
        y = jnp.einsum("ij,jkl->ikl", x, w)
        return y - y.max((1, 2), keepdims=True)

    _same(normed, _numbers(1, 140, 24), _numbers(2, 24, 6, 10), kernels={"dot": 1, "rows": 0})


def test_reduced_rows_that_are_results_stay_with_their_own_kernel():
    def total(x, w):
        y = x @ w
        return y, y.sum(-1)

    _same(total, _numbers(1, 20, 24), _numbers(2, 24, 30), kernels={"dot": 1, "rows": 1})


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (1, 0, 2, 3), (2, 1, 0, 3), (1, 2, 0, 3)])
def test_transposed_results(order):
    def product(x, w):
        return (jnp.einsum("abci,abid->abcd", x, w) + 1).transpose(order)

    _same(product, _numbers(1, 3, 5, 37, 12), _numbers(2, 3, 5, 12, 9), kernels={"dot": 1, "move": 0})


def test_sliced_and_transposed_operands():
    def product(x, cache):
        one = jnp.einsum("qhd,khd->hqk", x[:, 1:4], cache[1, 2:18])
        return one, jnp.einsum("qhd,khd->hqk", x[:, 2:5], cache[0, ::3])

    _same(product, _numbers(1, 10, 5, 16), _numbers(2, 2, 21, 3, 16), kernels={"dot": 2, "move": 0})


def _turned(x, cosine, sine):
    one, two = jnp.split(x, 2, -1)
    return x * cosine + jnp.concatenate((-two, one), -1) * sine


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_rotary_embedding(dtype):
    shapes = (150, 3, 24), (150, 1, 24), (150, 1, 24)
    _same(
        _turned, *(_numbers(n, *shape, dtype=dtype) for n, shape in enumerate(shapes)), kernels={"joined": 1, "move": 0}
    )


def test_rotary_embedding_of_a_product():
    def turned(x, w, cosine, sine):
        return _turned((x @ w).reshape(20, 4, 8), cosine, sine)

    arrays = _numbers(1, 20, 16), _numbers(2, 16, 32), _numbers(3, 20, 1, 8), _numbers(4, 20, 1, 8)
    _same(turned, *arrays, kernels={"joined": 1, "dot": 1})


def test_a_rotated_value_that_is_used_twice_is_right():
    def turned(x, scale):
        one, two = jnp.split(x, 2, -1)
        other = jnp.concatenate((-two, one), -1)
        return other * scale, other.sum(0)

    _same(turned, _numbers(1, 20, 8), _numbers(2, 20, 8), kernels={})
