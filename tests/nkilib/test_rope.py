"""Rotary position embeddings, both layouts of tensors and of pairs, against float64."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib.core.embeddings.rope_hf import rope_hf
from nkilib.core.embeddings.rope_hf_reference import rope_hf_reference
from nkilib.core.embeddings.rope_reference import RoPE_reference
from nkilib.core.rope import RoPE, RoPE_sbuf
from nkilib.errors import KernelLimit, WithoutEffect

ODD = some.sampled_from([1, 2, 3, 127, 129])


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def close(made: Any, wanted: Any, dtype: Any) -> None:
    """Within the rounding of both products and of their sum."""
    unit = 2.0**-8 if dtype is bfloat16 else 2.0**-23
    wide = wanted.astype(np.float64)
    assert made.dtype == wanted.dtype and np.abs(made - wide).max() <= 4 * unit * max(1.0, np.abs(wide).max())


def angles(head: int, batch: int, sequence: int, dtype: Any) -> tuple[Any, Any]:
    turns = np.random.default_rng(sequence).uniform(0, 6, (head // 2, batch, sequence))
    return np.cos(turns).astype(dtype), np.sin(turns).astype(dtype)


@settings(max_examples=6, deadline=None)
@given(some.sampled_from([2, 6, 32, 64, 128]), ODD, some.integers(1, 5), ODD, some.booleans(), some.booleans())
def test_any_size_in_either_layout(head: int, batch: int, heads: int, length: int, near: bool, short: bool) -> None:
    dtype = bfloat16 if short else np.float32
    batch = min(batch, 3)
    x, (cos, sin) = normal(head, batch, heads, length, dtype=dtype), angles(head, batch, length, dtype)
    made = nki.simulate(RoPE)(x, cos, sin, contiguous_layout=not near)
    close(made, RoPE_reference(x, cos, sin, contiguous_layout=not near), dtype)


def test_the_rotation_is_that_of_complex_numbers() -> None:
    x, (cos, sin) = normal(8, 1, 2, 5), angles(8, 1, 5, np.float32)
    turned = (x[0::2] + 1j * x[1::2]) * (cos + 1j * sin)[:, :, None]
    made = RoPE(x, cos, sin, contiguous_layout=False)
    assert np.allclose(made[0::2], turned.real, atol=1e-6) and np.allclose(made[1::2], turned.imag, atol=1e-6)


def test_cores_divide_the_sequence() -> None:
    x, (cos, sin) = normal(64, 2, 2, 33), angles(64, 2, 33, np.float32)
    assert np.array_equal(RoPE[2](x, cos, sin, lnc_shard=True), RoPE(x, cos, sin))


@nki.jit
def in_sbuf(x, cos, sin, near=False):
    tiles = []
    for each in (x, cos, sin):
        tiles.append(nl.ndarray(each.shape, dtype=each.dtype, buffer=nl.sbuf))
        nisa.dma_copy(dst=tiles[-1], src=each)
    turned = RoPE_sbuf(*tiles, nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf), near)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=turned)
    return out


@pytest.mark.parametrize("near", [False, True])
def test_heads_that_are_in_sbuf(near: bool) -> None:
    x, (cos, sin) = normal(64, 2, 3, 5), angles(64, 2, 5, np.float32)
    close(in_sbuf(x, cos, sin, near), RoPE_reference(x, cos, sin, contiguous_layout=not near), np.float32)


def test_torch_and_jax() -> None:
    x, (cos, sin) = normal(64, 1, 2, 9), angles(64, 1, 9, np.float32)
    wanted = RoPE(x, cos, sin)
    assert np.array_equal(RoPE(*map(torch.from_numpy, (x, cos, sin))).numpy(), wanted)
    assert np.array_equal(np.asarray(RoPE(*map(jnp.asarray, (x, cos, sin)))), wanted)


@pytest.mark.parametrize("near", [False, True])
def test_gradients_are_those_of_autograd(near: bool) -> None:
    def plain(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        even, odd = (slice(0, None, 2), slice(1, None, 2)) if near else (slice(0, 8), slice(8, None))
        out = torch.empty_like(x)
        out[even] = x[even] * cos[:, :, None] - x[odd] * sin[:, :, None]
        out[odd] = x[odd] * cos[:, :, None] + x[even] * sin[:, :, None]
        return out

    found = []
    for function in (lambda *given: RoPE(*given, contiguous_layout=not near), plain):
        given = [torch.from_numpy(each).requires_grad_() for each in (normal(16, 2, 3, 5), *angles(16, 2, 5, "f4"))]
        function(*given).backward(torch.from_numpy(normal(16, 2, 3, 5)[::-1].copy()))
        found.append([each.grad for each in given])
    for made, wanted in zip(*found, strict=True):
        torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.shape", "head size is 130", {"x_in": normal(130, 1, 2, 3)}),
        ("nkilib.shape", "head size is 7, 1 more", {"x_in": normal(7, 1, 2, 3)}),
        ("nkilib.shape", "cos is [4, 1, 4]", {"cos": normal(4, 1, 4)}),
        ("nkilib.shape", "x_in has 3 dimensions", {"x_in": normal(8, 2, 3)}),
        ("nkilib.dtype", "x_in is int32", {"x_in": np.ones((8, 1, 2, 3), np.int32)}),
        ("nkilib.dtype", "cos is float32, sin is bfloat16", {"sin": normal(4, 1, 3, dtype=bfloat16)}),
    ],
)
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    given = {"x_in": normal(8, 1, 2, 3), "cos": normal(4, 1, 3), "sin": normal(4, 1, 3)} | change
    with pytest.raises(KernelLimit) as caught:
        RoPE(**given)
    assert caught.value.code == code and words in caught.value.message


# ---------------------------------------------------------------------------------------- the layout of Hugging Face


def hf(batch: int, heads: int, sequence: int, head: int, dtype: Any = np.float32) -> dict[str, Any]:
    q, k = normal(batch, heads, sequence, head, dtype=dtype), normal(batch, 1, sequence, head, dtype=dtype)
    return {"q": q, "k": k, "q_out": np.zeros_like(q), "k_out": np.zeros_like(k)}


@settings(max_examples=6, deadline=None)
@given(
    some.integers(1, 3),
    some.integers(1, 5),
    some.sampled_from([1, 3, 127, 129, 300]),
    some.sampled_from([2, 10, 64]),
    some.sampled_from(["shared", "batched", "cache"]),
    some.booleans(),
    some.booleans(),
)
def test_positions_of_any_number(
    batch: int, heads: int, length: int, head: int, kind: str, back: bool, short: bool
) -> None:
    dtype = bfloat16 if short else np.float32
    given = hf(batch, heads, length, head, dtype)
    rows = (batch, length + 2) if kind == "batched" else (length,)
    cos, sin = normal(*rows, head, dtype=dtype), normal(*rows, head, dtype=dtype) * np.asarray(0.5, dtype)
    turns = {"rope_cache": np.concatenate([cos, sin], -1)} if kind == "cache" else {"cos": cos, "sin": sin}
    wanted = rope_hf_reference(**given, **turns, backward=back)
    for made, right in zip(nki.simulate(rope_hf)(**given, **turns, backward=back), wanted, strict=True):
        close(made, right, dtype)


def test_it_writes_to_its_arguments_and_turns_like_transformers() -> None:
    given, cos, sin = hf(2, 3, 40, 64), normal(40, 64), normal(40, 64)
    made = rope_hf[2](**given, cos=cos, sin=sin)
    q = torch.from_numpy(given["q"])
    turned = torch.cat((-q[..., 32:], q[..., :32]), -1)
    wanted = q * torch.from_numpy(cos) + turned * torch.from_numpy(sin)
    assert np.allclose(made[0], wanted, atol=1e-6) and np.array_equal(made[0], given["q_out"])


def test_the_gradient_is_that_of_autograd() -> None:
    given, cos, sin = hf(1, 2, 6, 8), normal(6, 8), normal(6, 8)
    x = torch.randn(1, 2, 6, 8, requires_grad=True)
    turned = torch.cat((-x[..., 4:], x[..., :4]), -1)
    (x * torch.from_numpy(cos) + turned * torch.from_numpy(sin)).backward(torch.from_numpy(given["q"]))
    assert np.allclose(rope_hf(**given, cos=cos, sin=sin, backward=True)[0], x.grad, atol=1e-5)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.argument", "there, left out, left out", {"sin": None}),
        ("nkilib.argument", "there, there, there", {"rope_cache": normal(6, 16)}),
        ("nkilib.argument", "left out, left out, left out", {"cos": None, "sin": None}),
        ("nkilib.shape", "sequence is 6", {"cos": normal(5, 8), "sin": normal(5, 8)}),
        ("nkilib.shape", "dimension 1 of cos is 6, not 8", {"cos": normal(6, 6)}),
        ("nkilib.shape", "head size is 7", {name: normal(1, 2, 6, 7) for name in ("q", "k", "q_out", "k_out")}),
        ("nkilib.dtype", "k is bfloat16", {"k": normal(1, 1, 6, 8, dtype=bfloat16)}),
    ],
)
def test_what_rope_hf_refuses(code: str, words: str, change: dict[str, Any]) -> None:
    given = hf(1, 2, 6, 8) | {"cos": normal(6, 8), "sin": normal(6, 8)} | change
    with pytest.raises(KernelLimit) as caught:
        rope_hf(**given)
    assert caught.value.code == code and words in caught.value.message


def test_relayout_of_neighbours_is_told_to_have_no_effect() -> None:
    x, (cos, sin) = normal(8, 1, 2, 5), angles(8, 1, 5, np.float32)
    with pytest.warns(WithoutEffect, match="RoPE: relayout_in_sbuf has no effect as neighbours are turned where"):
        made = RoPE(x, cos, sin, contiguous_layout=False, relayout_in_sbuf=True)
    assert np.array_equal(made, RoPE(x, cos, sin, contiguous_layout=False))
