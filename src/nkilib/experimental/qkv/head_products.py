"""Products of latents with the weights of heads, bank by bank, so that no head lies in two banks of PSUM."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import Any, NamedTuple

import nki.language as nl
from nkilib import limits
from nkilib.experimental.mla.deepseek.packed import BLOCK, Packed, Weights, even, product
from nkilib.experimental.quantize_mxfp8.swizzle import TILE
from nkilib.streaming import ceil_div, size, spans

TOKENS = 512
"""Of a block, for which weights are streamed once."""

_COLUMNS = 1024
"""Of weights that are loaded together, whose results leave SBUF by one transfer."""


class Group(NamedTuple):
    """Heads and tokens whose results are stored together.

    Attributes:
        heads: which heads.
        tokens: which of the block.
        sums: for some of the heads, counted from the first, their products (tokens, heads, columns) in PSUM.
    """

    heads: slice
    tokens: slice
    sums: Iterator[tuple[slice, Any]]


def groups(latents: Packed, tokens: int, weights: Weights, heads: int, each: int) -> Iterator[Group]:
    """Products of latents with the columns of all heads; weights are loaded once.

    Args:
        latents: (R, tokens), perhaps with one more.
        tokens: that count.
        weights: (R, heads * each).
        each: columns of a head, at most 512.
    """
    unit = BLOCK // gcd(each, BLOCK)  # so many heads begin with a block of scales
    for some in spans(heads, ceil_div(_COLUMNS // each, unit) * unit):
        strip = weights.strip(slice(some.start * each, some.stop * each))
        for part in spans(tokens, BLOCK):
            yield Group(some, part, _banks(latents, part, strip, size(some), each))


def _banks(latents: Packed, tokens: slice, strip: Packed, heads: int, each: int) -> Iterator[tuple[slice, Any]]:
    held = slice(tokens.start, tokens.start + even(size(tokens)))
    for some in spans(heads, nl.tile_size.psum_bank_fmax // each):
        sums = product(latents, held, strip, slice(some.start * each, some.stop * each))
        yield some, sums[0 : size(tokens), :].reshape_dim(1, (size(some), each))


def check_states(kernel: str, x: Any, cos: Any, sin: Any, rotated: int) -> dict[str, int]:
    """Sizes B, S and H of hidden states and of the angles of their tokens.

    Raises:
        KernelLimit: they do not fit, or the target has no MX numbers.
    """
    limits.generation(kernel, 4, "it has instructions for MX numbers")
    sizes = limits.shape("x_hbm", x, ("B", "S", "H"))
    limits.multiple("H", sizes["H"], TILE, "a tile of MX products contracts 512 numbers")
    limits.shape("cos_cache_hbm", cos, ("B", "S", rotated), sizes)
    limits.shape("sin_cache_hbm", sin, ("B", "S", rotated), sizes)
    for name, tensor in (("x_hbm", x), ("cos_cache_hbm", cos), ("sin_cache_hbm", sin)):
        limits.dtype(name, tensor, (nl.bfloat16,))
    return sizes


def check_gamma(name: str, gamma: Any, columns: int) -> None:
    """Check the weights of a norm.

    Raises:
        KernelLimit: they are not (1, columns) in bfloat16.
    """
    limits.shape(name, gamma, (1, columns))
    limits.dtype(name, gamma, (nl.bfloat16,))
