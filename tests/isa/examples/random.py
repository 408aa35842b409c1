"""Examples of rng, rand2, set_rng_seed, rand_set_state, rand_get_state and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa.random as family
import nki.language as nl
from nki.spec.engine import engine
from tests.isa.examples.select import NEW, gathered, indirect, values
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import filled, load, nothing, store

MASK = 0xFFFFFFFF


def xorwow(state: list[int], count: int) -> tuple[list[int], list[int]]:
    """Words of one generator and its next state, in Python integers (Marsaglia, "Xorshift RNGs", 2003, section 3.1)."""
    words = []
    for _ in range(count):
        t = state[0] ^ (state[0] >> 2)
        last = state[4]
        last = (last ^ (last << 4)) ^ (t ^ (t << 1))
        weyl = (state[5] + 362437) & MASK
        state = [state[1], state[2], state[3], state[4], last & MASK, weyl]
        words.append((weyl + (last & MASK)) & MASK)
    return words, state


def lanes(state: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Words and next states of lanes that hold one state for every six words, which take turns."""
    streams = state.shape[1] // 6
    words, after = np.zeros((len(state), count), np.uint32), state.copy()
    for p in range(len(state)):
        for s in range(streams):
            made, next_state = xorwow([int(w) for w in state[p, 6 * s : 6 * s + 6]], -(-count // streams))
            after[p, 6 * s : 6 * s + 6] = next_state
            for i in range(s, count, streams):
                words[p, i] = made[i // streams]
    return words, after


def states(words: int, partitions: int = 20) -> Any:
    return lambda: (np.random.default_rng(19).integers(0, 1 << 32, (partitions, words), np.uint32),)


# --- rng with states that are set and read back


def make_rng(on: Any, dtype: Any = np.uint32, seed_words: int | None = None, state_words: int | None = None) -> Any:
    def rng(seeds: Any) -> Any:
        state = load(seeds)
        family.rand_set_state(state if seed_words is None else state[:, 0:seed_words], engine=on)
        result = nl.ndarray((20, 11), dtype, buffer=nl.sbuf)
        family.rng(dst=result, engine=on)
        after = nl.ndarray((20, state_words or seeds.shape[1]), np.uint32, buffer=nl.sbuf)
        family.rand_get_state(after, engine=on)
        return store(result), store(after)

    return rng


def rng_expected(dtype: Any) -> Any:
    def expected(state: np.ndarray) -> Any:
        words, after = lanes(state, 11)
        bits = 8 * np.dtype(dtype).itemsize
        low = [[w % 2**bits for w in row] for row in words.tolist()]
        if np.dtype(dtype).kind == "i":
            low = [[w - 2**bits if w >= 2 ** (bits - 1) else w for w in row] for row in low]
        return np.array(low), after

    return expected


def rng_plain(on: Any) -> Any:
    def rng(_: Any) -> Any:
        result = nl.ndarray((4, 4), np.uint8, buffer=nl.sbuf)
        family.rng(dst=result, engine=on)
        return store(result)

    return rng


RNG = [
    Legal(name, make_rng(on, dtype), states(words), rng_expected(dtype), targets)
    for name in ("rng", "rand_set_state", "rand_get_state")
    for on, words, targets, dtype in (
        (engine.gpsimd, 6, NEW, np.int16),
        (engine.gpsimd, 6, NEW, np.uint32),
        (engine.vector, 24, ("trn3",), np.int8),
    )
] + [
    Legal("rng", rng_plain(engine.vector), nothing),
    Breaks("rng.gpsimd-target", rng_plain(engine.gpsimd), nothing, "trn1"),
    Breaks("rand_set_state.vector-target", make_rng(engine.vector), states(24)),
    Breaks("rand_set_state.words", make_rng(engine.gpsimd, seed_words=5), states(6)),
    Breaks("rand_get_state.words", make_rng(engine.gpsimd, state_words=24), states(6)),
]


def get_only(_: Any) -> Any:
    state = nl.ndarray((20, 24), np.uint32, buffer=nl.sbuf)
    family.rand_get_state(state, engine=engine.vector)
    return store(state)


# --- set_rng_seed


def make_seed(shape: Any = (1, 1), buffer: Any = nl.sbuf) -> Any:
    def set_rng_seed(seed: Any) -> Any:
        tile = load(seed, buffer)[0 : shape[0], 0 : shape[1]]
        parts = []
        for _ in range(2):
            family.set_rng_seed(tile)
            result = nl.ndarray((128, 9), np.uint32, buffer=nl.sbuf)
            family.rng(dst=result)
            parts.append(store(result))
        return tuple(parts)

    return set_rng_seed


SEED = [
    Legal("set_rng_seed", make_seed(), lambda: (np.array([[12345]], np.int32),)),
    Legal("set_rng_seed", make_seed(buffer=nl.psum), lambda: (np.array([[2.5]], np.float32),)),
    Breaks("set_rng_seed.shape", make_seed((1, 2)), lambda: (np.array([[1, 2]], np.uint32),)),
    Breaks("rand_get_state.vector-target", get_only, nothing),
]


# --- rand2


def make_rand2(low: Any, high: Any, dtype: Any = np.float32, rows: int = 20) -> Any:
    def rand2(seeds: Any) -> Any:
        family.rand_set_state(load(seeds), engine=engine.vector)
        result = nl.ndarray((20, 9), dtype, buffer=nl.psum if dtype is np.float32 else nl.sbuf)
        limit = filled((rows, 1), high) if rows != 20 or dtype is np.float32 else high
        family.rand2(dst=result, min=low, max=limit)
        return store(result)

    return rand2


def rand2_expected(low: float, high: float) -> Any:
    def expected(state: np.ndarray) -> np.ndarray:
        words, _ = lanes(state, 9)
        return np.array([[low + (w >> 8) / 2**24 * (high - low) for w in row] for row in words.tolist()])

    return expected


RAND2 = [
    Legal("rand2", make_rand2(-1.0, 3.0), states(24), rand2_expected(-1.0, 3.0), ("trn3",), rtol=1e-6, atol=1e-6),
    Legal(
        "rand2",
        make_rand2(-0.5, 99.5, np.uint8),
        states(24),
        lambda state: np.clip([np.rint(row) for row in rand2_expected(-0.5, 99.5)(state)], 0, 255),
        ("trn3",),
    ),
    Breaks("rand2.column-partitions", make_rand2(0.0, 1.0, rows=19), states(24), "trn3"),
    Breaks("rand2.range", make_rand2(1.0, 1.0, np.uint8), states(24), "trn3"),
]


# --- dropout


def make_dropout(prob: Any, dtype: Any = None, size: int = 48, column: Any = None, rows: int = 64) -> Any:
    def dropout(a: Any) -> Any:
        tile = load(a)
        result = nl.ndarray((64, size), dtype or tile.dtype, buffer=nl.sbuf)
        family.dropout(dst=result, data=tile, prob=prob if column is None else filled((rows, 1), prob, column))
        return store(result)

    return dropout


DROPOUT = [
    Legal("dropout", make_dropout(0.0), values(), lambda a: a),
    Legal("dropout", make_dropout(1.0), values(), np.zeros_like),
    Legal("dropout", make_dropout(0.0, column=np.float32), values(np.int32), lambda a: a),
    Legal("dropout", make_dropout(1.0, column=np.float16), values(), np.zeros_like),
    Breaks("dropout.shapes", make_dropout(0.5, size=40), values()),
    Breaks("dropout.dtypes", make_dropout(0.5, dtype=np.float16), values()),
    Breaks("dropout.column-partitions", make_dropout(0.5, column=np.float32, rows=32), values()),
    Breaks("dropout.prob-dtype", make_dropout(0.5, column=np.float16), values(np.int32)),
    Breaks("dropout.prob-range", make_dropout(50), values()),
]

# --- tensor indirection, which none of them has

INDIRECT = [
    indirect("rng", lambda t: family.rng(gathered(filled((16, 8), dtype=np.uint32)))),
    indirect("rand2", lambda t: family.rand2(gathered(t), 0.0, 1.0)),
    indirect("set_rng_seed", lambda t: family.set_rng_seed(gathered(t[0:1, 0:1]))),
    indirect("rand_set_state", lambda t: family.rand_set_state(gathered(filled((16, 6), dtype=np.uint32)))),
    indirect("rand_get_state", lambda t: family.rand_get_state(gathered(filled((16, 6), dtype=np.uint32)))),
    indirect("dropout", lambda t: family.dropout(gathered(t), t, 0.5)),
]

EXAMPLES = [*RNG, *SEED, *RAND2, *DROPOUT, *INDIRECT]
