"""RMS norm, layer norm, softmax and their gradients, of rows of any number and length, against float64 and autograd."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
from nkilib.catalogue import kernel, reference
from nkilib.core.layernorm import layer_norm
from nkilib.core.rmsnorm import rms_norm
from nkilib.core.softmax import softmax
from nkilib.errors import KernelLimit

KERNELS = {
    "rms_norm": ("x", "gamma"),
    "rms_norm_backward": ("dy", "x", "gamma"),
    "layer_norm": ("x", "gamma", "beta"),
    "layer_norm_backward": ("dy", "x", "gamma", "beta"),
    "softmax": ("x",),
    "softmax_backward": ("dy", "out"),
}
SIZES = some.sampled_from([1, 2, 3, 127, 129, 300, 513])


def arguments(name: str, rows: int, columns: int, dtype: Any = np.float32, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"gamma": (columns,), "beta": (1, columns)}
    made = {each: rng.standard_normal(shapes.get(each, (rows, columns))).astype(dtype) for each in KERNELS[name]}
    if "out" in made:
        made["out"] = np.abs(made["out"]) / columns  # shares are positive
        made["out"] = made["out"].astype(dtype)
    return made


def compare(name: str, given: dict[str, Any], cores: int = 1, **options: Any) -> None:
    """The results within the rounding of their dtype, and in gradients of the products that are summed up."""
    made = nki.simulate(kernel(name))[cores](**given, **options)
    wanted = reference(name)(**given, **options)
    unit = 2.0**-7 if next(iter(given.values())).dtype == bfloat16 else 2.0**-18
    for a, b in zip(*((each if isinstance(each, tuple) else (each,)) for each in (made, wanted)), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        wide = b.astype(np.float64)
        assert np.abs(a - wide).max() <= 2 * unit * max(np.abs(wide).max(), summands(given))


def summands(given: dict[str, Any]) -> float:
    """The largest of what gradients with respect to x subtract from each other, which may leave nothing."""
    if "dy" not in given or "x" not in given:
        return 1e-3
    x, factor = given["x"].astype(np.float64), np.abs(given.get("gamma", np.ones(1))).max()
    spread = (x - x.mean(-1, keepdims=True)) if "beta" in given else x
    return float(np.abs(given["dy"]).max() * factor / np.sqrt((spread**2).mean(-1) + 1e-5).min())


@settings(max_examples=14, deadline=None)
@given(some.sampled_from(sorted(KERNELS)), SIZES, SIZES, some.booleans(), some.sampled_from([1, 2]))
def test_any_number_of_rows_of_any_length(name: str, rows: int, columns: int, short: bool, cores: int) -> None:
    compare(name, arguments(name, rows, columns, bfloat16 if short else np.float32), cores)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_rows_of_several_pieces(name: str) -> None:
    compare(name, arguments(name, 3, 2500))


@pytest.mark.parametrize("name", ["layer_norm", "softmax", "rms_norm_backward"])
def test_rows_that_do_not_stay(name: str) -> None:
    compare(name, arguments(name, 2, 9000))


@pytest.mark.parametrize("left_out", [("gamma",), ("beta",), ("gamma", "beta")])
def test_factors_and_summands_may_be_missing(left_out: tuple[str, ...]) -> None:
    for name in ("layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward"):
        given = {key: value for key, value in arguments(name, 5, 70).items() if key not in left_out}
        compare(name, given, eps=0.25)


def test_rows_far_from_zero_lose_what_their_mean_rounds() -> None:
    x = (np.random.default_rng(0).standard_normal((4, 600)) + 1000).astype(np.float32)
    error = np.abs(layer_norm(x) - reference("layer_norm")(x)).max()
    assert error <= 2 * np.spacing(np.float32(1000))  # squares of x would lose 1000 times as much


def test_masked_elements_have_no_share() -> None:
    x = arguments("softmax", 3, 50)["x"]
    x[:, 7:] = -np.inf
    shares = softmax(x, scale=0.5)
    assert (shares[:, 7:] == 0).all() and np.allclose(shares.sum(-1), 1)
    assert np.array_equal(shares[:, :7], softmax(x[:, :7], 0.5))


TORCH: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
    ("rms_norm", rms_norm, lambda x, g: torch.nn.functional.rms_norm(x, (40,), g, 1e-6)),
    ("layer_norm", layer_norm, lambda x, g, b: torch.nn.functional.layer_norm(x, (40,), g, b.reshape(40))),
    ("softmax", softmax, lambda x: torch.softmax(x, -1)),
]


@pytest.mark.parametrize(("name", "ours", "theirs"), TORCH, ids=[name for name, _, _ in TORCH])
def test_torch_and_its_gradients(name: str, ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    results = []
    for function in (ours, theirs):
        given = [torch.from_numpy(each).requires_grad_() for each in arguments(name, 6, 40).values()]
        out = function(*given)
        out.backward(torch.from_numpy(arguments(name, 6, 40, seed=1)["x"]))
        results.append([out.detach(), *(each.grad for each in given)])
    for made, wanted in zip(*results, strict=True):
        torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)


def test_jax_and_its_gradient() -> None:
    x = jnp.asarray(arguments("rms_norm", 6, 40)["x"])
    made = jax.grad(lambda a: (rms_norm(a) ** 2).sum() + (softmax(a)[0, 0]))(x)
    plain = jax.grad(lambda a: (a**2 / ((a**2).mean(-1, keepdims=True) + 1e-6)).sum() + jax.nn.softmax(a)[0, 0])(x)
    assert jnp.allclose(made, plain, atol=1e-5)


@pytest.mark.parametrize(
    ("code", "words", "name", "change"),
    [
        ("nkilib.shape", "the number of elements of gamma is 5", "rms_norm", {"gamma": np.ones(5, np.float32)}),
        ("nkilib.shape", "the number of elements of beta is 9", "layer_norm", {"beta": np.ones(9, np.float32)}),
        ("nkilib.shape", "dimension 0 of dy is 2, not 3", "layer_norm_backward", {"dy": np.ones((2, 8), np.float32)}),
        ("nkilib.dtype", "x is int32", "layer_norm", {"x": np.ones((3, 8), np.int32)}),
        ("nkilib.dtype", "dy is bfloat16, x is float32", "rms_norm_backward", {"dy": np.ones((3, 8), bfloat16)}),
        ("nkilib.argument", "eps is -1", "rms_norm", {"eps": -1.0}),
        ("nkilib.argument", "scale is 0.0", "softmax", {"scale": 0.0}),
        ("nkilib.dtype", "out is int32", "softmax_backward", {"out": np.ones((3, 8), np.int32)}),
    ],
)
def test_what_is_refused(code: str, words: str, name: str, change: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit) as caught:
        kernel(name)(**(arguments(name, 3, 8) | change))
    assert caught.value.code == code and words in caught.value.message
