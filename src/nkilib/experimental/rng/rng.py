"""The random generator of the GpSimd engine: its state is set, read, and made numbers of::

    x, y, z, w, v, d = state                                   six words of 32 bits
    t = x ^ x >> 2;  u = v ^ v << 4 ^ t ^ t << 1;  d = d + 362437 mod 2**32
    state = y, z, w, v, u, d;  word = d + u mod 2**32

Shapes: a state is (1, 6) uint32, n numbers are (1, n) int32. GpSimd has a state for each of its 128 lanes. All are set
to the same one, and lane 0 is the one that is read and drawn from, so that a state gives one sequence, in whatever
pieces it is drawn. A state lasts from call to call (`nisa.rand_set_state`), on each core of its own; a launch of two
cores sets both, and draws on the first.

Plan: GpSimd makes a word each cycle, which bounds `generate_random`; DMA stores a piece while the next one is made. The
other two are one transfer to the engine or from it.

Source: nki/library/api/rng.rst; Marsaglia, "Xorshift RNGs", 2003, section 3.1.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.streaming import load, load_repeated, result, sbuf, size, spans, store

NUM_RNG_SEEDS = 6
"""Words of a state."""

_PIECE = 4096
"""Words that are made before they are stored."""


@nki.jit
def get_rng_state_gpsimd(tensor_state: nl.NkiTensor) -> nl.NkiTensor:
    """The state of the generator, as `set_rng_state_gpsimd` takes it back.

    Args:
        tensor_state: (1, 6) uint32, of which only shape and dtype count.

    Returns:
        (1, 6) uint32, the state of lane 0.

    Raises:
        KernelLimit: another shape or dtype, or a target whose GpSimd has no such state.
    """
    _check(tensor_state)
    out, state = result((1, NUM_RNG_SEEDS), nl.uint32), sbuf((1, NUM_RNG_SEEDS), nl.uint32)
    nisa.rand_get_state(dst=state, engine=nisa.engine.gpsimd)
    _put(out, state)
    return out


@nki.jit
def set_rng_state_gpsimd(tensor_state: nl.NkiTensor) -> nl.NkiTensor:
    """Have the generator go on from a state, in this call and in those that follow.

    Args:
        tensor_state: (1, 6) uint32. The first five words are not all zero: from there it would count, and no more.

    Returns:
        The state, (1, 6) uint32.

    Raises:
        KernelLimit: another shape or dtype, or a target whose GpSimd has no such state.
    """
    _check(tensor_state)
    out = result((1, NUM_RNG_SEEDS), nl.uint32)
    nisa.rand_set_state(src_seeds=load_repeated(tensor_state, nl.tile_size.pmax), engine=nisa.engine.gpsimd)
    _put(out, load(tensor_state))
    return out


@nki.jit
def generate_random(output: nl.NkiTensor, n_elements: int) -> nl.NkiTensor:
    """The next numbers of the generator, each of the 2**32 equally likely.

    Args:
        output: (1, n_elements) int32, which the kernel writes to.
        n_elements: how many.

    Returns:
        The output.

    Raises:
        KernelLimit: another shape or dtype, or a target whose GpSimd makes no random numbers.
    """
    limits.generation("the generator of GpSimd", 3, "older engines have none")
    limits.between("n_elements", n_elements, 1, 2**31 - 1)
    limits.shape("output", output, (1, n_elements))
    limits.dtype("output", output, (nl.int32,))
    for piece in spans(n_elements, _PIECE) if nl.program_id(0) == 0 else []:
        words = sbuf((1, size(piece)), nl.int32)
        nisa.rng(dst=words, engine=nisa.engine.gpsimd)
        store(output[:, piece], words)
    return output


def _check(state: nl.NkiTensor) -> None:
    limits.generation("the state of GpSimd's generator", 3, "older engines have none")
    limits.shape("tensor_state", state, (1, NUM_RNG_SEEDS))
    limits.dtype("tensor_state", state, (nl.uint32,))


def _put(out: nl.NkiTensor, state: nl.NkiTensor) -> None:
    """A state into the result, by the first core."""
    if nl.program_id(0) == 0:
        store(out, state)
