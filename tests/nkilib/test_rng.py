"""Random numbers: states that are set, read and drawn from, and dropout, against XORWOW in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16
from scipy import stats

import nki
from nki.runtime import forget_random_states
from nkilib.errors import KernelLimit
from nkilib.experimental.rng import dropout, generate_random, get_rng_state_gpsimd, set_rng_state_gpsimd
from nkilib.experimental.rng import rng_reference as references
from nkilib.experimental.rng.dropout_reference import dropout_reference
from nkilib.experimental.rng.xorwow_reference import drawn, seeded

NOTHING = np.zeros((1, 6), np.uint32)


def state(seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 32, (1, 6), np.uint32)


def numbers(count: int, called: Any = generate_random) -> Any:
    return called(np.zeros((1, count), np.int32), count)


def test_words_are_those_of_the_article() -> None:
    # Marsaglia 2003: the state that xorwow starts from; the first word by hand
    words, after = drawn(np.array([[123456789, 362436069, 521288629, 88675123, 5783321, 6615241]], np.uint32), 1)
    t = 123456789 ^ 123456789 >> 2
    last = (5783321 ^ 5783321 << 4 ^ t ^ t << 1) % 2**32
    assert words.tolist() == [[(last + 6615241 + 362437) % 2**32]] and after[0, 4] == last


@settings(max_examples=4, deadline=None)
@given(some.lists(some.sampled_from([1, 2, 127, 513, 4097]), min_size=1, max_size=3), some.integers(1, 2))
def test_a_state_gives_one_sequence_in_whatever_pieces(counts: list[int], cores: int) -> None:
    assert np.array_equal(set_rng_state_gpsimd[cores](state()), state())
    made = np.concatenate([numbers(count, nki.simulate(generate_random))[0] for count in counts])
    words, after = drawn(state(), sum(counts))
    assert np.array_equal(made, words[0].view(np.int32))
    assert np.array_equal(get_rng_state_gpsimd[cores](NOTHING), after)


def test_a_state_that_is_set_again_repeats_its_numbers() -> None:
    set_rng_state_gpsimd(state())
    numbers(10)
    saved = get_rng_state_gpsimd(NOTHING)
    first = numbers(20)
    set_rng_state_gpsimd(saved)
    assert np.array_equal(numbers(20), first)


def test_the_references_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "_SET", [])
    for again in range(2):
        given = np.zeros((1, 30), np.int32)
        assert np.array_equal(get_rng_state_gpsimd(NOTHING), references.get_rng_state_gpsimd_reference(NOTHING))
        for _ in range(2):
            assert np.array_equal(numbers(30), references.generate_random_reference(given, 30))
        set_rng_state_gpsimd(state(again))
        assert np.array_equal(references.set_rng_state_gpsimd_reference(state(again)), state(again))


def test_numbers_are_uniform() -> None:
    set_rng_state_gpsimd(state())
    counts = np.bincount(numbers(20000)[0].view(np.uint32) >> 24, minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_the_output_is_written_to() -> None:
    given = np.zeros((1, 7), np.int32)
    assert np.array_equal(generate_random(given, 7), given) and given.any()


@settings(max_examples=6, deadline=None)
@given(
    some.sampled_from([(1,), (127,), (3, 43), (129, 513), (2, 5, 700)]),
    some.sampled_from([0.0, 0.1, 0.5, 1.0]),
    some.sampled_from([np.float32, bfloat16]),
    some.integers(0, 2**32 - 1),
    some.integers(1, 2),
    some.booleans(),
)
def test_any_elements_are_dropped(
    shape: tuple[int, ...], rate: float, dtype: Any, seed: int, cores: int, scale: bool
) -> None:
    x, seeds = np.random.default_rng(3).standard_normal(shape).astype(dtype), np.array([[seed]], np.uint32)
    made = nki.simulate(dropout)[cores](x, rate, seeds, scale)
    wanted = dropout_reference(x, rate, seeds, scale, cores)
    assert made.dtype == x.dtype and np.array_equal(made == 0, wanted == 0)
    np.testing.assert_allclose(made.astype(np.float64), wanted, rtol=2.0**-8 if dtype == bfloat16 else 2.0**-22)


def test_seeds_and_cores_drop_others() -> None:
    x = np.ones(20000, np.float32)
    first, again, other = (dropout(x, 0.25, np.array([[seed]], np.uint32)) for seed in (1, 1, 2))
    two = dropout[2](x, 0.25, np.array([[1]], np.uint32))
    assert np.array_equal(first, again) and (first != other).mean() > 0.3
    assert (two[:10000] != two[10000:]).mean() > 0.3
    for made in (first, other, two):
        assert stats.binomtest(int((made == 0).sum()), made.size, 0.25).pvalue > 1e-4


def test_torch_calls_them_and_differentiates() -> None:
    seed = torch.tensor([[5]], dtype=torch.int32)
    x = torch.randn(33, 7, requires_grad=True)
    made = dropout(x, 0.5, seed)
    made.sum().backward()
    assert torch.equal(made, x * x.grad) and set(x.grad.unique().tolist()) == {0.0, 2.0}
    given = torch.from_numpy(state())
    assert torch.equal(set_rng_state_gpsimd(given), given)
    made = generate_random(torch.zeros((1, 9), dtype=torch.int32), 9)
    words, after = drawn(state(), 9)
    assert np.array_equal(made.numpy(), words.view(np.int32))
    assert np.array_equal(get_rng_state_gpsimd(torch.zeros_like(given)).numpy(), after)


def test_jax_calls_them_and_differentiates() -> None:
    x, seed = jnp.ones((9, 33)), jnp.array([[5]], jnp.int32)
    made, slope = jax.jit(jax.value_and_grad(lambda a: dropout(a, 0.5, seed, scale=False).sum()))(x)
    assert set(np.unique(slope).tolist()) == {0.0, 1.0} and made == slope.sum()
    set_rng_state_gpsimd(jnp.asarray(state()))
    made = generate_random(jnp.zeros((1, 9), jnp.int32), 9)
    words, after = drawn(state(), 9)
    assert np.array_equal(made, words.view(np.int32))
    assert np.array_equal(get_rng_state_gpsimd(jnp.zeros((1, 6), jnp.uint32)), after)


def test_without_a_state_all_calls_begin_alike() -> None:
    wanted, _ = drawn(seeded(3, 1), 4)
    set_rng_state_gpsimd(state())
    assert not np.array_equal(numbers(4).view(np.uint32), wanted)
    forget_random_states()
    assert np.array_equal(numbers(4).view(np.uint32), wanted) and np.array_equal(numbers(4).view(np.uint32), wanted)


X, SEED = np.ones((2, 3), np.float32), np.ones((1, 1), np.uint32)
REFUSED = [
    ("nkilib.shape", "dimension 1 of tensor_state is 5, not 6", lambda: set_rng_state_gpsimd(NOTHING[:, :5])),
    ("nkilib.dtype", "tensor_state is int32", lambda: get_rng_state_gpsimd(NOTHING.astype(np.int32))),
    ("nkilib.shape", "n_elements is 0", lambda: generate_random(np.zeros((1, 1), np.int32), 0)),
    ("nkilib.shape", "dimension 1 of output is 5, not 6", lambda: generate_random(np.zeros((1, 5), np.int32), 6)),
    ("nkilib.dtype", "output is uint32", lambda: generate_random(np.zeros((1, 5), np.uint32), 5)),
    ("nkilib.dtype", "x is int32", lambda: dropout(X.astype(np.int32), 0.5, SEED)),
    ("nkilib.shape", "seed has 1 dimensions", lambda: dropout(X, 0.5, SEED[0])),
    ("nkilib.dtype", "seed is float32", lambda: dropout(X, 0.5, SEED.astype(np.float32))),
    ("nkilib.argument", "rate is 1.5", lambda: dropout(X, 1.5, SEED)),
]


@pytest.mark.parametrize(("code", "words", "call"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_what_is_refused(code: str, words: str, call: Any) -> None:
    with pytest.raises(KernelLimit, match=words.replace("(", r"\(")) as caught:
        call()
    assert caught.value.code == code


def test_trainium1_has_no_generator_in_gpsimd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    for call in (lambda: numbers(4), lambda: get_rng_state_gpsimd(NOTHING), lambda: set_rng_state_gpsimd(NOTHING)):
        with pytest.raises(KernelLimit, match="the target has NeuronCore-v2"):
            call()
    assert dropout(X, 0.0, SEED).all()
