"""Templates of records: everything that a compiled function reads but the addresses, which are filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import NamedTuple

from nki.core.tensor import View
from nki.native.operand_layout import DIMENSIONS, HEADER, SLOT, Dimension, Place, padded, refined, row_dims, start_of

PITCH = 1 << 40
"""Stands for the distance of partitions, which is not known before the tensor has a place; no stride reaches it."""

_ROWS = 128
"""Rows into which a copy from device memory to device memory is divided."""


class Patch(NamedTuple):
    """Words that depend on where an operand lies.

    Attributes:
        at: the first word of its slot.
        pitches: words that hold a multiple of the distance between partitions, and the multiple.
    """

    at: int
    pitches: tuple[tuple[int, int], ...]


class Template(NamedTuple):
    """A record without addresses.

    Attributes:
        name: of the function that executes it.
        text: makes the MLIR module that defines the function.
        words: the record.
        patches: one for each slot.
    """

    name: str
    text: Callable[[], str]
    words: tuple[int, ...]
    patches: tuple[Patch, ...]

    def filled(self, function: int, views: Sequence[View | None], places: Sequence[Place]) -> list[int]:
        """The record for operands at these places; a view is None for registers, which begin where their place does."""
        words = list(self.words)
        words[0] = function
        for patch, view, place in zip(self.patches, views, places, strict=True):
            at = patch.at
            words[at] = place.base
            words[at + 1] = place.start if view is None else start_of(view, place)[0]
            for word, multiple in patch.pitches:
                words[word] = multiple * place.pitch
        return words


class Unfit(Exception):
    """An operand has more dimensions than a record has words for."""


def row_slot(view: View, at: int) -> tuple[list[int], Patch]:
    """The words of an operand that is read or written partition by partition."""
    dims = row_dims(view)
    if len(dims) > DIMENSIONS:
        raise Unfit
    size = view.dtype.itemsize
    unit = int(not dims or dims == [(view.free_size, size)])
    step, pitches = _partition_step(view, at + 2)
    return [0, 0, step, unit, *padded(dims)], Patch(at, pitches)


def rows_slot(view: View, at: int) -> tuple[list[int], Patch]:
    """The words of an operand whose second dimension counts rows of each partition; it comes first, behind it a row."""
    count, size = view.shape[1], view.dtype.itemsize
    row = row_dims(view._replace(shape=(view.shape[0], *view.shape[2:]), strides=(view.strides[0], *view.strides[2:])))
    if len(row) >= DIMENSIONS:
        raise Unfit
    unit = int(not row or row == [(view.free_size // count, size)])
    step, pitches = _partition_step(view, at + 2)
    return [0, 0, step, unit, count, view.strides[1] * size, *padded(row)[2:]], Patch(at, pitches)


def column_slot(step: int, at: int) -> tuple[list[int], Patch]:
    """The words of one value for each partition, `step` bytes apart."""
    return [0, 0, step, 1, *padded([])], Patch(at, ())


def copy_words(dst: View, src: View, axes: Sequence[int] | None) -> tuple[list[int], tuple[Patch, Patch]]:
    """Header and slots of a copy in element order; with `axes`, dimension i of `dst` is ``axes[i]`` of `src`."""
    there, here = symbolic_dims(dst), symbolic_dims(src)
    here = here if axes is None else [here[axis] for axis in axes]
    both = refined(there, here)
    if both is None:
        raise Unfit
    return _copy_record(list(zip(*both, strict=True)), dst.dtype.itemsize)


def symbolic_dims(view: View) -> list[Dimension]:
    """All dimensions in bytes; the distance of partitions is a symbol, so that it is never merged with a number."""
    size = view.dtype.itemsize
    dims = [(n, s * size) for n, s in zip(view.shape, view.strides, strict=True)]
    if view.buffer.on_chip:
        dims[0] = (view.shape[0], PITCH)
    return dims


def _copy_record(pairs: list[tuple[Dimension, Dimension]], size: int) -> tuple[list[int], tuple[Patch, Patch]]:
    first = _partition_dimension(pairs)
    outer = pairs.pop(first) if pairs else ((1, 0), (1, 0))
    if not pairs:
        outer, pairs = _in_rows(outer)
    if len(pairs) > DIMENSIONS:
        raise Unfit
    count, elements = outer[0][0], prod([pair[0][0] for pair in pairs])
    words, patches = [0, 0, count, elements], []
    for side in (0, 1):
        at = len(words)
        dims = [pair[side] for pair in pairs]
        unit = int(not dims or dims == [(elements, size)])
        slot = [0, 0, outer[side][1], unit, *padded(dims)]
        pitches = [(at + i, value // PITCH) for i, value in enumerate(slot) if value >= PITCH]
        words += slot
        patches.append(Patch(at, tuple(pitches)))
    return words, (patches[0], patches[1])


def _in_rows(
    pair: tuple[Dimension, Dimension],
) -> tuple[tuple[Dimension, Dimension], list[tuple[Dimension, Dimension]]]:
    """One dimension of device memory as rows, which are copied as a whole and shared among threads."""
    (count, there), (_, here) = pair
    rows = gcd(count, _ROWS)
    if rows == count or there >= PITCH or here >= PITCH:
        return pair, []
    inner = count // rows
    return ((rows, there * inner), (rows, here * inner)), [((inner, there), (inner, here))]


def _partition_dimension(pairs: Sequence[tuple[Dimension, Dimension]]) -> int:
    """The dimension that steps through the partitions of the destination, else of the source, else the first one."""
    for side in (0, 1):
        steps = [i for i, pair in enumerate(pairs) if pair[side][1] >= PITCH]
        if steps:
            return max(steps, key=lambda i: pairs[i][0][0])
    return 0


def _partition_step(view: View, word: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    if view.buffer.on_chip:
        return 0, ((word, 1),)
    return view.strides[0] * view.dtype.itemsize, ()


def header(partitions: int, elements: int) -> list[int]:
    """The first words of a record; the address and the length are filled in."""
    words = [0] * HEADER
    words[2], words[3] = partitions, elements
    return words


def finished(words: Sequence[int]) -> tuple[int, ...]:
    """The words with their number in place."""
    return (words[0], len(words), *words[2:])


__all__ = ["SLOT", "Patch", "Template", "Unfit", "column_slot", "copy_words", "finished", "header", "row_slot"]
