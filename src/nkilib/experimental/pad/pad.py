"""Padding around up to three dimensions: with a number, the nearest element, a mirror image, or the other end.

Shapes: x is batch dimensions of any number, then one to three spatial ones, the last of which is padded first; the
result has the same dimensions, the padded ones longer by what is before and after. dtypes: any, moved bit for bit.

Plan: of a large batch of small images each lies on a partition, where Vector puts it together; of others, rows lie on
partitions and get their ends there, and rows of padding are copies, by DMA, of rows that are complete. Cores share the
batch. DMA bounds it.

Source: nki/library/api/pad.rst; modes and order of the numbers are those of torch.nn.functional.pad.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.products import own
from nkilib.streaming import filled, load, result, sbuf, size, spans, store

MODES = ("constant", "replicate", "reflect", "circular")

_CHUNK_BYTES = 16 * 1024
"""Of a row, that are padded at once."""

_IMAGE_BYTES = 48 * 1024
"""Of an image that lies on one partition."""

_IMAGES = 16
"""Images that are worth it."""

Run = tuple[slice, int, int]
"""Positions of a padded dimension, the input's position of the first of them, and the step from there: 0, 1 or -1."""


@nki.jit
def pad(x_ref: Any, padding: Sequence[int], mode: str = "replicate", value: float = 0) -> Any:
    """Pad the last dimensions.

    Args:
        x_ref: any dtype.
        padding: (before, after) of the last dimension, then of the last but one, and the one before it.
        mode: "constant", "replicate", "reflect" (without the outermost element) or "circular".
        value: of the padding in mode "constant".

    Returns:
        The padded tensor.

    Raises:
        KernelLimit: padding that does not fit the tensor or the mode.
    """
    sides = _checked(x_ref, padding, mode)
    count = len(sides)
    sizes = tuple(x_ref.shape[len(x_ref.shape) - count :])
    batch = x_ref.shape[: len(x_ref.shape) - count]
    longer = tuple(each + sum(both) for each, both in zip(sizes, sides, strict=True))
    out = result((*batch, *longer), x_ref.dtype)
    mine = own(prod(batch))
    if size(mine):
        x, y = x_ref.reshape((prod(batch), *sizes))[mine], out.reshape((prod(batch), *longer))[mine]
        dims = [Dim(runs(each, *both, mode), both[0], each) for each, both in zip(sizes, sides, strict=True)]
        number = value if mode == "constant" else None
        small = count > 1 and prod(longer) * x_ref.dtype.itemsize <= _IMAGE_BYTES
        (_pad_images if small and size(mine) >= _IMAGES else _pad_rows)(x, y, dims, number)
    return out


def _checked(x: Any, padding: Sequence[int], mode: str) -> list[tuple[int, int]]:
    """What is before and after each padded dimension, the first one first."""
    limits.one_of("mode", mode, MODES)
    rule = "two numbers for each of the last one to three dimensions"
    limits.need(len(padding) in (2, 4, 6), "padding", tuple(padding), rule, "pass (before, after)")
    count = len(padding) // 2
    limits.between("number of dimensions of x_ref", len(x.shape), count, 16, "each padded one is among them")
    sides = [(padding[2 * place], padding[2 * place + 1]) for place in reversed(range(count))]
    for length, both in zip(x.shape[len(x.shape) - count :], sides, strict=True):
        limits.need(min(both) >= 0, "padding", both, "padding is not negative", "slice the tensor instead")
        most = {"reflect": length - 1, "circular": length}.get(mode)
        if most is not None:
            limits.between(f"padding of a dimension of {length}", max(both), 0, most, f"{mode} padding is part of it")
    return sides


def runs(length: int, before: int, after: int, mode: str) -> list[Run]:
    """The padded dimension in runs; the one of the input itself begins at `before` and has `length` elements."""
    left, right = slice(0, before), slice(before + length, before + length + after)
    first = {"reflect": (before, -1), "circular": (length - before, 1)}.get(mode, (0, 0))
    last = {"reflect": (length - 2, -1), "circular": (0, 1)}.get(mode, (length - 1, 0))
    found: list[Run] = [(left, *first), (slice(before, before + length), 0, 1), (right, *last)]
    return [run for run in found if size(run[0])]


class Dim(NamedTuple):
    """A padded dimension.

    Attributes:
        runs: all of it.
        before, length: where the input begins, and how long it is.
    """

    runs: list[Run]
    before: int
    length: int

    @property
    def inside(self) -> slice:
        """The input's part of it."""
        return slice(self.before, self.before + self.length)

    @property
    def around(self) -> list[Run]:
        """The runs of padding."""
        return [run for run in self.runs if run[0] != self.inside]


def _pad_images(x: Any, out: Any, dims: list[Dim], number: float | None) -> None:
    """Images on partitions: the last dimension is padded first, then the others, of which it is a part."""
    for part in spans(x.shape[0], nl.tile_size.pmax):
        shape = (size(part), *out.shape[1:])
        tile = sbuf(shape, x.dtype) if number is None else filled(shape, x.dtype, number)
        nisa.tensor_copy(dst=tile[(slice(None), *(dim.inside for dim in dims))], src=load(x[part]))
        for place in reversed(range(len(dims) if number is None else 0)):
            lead = (slice(None), *(dim.inside for dim in dims[:place]))
            for where, start, step in dims[place].around:
                first = dims[place].before + start
                for target, source in _copies(where, first, step):
                    nisa.tensor_copy(dst=tile[(*lead, target)], src=tile[(*lead, source)])
        store(out[part], tile)


def _copies(where: slice, first: int, step: int) -> list[tuple[slice, slice]]:
    """Pieces of a run and what they are copies of: all at once, or element by element if they are not in order."""
    if step == 1:
        return [(where, slice(first, first + size(where)))]
    places = [first + step * number for number in range(size(where))]
    starts = range(where.start, where.stop)
    return [(slice(to, to + 1), slice(place, place + 1)) for to, place in zip(starts, places, strict=True)]


def _pad_rows(x: Any, out: Any, dims: list[Dim], number: float | None) -> None:
    """Rows on partitions; then the other dimensions, from what is there already."""
    *others, last = dims
    inner = (slice(None), *(dim.inside for dim in others))
    _pad_last(x, out[(*inner, slice(None))], last.runs, number)
    for place in reversed(range(len(others))):
        part, dim = out[inner[: place + 1]], others[place]
        lead = (slice(None),) * (place + 1)
        for where, start, step in dim.around:
            if number is not None:
                _pad_with(part[(*lead, where)], number)
                continue
            for target, source in _copies(where, dim.before + start, step):
                nisa.dma_copy(dst=part[(*lead, target)], src=part[(*lead, source)])


def _pad_last(x: Any, out: Any, along: list[Run], number: float | None) -> None:
    """Rows of x, padded at their ends: `out` has the same dimensions, the last one longer."""
    for box in _boxes(x.shape[:-1], nl.tile_size.pmax):
        rows = prod(map(size, box))
        for chunk in spans(out.shape[-1], _CHUNK_BYTES // x.dtype.itemsize):
            tile = sbuf((rows, size(chunk)), x.dtype)
            for where, start, step in along:
                here = slice(max(where.start, chunk.start), min(where.stop, chunk.stop))
                if here.start < here.stop:
                    place = tile[:, here.start - chunk.start : here.stop - chunk.start]
                    _fill(place, x[box], start + step * (here.start - where.start), step, number)
            store(out[(*box, chunk)], tile)


def _fill(target: Any, rows: Any, start: int, step: int, number: float | None) -> None:
    """Columns of a tile from those of rows in HBM, from `start` on."""
    count = target.shape[1]
    if number is not None and step != 1:
        nisa.memset(dst=target, value=number)
    elif step == 1:
        nisa.dma_copy(dst=target, src=rows[..., start : start + count])
    else:
        first = start - count + 1 if step < 0 else start
        source = sbuf((target.shape[0], count if step else 1), target.dtype)
        nisa.dma_copy(dst=source, src=rows[..., first : first + source.shape[1]])
        for column in range(count):
            from_column = count - 1 - column if step else 0
            nisa.tensor_copy(dst=target[:, column : column + 1], src=source[:, from_column : from_column + 1])


def _pad_with(target: Any, number: float) -> None:
    """One number everywhere."""
    wide = min(target.shape[-1], _CHUNK_BYTES // target.dtype.itemsize)
    tile = filled((nl.tile_size.pmax, wide), target.dtype, number)
    for box in _boxes(target.shape[:-1], nl.tile_size.pmax):
        for chunk in spans(target.shape[-1], wide):
            store(target[(*box, chunk)], tile[0 : prod(map(size, box)), 0 : size(chunk)])


def _boxes(shape: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Parts of at most so many elements that follow each other."""
    steps: list[int] = []
    for length in reversed(shape):
        steps.insert(0, max(1, min(length, most)))
        most //= steps[0]
    yield from product(*(spans(length, step) for length, step in zip(shape, steps, strict=True)))
