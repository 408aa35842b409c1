"""A sorting network along the rows of tiles: every row of every operand is brought into the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import float32, uint8
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu

Before = Callable[[Sequence[NkiTensor], Sequence[NkiTensor]], NkiTensor]
"""Where the first elements (one tile for each operand) come strictly before the second ones: uint8 of 0 and 1."""


def sort_rows(tiles: Sequence[NkiTensor], length: int, before: Before, stable: bool) -> None:
    """Sort tiles (rows, a power of two) in place, by their first `length` elements; the rest stays behind them.

    The network is the bitonic one whose exchanges all bring the earlier element to the front: the first exchange of a
    merge goes from both ends to the middle. It is not stable by itself, so equal elements are told apart by where they
    were.

    Args:
        tiles: one for each operand; they are overwritten.
        before: the order.
        stable: whether equal elements keep their order.
    """
    rows, size = tiles[0].shape
    held = list(tiles)
    numbered = stable or length < size
    if numbered:
        places = nl.ndarray((rows, size), dtype=float32, buffer=nl.sbuf)
        nisa.iota(dst=places, pattern=[[1, size]])
        held.append(places)
    block = 2
    while block <= size:
        _exchange(held, block, True, length, before, stable, numbered)
        step = block // 2
        while step > 1:
            _exchange(held, step, False, length, before, stable, numbered)
            step //= 2
        block *= 2


def _sides(tile: NkiTensor, block: int, mirrored: bool) -> tuple[NkiTensor, NkiTensor]:
    """The first and the second elements of all pairs, (rows, blocks, pairs)."""
    rows, size = tile.shape
    half = block // 2
    shape = [[size, rows], [block, size // block]]
    first = tile.ap([*shape, [1, half]], offset=0)
    second = tile.ap([*shape, [-1, half]], offset=block - 1) if mirrored else tile.ap([*shape, [1, half]], offset=half)
    return first, second


def _exchange(
    tiles: Sequence[NkiTensor], block: int, mirrored: bool, length: int, before: Before, stable: bool, numbered: bool
) -> None:
    sides = [_sides(tile, block, mirrored) for tile in tiles]
    operands = sides[:-1] if numbered else sides
    first, second = [a for a, _ in operands], [b for _, b in operands]
    swap = before(second, first)
    if stable:
        swap = _with_ties(swap, before(first, second), sides[-1])
    if length < tiles[0].shape[1]:
        real = nl.ndarray(swap.shape, dtype=uint8, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=real, data=sides[-1][1], op0=alu.LESS, operand0=float(length))
        swap = _both(swap, real, alu.MULTIPLY)
    for a, b in sides:
        kept = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=kept, src=a)
        nisa.tensor_copy_predicated(dst=a, src=b, predicate=swap)
        nisa.tensor_copy_predicated(dst=b, src=kept, predicate=swap)


def _with_ties(swap: NkiTensor, right: NkiTensor, places: tuple[NkiTensor, NkiTensor]) -> NkiTensor:
    """Whether two elements change places, also where neither comes first and the second one did before."""
    later = nl.ndarray(swap.shape, dtype=uint8, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=later, data1=places[0], data2=places[1], op=alu.GREATER)
    return _both(swap, _both(later, right, alu.GREATER), alu.MAXIMUM)


def _both(a: NkiTensor, b: NkiTensor, op: object) -> NkiTensor:
    result = nl.ndarray(a.shape, dtype=uint8, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=result, data1=a, data2=b, op=op)
    return result
