"""Complex numbers and Fourier transforms through the whole compiler, against NumPy in 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nki.graph.errors import GraphError
from nki.interop.jax import compile

Array = np.ndarray[Any, Any]


def numbers(*shape: int) -> Array:
    generator = np.random.default_rng(1)
    return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(np.complex64)


def close(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert (found.dtype.kind == "c") == (wanted.dtype.kind == "c")
    scale = float(np.abs(wanted).max(initial=1e-30))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * scale)


@pytest.mark.parametrize("length", [1, 2, 6, 97, 130, 360, 521])
def test_transforms_of_any_length(length: int) -> None:
    x = numbers(2, length)
    wide = x.astype(np.complex128)
    close(compile(jnp.fft.fft)(x), np.fft.fft(wide))
    close(compile(jnp.fft.ifft)(x), np.fft.ifft(wide))
    close(compile(jnp.fft.rfft)(x.real), np.fft.rfft(wide.real))
    half = x[:, : length // 2 + 1]
    close(compile(lambda a: jnp.fft.irfft(a, n=length))(half), np.fft.irfft(half.astype(np.complex128), n=length))


@pytest.mark.slow
@pytest.mark.parametrize("length", [1021, 4093, 4096])
def test_long_transforms(length: int) -> None:
    x = numbers(2, length)
    close(compile(jnp.fft.fft)(x), np.fft.fft(x.astype(np.complex128)))


def test_transforms_along_several_dimensions() -> None:
    x = numbers(3, 4, 6)
    wide = x.astype(np.complex128)
    close(compile(jnp.fft.fft2)(x), np.fft.fft2(wide))
    close(compile(jnp.fft.rfftn)(x.real), np.fft.rfftn(wide.real))
    close(compile(jnp.fft.irfft2)(x), np.fft.irfft2(wide))


def test_a_transform_that_is_too_long_is_refused() -> None:
    with pytest.raises(GraphError, match=r"graph\.unsupported.*5000 points along a dimension, more than 4096"):
        compile(jnp.fft.rfft)(np.zeros((1, 5000), np.float32))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: x * x - x / (x + 2) + 1j,
    "parts": lambda x: (x.real, x.imag, abs(x), jnp.angle(x), jnp.conj(x)),
    "functions": lambda x: (jnp.exp(x), jnp.log(x), jnp.sqrt(x), jnp.sin(x), jnp.cos(x), x**2.5),
    "product": lambda x: x @ x.T,
    "sums": lambda x: (x.sum(0), x.mean(), x.cumsum(1)),
    "moves": lambda x: (x.T, x[::-1, 1:], jnp.where(x.real > 0, x, 0), jnp.concatenate([x, x])),
    "choice": lambda x: jax.lax.cond(x[0, 0].real > 0, lambda y: (y * 2, y.real), lambda y: (y, y.imag), x),
    "scatter": lambda x: x.at[jnp.array([0, 0])].add(1j),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    x = numbers(3, 4)
    found, wanted = compile(FUNCTIONS[name])(jnp.asarray(x)), FUNCTIONS[name](jnp.asarray(x))
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


def test_sizes_and_quotients_keep_their_range() -> None:
    x = np.array([3e30 + 4e30j, 3e-30 - 4e-30j, 0, complex(np.inf, 1)], np.complex64)
    np.testing.assert_allclose(compile(jnp.abs)(x), np.array([5e30, 5e-30, 0, np.inf], np.float32), rtol=1e-6)
    np.testing.assert_allclose(compile(lambda a: a / a)(x[:2]), [1, 1], rtol=1e-6)


def test_what_is_not_defined_is_refused() -> None:
    for function in (jnp.tanh, jnp.prod, lambda x: jax.lax.scan(lambda c, a: (c + a, c), x[0], x)):
        with pytest.raises(GraphError, match=r"graph\.unsupported.*(complex|is not defined)"):
            compile(function)(numbers(2, 3))
