"""Cross entropy and its gradient for any number of positions and any vocabulary, against float64 and autograd."""

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
import nki.language as nl
from nkilib.errors import KernelLimit
from nkilib.experimental.loss import cross_entropy_backward, cross_entropy_forward
from nkilib.experimental.loss.cross_entropy_reference import (
    cross_entropy_backward_reference,
    cross_entropy_forward_reference,
)

SIZES = some.sampled_from([1, 2, 7, 127, 129, 513])


def problem(positions: int, vocabulary: int, dtype: Any = np.float32) -> tuple[Any, Any]:
    rng = np.random.default_rng(positions + vocabulary)
    logits = (3 * rng.standard_normal((positions, vocabulary))).astype(dtype)
    return logits, rng.integers(0, vocabulary, positions).astype(np.int32)


def close(made: Any, wanted: Any, least: float = 0.0) -> None:
    unit = 2.0**-8 if wanted.dtype == bfloat16 else 2.0**-19
    wide = wanted.astype(np.float64)
    assert made.dtype == wanted.dtype and made.shape == wanted.shape
    assert np.abs(made - wide).max() <= unit * max(np.abs(wide).max(), least)


@settings(max_examples=10, deadline=None)
@given(SIZES, SIZES, some.booleans(), some.booleans(), some.sampled_from(["mean", "sum"]), some.sampled_from([1, 2]))
def test_any_size(positions: int, words: int, short: bool, inplace: bool, reduction: str, cores: int) -> None:
    dtype, of_results = (bfloat16, nl.bfloat16) if short else (np.float32, nl.float32)
    logits, targets = problem(positions, words, dtype)
    wanted = cross_entropy_forward_reference(logits, targets, dtype=of_results)
    for made, right in zip(
        nki.simulate(cross_entropy_forward)[cores](logits, targets, dtype=of_results), wanted, strict=True
    ):
        close(made, right, np.abs(logits.astype(np.float64)).max() + 8)  # what the loss is a difference of
    given = (logits.copy(), targets, wanted[1], reduction)
    made = nki.simulate(cross_entropy_backward)[cores](*given, dtype=of_results, inplace=inplace)
    right = cross_entropy_backward_reference(logits, targets, wanted[1], reduction, dtype=of_results, inplace=inplace)
    close(made, right, 1 / positions if reduction == "mean" else 1)
    assert np.array_equal(given[0], made if inplace else logits)


def test_a_vocabulary_of_many_pieces() -> None:
    logits, targets = problem(3, 9001)
    for sizes in ({}, {"positions_per_batch": 1, "chunk_size": 128 * 700}):
        loss, lse = cross_entropy_forward(logits, targets, dtype=nl.float32, **sizes)
        wanted = cross_entropy_forward_reference(logits, targets, dtype=nl.float32)
        close(loss, wanted[0], 10)
        close(lse, wanted[1])


def test_large_logits_and_words_that_are_masked() -> None:
    logits, targets = problem(4, 5000)
    logits[:, 4000:] = -np.inf  # a whole piece, and part of another one
    logits[1] += 1e4
    targets[:] = 5
    loss, _ = cross_entropy_forward(logits, targets, dtype=nl.float32)
    wanted = cross_entropy_forward_reference(logits, targets, dtype=nl.float32)
    assert np.allclose(loss, wanted[0], atol=2e-3)  # 1e4 has steps of 1e-3
    gradient = cross_entropy_backward(logits, targets, wanted[1], "sum", dtype=nl.float32, inplace=False)
    assert (gradient[:, 4000:] == 0).all() and np.allclose(gradient.sum(-1), 0, atol=1e-2)


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16])
def test_torch_and_its_gradient(dtype: Any) -> None:
    logits, targets = (torch.from_numpy(each) for each in problem(6, 50))
    logits.requires_grad_()
    weights = torch.arange(1.0, 7.0)
    loss, lse = cross_entropy_forward(logits, targets, dtype=dtype)
    (loss.float() @ weights + 2 * lse.float().sum()).backward()
    made, logits.grad = logits.grad, None
    exact = torch.nn.functional.cross_entropy(logits, targets.long(), reduction="none")
    (exact @ weights + 2 * torch.logsumexp(logits, -1).sum()).backward()
    torch.testing.assert_close(loss.float(), exact.detach(), rtol=1e-2 if dtype is nl.bfloat16 else 1e-5, atol=1e-5)
    torch.testing.assert_close(made, logits.grad, rtol=1e-4, atol=1e-5)


def test_jax_and_its_gradient() -> None:
    logits, targets = problem(5, 40)
    made = jax.grad(lambda x: cross_entropy_forward(x, jnp.asarray(targets), dtype=nl.float32)[0].mean())(
        jnp.asarray(logits)
    )
    lse = cross_entropy_forward_reference(logits, targets, dtype=nl.float32)[1]
    assert np.allclose(made, cross_entropy_backward_reference(logits, targets, lse, dtype=nl.float32), atol=1e-6)


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.shape", "logits_hbm has 3 dimensions", {"logits_hbm": np.zeros((2, 3, 4), np.float32)}),
        ("nkilib.shape", "dimension 0 of targets_hbm is 4", {"targets_hbm": np.zeros(4, np.int32)}),
        ("nkilib.dtype", "targets_hbm is uint8", {"targets_hbm": np.zeros(3, np.uint8)}),
        ("nkilib.dtype", "logits_hbm is float16", {"logits_hbm": np.zeros((3, 8), np.float16)}),
        ("nkilib.option", "dtype is", {"dtype": nl.float16}),
        ("nkilib.shape", "positions_per_batch is 129", {"positions_per_batch": 129}),
        ("nkilib.shape", "chunk_size is 0", {"chunk_size": 0}),
        ("nkilib.option", "reduction is 'none'", {"reduction": "none"}),
        ("nkilib.shape", "lse_state_hbm is [2]", {"lse_state_hbm": np.zeros(2, np.float32)}),
    ],
)
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    given = {"logits_hbm": np.zeros((3, 8), np.float32), "targets_hbm": np.zeros(3, np.int32)} | change
    if {"reduction", "lse_state_hbm"} & set(change):
        kernel, given = cross_entropy_backward, {"lse_state_hbm": np.zeros(3, np.float32)} | given
    else:
        kernel = cross_entropy_forward
    with pytest.raises(KernelLimit) as caught:
        kernel(**given)
    assert caught.value.code == code and words in caught.value.message
