"""Inverse of ``I - A`` for a strictly lower triangular A of at most 128 rows, by products of the Tensor engine.

A substitution would go row by row. Here the diagonal blocks of 8 rows are inverted first: powers of such a block vanish
from the 8th on, so that ``(I + A)(I + A^2)(I + A^4)`` is exact, and they stay small. Then neighbours are joined, 8 rows
to 16, and so on to 128: with T the inverse of the diagonal blocks and B what lies between them, the inverse of both
together is ``T + T B T``. Powers of all 128 rows at once would be exact too, but grow like binomials and cancel
(Higham, "Accuracy and Stability of Numerical Algorithms", chapter 14: inverting triangular matrices by blocks). Every
product waits for the one before, so that inversions are generators, of which several take turns.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming

_BLOCK = 8
"""Rows of the first blocks: entries of their powers reach 35, and those of 16 rows 6,435."""


@dataclass
class Masks:
    """Ones where a step works, else zeros, ``(128, 128)`` in SBUF: the diagonal blocks, and what lies between two.

    Attributes:
        blocks: the diagonal blocks.
        between: for blocks of 8, 16, 32 and 64 rows what lies below the first of two.
        identity: the identity.
    """

    blocks: Any
    between: list[Any]
    identity: Any


def masks(rows: int) -> Masks:
    """Those that matrices of some rows need."""
    index = np.arange(rows)
    sizes = [size for size in (_BLOCK, 2 * _BLOCK, 4 * _BLOCK, 8 * _BLOCK) if size < rows]
    same = {size: index[:, None] // size == index // size for size in (*sizes, *(2 * size for size in sizes), _BLOCK)}
    return Masks(
        blocks=_constant(same[_BLOCK]),
        between=[_constant(same[2 * size] & ~same[size]) for size in sizes],
        identity=_constant(np.eye(rows, dtype=bool)),
    )


def _constant(mask: np.ndarray[Any, Any]) -> Any:
    return streaming.load(nl.shared_constant(mask.astype(np.float32)))


def inverse_transposed(lower: Any, upper: Any, held: Masks) -> Generator[None, None, Any]:
    """``((I - A)^-1).T`` in SBUF, float32; it yields where it waits for a product.

    Args:
        lower: A, strictly lower triangular, ``(rows, rows)`` in float32.
        upper: its transpose.
    """
    made = yield from _of_blocks(_masked(lower, held.blocks), _masked(upper, held.blocks), held)
    joins = held.between
    turned = streaming.transpose(made) if joins else made
    yield
    for number, mask in enumerate(joins):
        below = _product(_masked(lower, mask), made)
        more = number + 1 < len(joins)
        above = _product(_masked(upper, mask), turned) if more else None
        yield
        joined = _sum(made, _product(turned, below))
        turned = _sum(turned, _product(made, above)) if more else turned
        made = joined
        yield
    return made


def _of_blocks(lower: Any, upper: Any, held: Masks) -> Generator[None, None, Any]:
    """The transposed inverse of a block diagonal matrix: ``(I + A)(I + A^2)...``, transposed; powers commute."""
    rows = lower.shape[0]
    made = _sum(held.identity[0:rows, 0:rows], upper)
    reached = 2
    while reached < min(_BLOCK, rows):
        square = _product(upper, lower)
        upper = _product(lower, upper) if 2 * reached < min(_BLOCK, rows) else None
        lower = square
        yield
        made = _sum(made, _product(lower, made))
        reached *= 2
        yield
    return made


def _masked(tile: Any, mask: Any) -> Any:
    rows = tile.shape[0]
    made = streaming.sbuf(tile.shape, nl.float32)
    nisa.tensor_tensor(dst=made, data1=tile, data2=mask[0:rows, 0:rows], op=nl.multiply, engine=nisa.engine.gpsimd)
    return made


def _product(stationary: Any, moving: Any) -> Any:
    """``stationary.T @ moving``, in SBUF."""
    return streaming.copied(streaming.contract([stationary], [moving], streaming.psum(moving.shape)))


def _sum(a: Any, b: Any) -> Any:
    made = streaming.sbuf(a.shape, nl.float32)
    nisa.tensor_tensor(dst=made, data1=a, data2=b, op=nl.add)
    return made
