"""Kernels with a derivative of their author (`Kernel.defvjp`) in JAX, against JAX's own derivatives."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nki
import nki.jax
from nki.core.errors import LaunchError
from tests.interop import derivatives
from tests.interop.derivatives import exponential, halves, product, with_backward

A = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), jnp.float32)
B = jnp.asarray(np.random.default_rng(1).normal(size=(4, 8)), jnp.float32)
BATCH = jnp.stack([A, B])


def loss(a: Any, b: Any) -> Any:
    return (product(jnp.sin(a), b, scale=2.0) * exponential(b)).sum()


def wanted(a: Any, b: Any) -> Any:
    return (jnp.sin(a) * b * 2.0 * jnp.exp(b)).sum()


def same(found: Any, right: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), found, right)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f: jax.grad(f, argnums=(0, 1))(A, B),
        lambda f: jax.jit(jax.grad(f, argnums=(0, 1)))(A, B),
        lambda f: jax.grad(jax.jit(f))(A, B),
        lambda f: jax.jit(f)(A, B),
        lambda f: jax.vjp(f, A, B)[1](jnp.float32(2)),
        lambda f: jax.vmap(jax.grad(f), in_axes=(0, None))(BATCH, B),
        lambda f: jax.grad(lambda a: jax.vmap(f, in_axes=(0, None))(a, B).sum())(BATCH),
        lambda f: jax.grad(jax.checkpoint(f), argnums=1)(A, B),
        lambda f: jax.grad(lambda b: jax.grad(f, argnums=1)(A, b).sum())(B),
    ],
    ids=["grad", "jit-grad", "grad-jit", "jit", "vjp", "vmap-grad", "grad-vmap", "checkpoint", "second"],
)
def test_transformations_use_it(transformed: Callable[..., Any]) -> None:
    same(transformed(loss), transformed(wanted))


def test_a_compiled_function_has_it() -> None:
    found = nki.jax.compile(jax.grad(loss, argnums=(0, 1)), target="trn2")(A, B)
    same(found, jax.grad(wanted, argnums=(0, 1))(A, B))


def test_two_cores_and_arrays_of_numpy() -> None:
    same(jax.grad(lambda a: product[2](a, np.asarray(B), 2.0).sum())(A), B * 2)


def test_trees_integers_and_constants() -> None:
    counts = jnp.ones((4, 8), jnp.int32)
    found = jax.grad(lambda pair: (halves(pair, counts, wanted=False)["sum"] * A).sum())({"x": A, "y": B})
    same(found, {"x": A, "y": A})
    residuals, gradient, constants = derivatives.SEEN
    assert set(residuals[0]) == {"x", "y"}
    assert gradient["rest"][1] is None
    assert constants == {"wanted": False}


def test_gradients_may_be_missing_and_have_another_dtype() -> None:
    kernel = with_backward(lambda residuals, gradient: {"b": gradient.astype(jnp.bfloat16)})
    nothing, some = jax.grad(lambda a, b: kernel(a, b).sum(), argnums=(0, 1))(A, B)
    same(nothing, jnp.zeros_like(A))
    same(some, jnp.ones_like(B))
    assert some.dtype == B.dtype


def test_what_does_not_fit_is_refused() -> None:
    kernel = with_backward(lambda residuals, gradient: (gradient,))
    with pytest.raises(LaunchError, match="1 gradients for 2 arguments") as caught:
        jax.grad(lambda a: kernel(a, B).sum())(A)
    assert caught.value.code == "jit.gradients"
    with pytest.raises(LaunchError, match=r"product\.defvjp") as caught:
        jax.grad(lambda a: nki.jit(product.func)(a, B).sum())(A)
    assert caught.value.code == "jax.no-gradient"
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(lambda a: product(a, B), (A,), (A,))
