"""The engines' random generators: XORWOW states of six words for every lane, deterministic under a seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.spec.engine import engine as Engine

WORDS = 6
VECTOR_STREAMS = 4
"""States per lane of the Vector engine, one per word that a lane makes in a cycle (trainium3_arch.rst)."""

_WEYL = np.uint32(362437)
_STEP = np.uint64(0x9E3779B97F4A7C15)


class Generator:
    """XORWOW for every lane (Marsaglia 2003; trainium3_arch.rst names the algorithm and the six words per state).

    Word i of a lane comes from its state ``i % streams``. An instruction that asks for fewer words than its last round
    makes leaves the rest unused, so that the states alone say what comes next.

    Older Vector engines use an LFSR that no document describes; they get the same generator, so sequences are
    reproducible here but are not those of a device.

    Args:
        lanes: one per partition.
        seed: 32 bits, expanded over all states.
        streams: states per lane.
    """

    def __init__(self, lanes: int, seed: int, streams: int = 1) -> None:
        self._state = np.empty((lanes, streams, WORDS), np.uint32)
        self.seed(np.array([[seed & 0xFFFFFFFF]], np.uint32))

    def seed(self, words: Any) -> None:
        """Set the first lanes from ``(P, streams * 6)`` words, or expand one word over all lanes (splitmix64)."""
        words = np.asarray(words, np.uint32)
        if words.size == 1:
            start = np.uint64(words.item()) + np.arange(1, self._state.size + 1, dtype=np.uint64) * _STEP
            self._state = _splitmix(start).reshape(self._state.shape)
            return
        self._state[: words.shape[0]] = words.reshape(-1, *self._state.shape[1:])

    def state(self, partitions: int, words: int) -> np.ndarray:
        """``(partitions, streams * 6)``: what `seed` takes back."""
        result = self._state[:partitions].reshape(partitions, -1).copy()
        assert result.shape[1] == words, f"a lane has {result.shape[1]} words of state, not {words}"
        return result

    def bits(self, partitions: int, count: int) -> np.ndarray:
        """The next `count` words of the first `partitions` lanes."""
        x, y, z, w, v, d = (self._state[:partitions, :, i].copy() for i in range(WORDS))
        streams = self._state.shape[1]
        rounds = -(-count // streams)
        result = np.empty((partitions, rounds, streams), np.uint32)
        for i in range(rounds):
            t = x ^ (x >> np.uint32(2))
            x, y, z, w = y, z, w, v
            v = (v ^ (v << np.uint32(4))) ^ (t ^ (t << np.uint32(1)))
            d = d + _WEYL
            result[:, i] = d + v
        self._state[:partitions] = np.stack([x, y, z, w, v, d], axis=-1)
        return result.reshape(partitions, -1)[:, :count]


Place = tuple[str, int, int, Engine]
"""Target, rank, core and engine: where a generator is."""

_SET: dict[Place, Generator] = {}
"""Generators whose states a program has set. A device keeps them while it runs, and programs that set, read and use a
state follow each other (nki.isa rand_set_state: what cannot survive is a reset), so this belongs to the process."""


def kept(place: Place) -> Generator | None:
    """The generator that a program before has set the state of, if one did."""
    return _SET.get(place)


def keep(place: Place, generator: Generator) -> None:
    """Have the programs that follow go on with a generator."""
    _SET[place] = generator


def forget_random_states() -> None:
    """Have all random generators of simulated devices begin each program from the environment's seed, as at first.

    A state that `nisa.rand_set_state` sets stays set for the programs that follow in this process; this is the reset
    of a device.
    """
    _SET.clear()


def _splitmix(state: np.ndarray) -> np.ndarray:
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).astype(np.uint32)
