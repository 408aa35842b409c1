"""Dropout: elements are replaced by zero with a probability, and the others grow by as much as is lost::

    out = where(u < rate, 0, x / (1 - rate)),  u uniform in [0, 1)

The mask is no result: a seed says which elements are dropped. The gradient draws the same mask anew, so that nothing
is kept between forward and backward but the seed.

Layouts: any shape, taken as the elements that it has; the seed is (1, 1) uint32 or int32. Dtypes: bfloat16, float16 or
float32, scaled in float32 and rounded once. Limits: none but those of HBM. Which elements a seed drops depends on the
number of elements, their size, the number of cores and the target.

Plan: Scalar multiplies, Vector draws a number for each element and drops it in one pass, which bounds 16-bit elements;
DMA bounds float32. The cores of the launch divide the elements, each with a seed of its own.

Source: Srivastava et al., "Dropout", 2014; `nisa.dropout` for what the engine does.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.flat import FLOATS, blocks, put, tiles
from nkilib.streaming import load, result, sbuf


@nki.jit
def dropout(x: nl.NkiTensor, rate: float, seed: nl.NkiTensor, scale: bool = True) -> nl.NkiTensor:
    """Drop elements; the cores of the launch divide them.

    Args:
        x: in HBM.
        rate: probability of dropping an element, from 0 to 1.
        seed: (1, 1) uint32 or int32 in HBM, whose bits count; the same seed drops the same elements.
        scale: whether those that stay are divided by ``1 - rate``, so that the mean stays.

    Returns:
        A tensor like `x`.

    Raises:
        KernelLimit: dtypes, the shape of the seed, a `rate` that is no probability.
    """
    limits.dtype("x", x, FLOATS)
    limits.shape("seed", seed, (1, 1))
    limits.dtype("seed", seed, (nl.uint32, nl.int32))
    limits.need(0 <= rate <= 1, "rate", rate, "rate is a probability", "pass a number from 0 to 1")
    out = result(x.shape, x.dtype)
    _seed(seed)
    grown = 1 / (1 - rate) if scale and rate < 1 else 1.0
    for block in blocks(x.size, x.dtype):
        (tile,) = tiles(block, x)
        if grown != 1:
            scaled = sbuf(tile.shape, x.dtype)
            nisa.activation(dst=scaled, op=nl.copy, data=tile, scale=grown)
            tile = scaled
        kept = sbuf(tile.shape, x.dtype)
        nisa.dropout(dst=kept, data=tile, prob=float(rate))
        put(block, out, kept)
    return out


def _seed(seed: Any) -> None:
    """Seed this core's generator: with the seed on the first core, with another one on the second."""
    tile = load(seed)
    if nl.program_id(0) > 0:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.bitwise_xor, operand0=nl.program_id(0))
    nisa.set_rng_seed(src_seeds=tile)


def _forward(x: Any, rate: float, seed: Any, scale: bool = True) -> tuple[Any, Any]:
    return dropout(x, rate, seed, scale), seed


def _gradient(seed: Any, gradient: Any, rate: float, scale: bool = True) -> tuple[Any, None]:
    return dropout(gradient, rate, seed, scale), None


dropout.defvjp(_forward, _gradient)
