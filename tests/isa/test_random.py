"""Random numbers: sequences, seeds, states, their distribution, and dropout."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

import nki
import nki.isa.random as family
import nki.language as nl
from nki.runtime import forget_random_states
from nki.sim.random import VECTOR_STREAMS, WORDS, Generator
from nki.spec.engine import engine
from tests.isa.examples.random import lanes, xorwow
from tests.isa.tiles import filled, load, nothing, store
from tests.support import both, environment, rejection


def drawn(
    count: int = 1, on: Any = engine.vector, seed: Any = None, shape: Any = (128, 16), dtype: Any = np.uint32
) -> Any:
    def kernel(s: Any) -> Any:
        if seed is not None:
            family.set_rng_seed(load(s))
        results = []
        for _ in range(count):
            tile = nl.ndarray(shape, dtype, buffer=nl.sbuf)
            family.rng(tile, engine=on)
            results.append(store(tile))
        return tuple(results)

    return both(kernel, np.array([[seed or 0]], np.uint32))


# --- the generator


@pytest.mark.parametrize("streams", [1, VECTOR_STREAMS])
def test_every_lane_is_an_xorwow_generator(streams: int) -> None:
    generator = Generator(5, 99, streams)
    start = generator.state(5, WORDS * streams)
    words, after = lanes(start, 13)
    np.testing.assert_array_equal(generator.bits(5, 13), words)
    np.testing.assert_array_equal(generator.state(5, WORDS * streams), after)


def test_the_reference_generator_starts_as_published() -> None:
    # Marsaglia 2003: the state that the article starts from, and the first step by hand
    words, state = xorwow([123456789, 362436069, 521288629, 88675123, 5783321, 6615241], 1)
    t = 123456789 ^ (123456789 >> 2)
    v = 5783321 ^ (5783321 << 4) ^ t ^ (t << 1)
    assert words == [(v % 2**32 + 6615241 + 362437) % 2**32]
    assert state[:4] == [362436069, 521288629, 88675123, 5783321]


def test_a_state_that_is_set_comes_back_and_leaves_other_lanes_alone() -> None:
    generator = Generator(8, 1, VECTOR_STREAMS)
    before = generator.state(8, 24)
    words = np.arange(3 * 24, dtype=np.uint32).reshape(3, 24)
    generator.seed(words)
    np.testing.assert_array_equal(generator.state(8, 24), np.concatenate([words, before[3:]]))


def test_two_short_reads_and_a_long_one_differ_only_in_the_round_that_was_cut() -> None:
    long, short = Generator(2, 7, VECTOR_STREAMS), Generator(2, 7, VECTOR_STREAMS)
    words = long.bits(2, 12)
    np.testing.assert_array_equal(short.bits(2, 6), words[:, :6])
    np.testing.assert_array_equal(short.bits(2, 4), words[:, 8:])


def test_lanes_and_seeds_have_different_sequences() -> None:
    rows = [Generator(128, seed, streams).bits(128, 6) for seed in (0, 1, 2) for streams in (1, VECTOR_STREAMS)]
    assert len(np.unique(np.concatenate(rows)[:, :4], axis=0)) == len(rows) * 128


# --- rng and seeds


def test_the_same_seed_gives_the_same_numbers_and_another_one_others() -> None:
    (first,), (again,), (other,) = drawn(seed=5), drawn(seed=5), drawn(seed=6)
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.99


def test_the_sequence_goes_on_and_differs_by_engine() -> None:
    first, second = drawn(2)
    (gpsimd,) = drawn(on=engine.gpsimd)
    assert (first != second).mean() > 0.99
    assert (first != gpsimd).mean() > 0.99


def test_the_environment_seeds_what_no_instruction_seeded() -> None:
    with environment(NEURON_RT_STOCHASTIC_ROUNDING_SEED="3"):
        (first,) = drawn()
    with environment(NEURON_RT_STOCHASTIC_ROUNDING_SEED="4"):
        (second,) = drawn()
    assert (first != second).mean() > 0.99


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32])
def test_narrow_integers_get_the_low_bits(dtype: Any) -> None:
    (wide,) = drawn(seed=8)
    (got,) = drawn(seed=8, dtype=dtype)
    bits = 8 * np.dtype(dtype).itemsize
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.int64) % 2**bits, wide.astype(np.int64) % 2**bits)


def test_random_bits_are_uniform() -> None:
    (words,) = drawn(seed=1, shape=(128, 64))
    counts = np.bincount(words.reshape(-1) >> 24, minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 0.005


def test_rng_takes_integers_and_gpsimd_does_not_reach_psum() -> None:
    def floating(_: Any) -> None:
        family.rng(nl.ndarray((2, 2), np.float32, buffer=nl.sbuf))

    def psum(_: Any) -> None:
        family.rng(nl.ndarray((2, 2), np.uint32, buffer=nl.psum), engine=engine.gpsimd)

    assert rejection(floating, *nothing()).code == "operand.dtype"
    assert rejection(psum, *nothing()).code == "operand.gpsimd-psum"


def test_a_seed_is_32_bits() -> None:
    def kernel(_: Any) -> None:
        family.set_rng_seed(filled((1, 1), 3, np.uint16))

    assert rejection(kernel, *nothing()).code == "operand.dtype"


@pytest.mark.parametrize(("target", "code"), [("trn1", "instruction.unavailable"), ("trn2", "instruction.unavailable")])
def test_rand2_needs_a_newer_core(target: str, code: str) -> None:
    def kernel(_: Any) -> None:
        family.rand2(nl.ndarray((2, 2), np.float32, buffer=nl.sbuf), 0.0, 1.0)

    assert rejection(kernel, *nothing(), target=target).code == code


def test_a_stored_state_replays_the_sequence() -> None:
    def kernel(_: Any) -> Any:
        state = nl.ndarray((128, 24), np.uint32, buffer=nl.sbuf)
        family.rand_get_state(state, engine=engine.vector)
        results = []
        for _ in range(2):
            tile = nl.ndarray((128, 7), np.float32, buffer=nl.sbuf)
            family.rand2(tile, 0.0, 1.0)
            results.append(store(tile))
            family.rand_set_state(state, engine=engine.vector)
        return tuple(results)

    first, second = both(kernel, *nothing(), target="trn3")
    np.testing.assert_array_equal(first, second)


# --- rand2


def uniform_of(low: Any, high: Any, dtype: Any = np.float32, count: int = 64) -> np.ndarray:
    def kernel(a: Any, b: Any) -> Any:
        tile = nl.ndarray((128, count), dtype, buffer=nl.sbuf)
        family.rand2(tile, load(a), load(b))
        return store(tile)

    column = lambda v: np.full((128, 1), v, np.float32)  # noqa: E731
    return np.asarray(both(kernel, column(low), column(high), target="trn3"))


def test_rand2_is_uniform_on_a_half_open_interval() -> None:
    got = uniform_of(0.0, 1.0)
    assert stats.kstest(got.reshape(-1), "uniform").pvalue > 1e-4
    assert got.min() >= 0.0 and got.max() < 1.0
    assert (got * 2**24 == np.rint(got * 2**24)).all()


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0 + 2.0**-23), (-1.0, 1e-7), (100.0, 100.5), (-3e38, 1.0)])
def test_rand2_never_leaves_its_interval(low: float, high: float) -> None:
    got = uniform_of(low, high)
    assert got.min() >= np.float32(low) and got.max() <= np.float32(high)


def test_rand2_limits_may_differ_by_partition() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((3, 200), np.float32, buffer=nl.sbuf)
        family.rand2(tile, load(a)[:, 0:1], load(a)[:, 1:2])
        return store(tile)

    limits = np.array([[0, 1], [10, 20], [-5, -4]], np.float32)
    got = both(kernel, limits, target="trn3")
    assert (got.min(axis=1) >= limits[:, 0]).all() and (got.max(axis=1) < limits[:, 1]).all()
    np.testing.assert_allclose(got.mean(axis=1), limits.mean(axis=1), rtol=0.15)


def test_rand2_rounds_to_integers_and_small_floats() -> None:
    assert set(np.unique(uniform_of(-0.5, 3.5, np.int8))) <= {0, 1, 2, 3, 4}
    got = uniform_of(0.0, 1.0, ml_dtypes.bfloat16)
    assert got.dtype == ml_dtypes.bfloat16 and got.astype(np.float32).max() <= 1.0


def state_before(word: int) -> np.ndarray:
    """A state of Vector whose four next words are `word`: without xorshift bits only the counter is left."""
    return np.array([[0, 0, 0, 0, 0, (word - 362437) % 2**32] * VECTOR_STREAMS], np.uint32)


@pytest.mark.parametrize(
    ("word", "low", "high", "wanted"),
    [
        (0xFF, 2.0, 5.0, 2.0),
        (1 << 31, 2.0, 5.0, 3.5),
        (0xFFFFFFFF, 0.0, 1.0, 1 - 2.0**-24),
        (0xFFFFFFFF, -1.0, 1e-7, 0.0),  # 1 + 1e-7 rounds up to a difference that is too large, but not the sum
    ],
)
def test_the_ends_of_the_interval_of_rand2(word: int, low: float, high: float, wanted: float) -> None:
    def kernel(state: Any) -> Any:
        family.rand_set_state(load(state), engine=engine.vector)
        tile = nl.ndarray((1, 4), np.float32, buffer=nl.sbuf)
        family.rand2(tile, low, high)
        return store(tile)

    assert both(kernel, state_before(word), target="trn3").tolist() == [[np.float32(wanted)] * 4]


# --- dropout


@pytest.mark.parametrize(
    ("word", "prob", "kept"),
    [(0, 0.0, True), (0xFFFFFFFF, 1.0, False), (1 << 31, 0.5, True), ((1 << 31) - 1, 0.5, False)],
)
def test_dropout_drops_numbers_below_the_probability(word: int, prob: float, kept: bool) -> None:
    def kernel(state: Any) -> Any:
        family.rand_set_state(load(state), engine=engine.vector)
        tile = filled((1, 4), 3.0)
        family.dropout(tile, tile, prob)
        return store(tile)

    assert both(kernel, state_before(word), target="trn3").tolist() == [[3.0 * kept] * 4]


def dropped(a: np.ndarray, prob: Any) -> np.ndarray:
    def kernel(a: Any, p: Any) -> Any:
        tile = load(a)
        family.dropout(tile, tile, load(p))
        return store(tile)

    return np.asarray(both(kernel, a, np.asarray(prob)))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32, np.uint8, np.float16])
def test_dropout_keeps_bits_and_zeroes_the_rest(dtype: Any) -> None:
    a = np.random.default_rng(6).integers(1, 120, (128, 64)).astype(dtype)
    got = dropped(a, np.full((128, 1), 0.25, np.float32))
    kept = got != 0
    np.testing.assert_array_equal(got[kept], a[kept])
    assert stats.binomtest(int(kept.sum()), kept.size, 0.75).pvalue > 1e-4


def test_dropout_keeps_nan_infinity_and_signs_without_scaling() -> None:
    bits = np.array([[0x7F800001, 0xFF800000, 0x80000001, 0x80000000, 0x7F7FFFFF]], np.uint32)
    got = dropped(bits.view(np.float32), np.zeros((1, 1), np.float32))
    np.testing.assert_array_equal(got.view(np.uint32), bits)
    assert dropped(bits.view(np.float32), np.ones((1, 1), np.float32)).view(np.uint32).tolist() == [[0] * 5]


def test_each_partition_has_its_own_probability() -> None:
    prob = np.linspace(0, 1, 5, dtype=np.float32)[:, None]
    got = dropped(np.ones((5, 4000), np.float32), prob)
    np.testing.assert_allclose((got == 0).mean(axis=1), prob[:, 0], atol=0.04)
    assert got[0].all() and not got[4].any()


def test_a_higher_probability_drops_a_superset() -> None:
    a = np.ones((64, 64), np.float32)
    low, high = (dropped(a, np.full((64, 1), p, np.float32)) for p in (0.3, 0.6))
    assert (low[high != 0] != 0).all() and (low != high).any()


# --- how long states last


def drawn_by_gpsimd(_: Any) -> Any:
    tile = nl.ndarray((3, 5), np.uint32, buffer=nl.sbuf)
    family.rng(tile, engine=engine.gpsimd)
    return store(tile)


def state_set(state: Any) -> Any:
    family.rand_set_state(load(state))
    return store(load(state))


@pytest.mark.parametrize("run", [nki.jit, nki.simulate])
def test_a_state_that_was_set_goes_on_in_the_programs_that_follow(run: Any) -> None:
    state = np.random.default_rng(2).integers(0, 1 << 32, (3, 6), np.uint32)
    unset = run(drawn_by_gpsimd)(*nothing())
    np.testing.assert_array_equal(run(drawn_by_gpsimd)(*nothing()), unset)
    run(state_set)(state)
    words, _ = lanes(state, 10)
    np.testing.assert_array_equal(run(drawn_by_gpsimd)(*nothing()), words[:, :5])
    np.testing.assert_array_equal(run(drawn_by_gpsimd)(*nothing()), words[:, 5:])
    forget_random_states()
    np.testing.assert_array_equal(run(drawn_by_gpsimd)(*nothing()), unset)


def test_a_seed_counts_for_its_program() -> None:
    unset = drawn()
    drawn(seed=5)
    np.testing.assert_array_equal(drawn(), unset)


def test_each_target_and_each_core_has_a_generator_of_its_own() -> None:
    state = np.full((3, 6), 7, np.uint32)
    unset = both(drawn_by_gpsimd, *nothing(), target="trn3")
    both(state_set, state)
    np.testing.assert_array_equal(both(drawn_by_gpsimd, *nothing(), target="trn3"), unset)
