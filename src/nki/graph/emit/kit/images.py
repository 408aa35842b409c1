"""Images in SBUF, a channel per partition, with the padding and the gaps that windows slide over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.conv_shape import Window
from nki.graph.emit.kit.panels import Loader, OperandBlock


@dataclass(frozen=True, slots=True)
class WindowBlock:
    """A block of windows: starts and counts, for each spatial dimension."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def size(self) -> int:
        """Windows in it."""
        return prod(self.counts)


def boxes(counts: Sequence[int], most: Sequence[int]) -> list[WindowBlock]:
    """All windows in boxes of at most these sizes."""
    starts = [range(0, count, step) for count, step in zip(counts, most, strict=True)]
    return [
        WindowBlock(chosen, tuple(min(step, count - at) for at, step, count in zip(chosen, most, counts, strict=True)))
        for chosen in combinations(*starts)
    ]


def filling(counts: Sequence[int], limit: int) -> tuple[int, ...]:
    """Sizes of a box with at most `limit` elements: whole inner dimensions, as much as fits of the next one."""
    result, room = [], limit
    for count in reversed(counts):
        size = max(1, min(count, room))
        result.append(size)
        room = room // size if size == count else 1
    return tuple(reversed(result))


class Images:
    """Loads blocks of images as (channels, batch, pieces of channels, padded positions...).

    Args:
        loader: of the operand (batch, spatial dimensions, channels).
        windows: for each spatial dimension.
        fill: what the padding holds; a column for a number that only the device knows.
    """

    def __init__(self, loader: Loader, windows: Sequence[Window], fill: float | NkiTensor = 0.0) -> None:
        self._loader = loader
        self._windows = tuple(windows)
        self._fill = fill
        self._inner = prod(window.size for window in self._windows[1:])

    def bytes_per_image(self, outs: int) -> int:
        """What one image with so many windows in the first dimension takes of each partition."""
        inner = prod(window.reach(window.out) for window in self._windows[1:])
        return self._windows[0].reach(outs) * inner * self._loader.bytes_per_column()

    def load(self, batch: int, batches: int, start: int, outs: int, pieces: tuple[int, int] | None = None) -> NkiTensor:
        """Windows `start` to ``start + outs`` of the first spatial dimension, all of the others.

        Args:
            pieces: of the channels, first and count; all of them by default.
        """
        first = self._windows[0]
        pieces = pieces or (0, self._loader.chunks.count)
        spans = [(start * first.stride, first.reach(outs)), *((0, w.reach(w.out)) for w in self._windows[1:])]
        found = [w.inside(at, length) for w, (at, length) in zip(self._windows, spans, strict=True)]
        row, rows, _ = found[0]
        lengths = tuple(length for _, length in spans)
        if not all(count for _, count, _ in found):
            return self._padding(batches, lengths, pieces[1])
        stage = self._loader.load(OperandBlock(batch, batches, row * self._inner, rows * self._inner, *pieces))
        whole = (*stage.shape[:3], rows, *(w.size for w in self._windows[1:]))
        stage = stage.reshape(whole)
        if self._is_whole(found, lengths, whole[3:]):
            return stage
        return self._placed(stage, found, lengths, pieces[0])

    def _is_whole(self, found: Sequence[tuple[int, int, int]], lengths: Sequence[int], sizes: Sequence[int]) -> bool:
        """Whether what was loaded starts where the windows do, and has all that they reach."""
        spread = all(window.spread == 1 for window in self._windows)
        even = all(at == 0 and count >= length for (_, count, at), length in zip(found, lengths, strict=True))
        from_start = all(first == 0 for first, _, _ in found[1:])
        return spread and even and from_start and all(s >= n for s, n in zip(sizes, lengths, strict=True))

    def _padding(self, batches: int, lengths: Sequence[int], pieces: int) -> NkiTensor:
        shape = (self._loader.chunks.size, batches, pieces, *lengths)
        tile = nl.ndarray(shape, dtype=self._loader.dtype, buffer=nl.sbuf)
        if isinstance(self._fill, NkiTensor):
            nisa.tensor_copy(dst=tile, src=self._fill[0 : shape[0], :].broadcast(1, prod(shape[1:])))
        else:
            nisa.memset(dst=tile, value=self._fill)
        return tile

    def _placed(
        self, stage: NkiTensor, found: Sequence[tuple[int, int, int]], lengths: Sequence[int], first: int
    ) -> NkiTensor:
        tile = self._padding(stage.shape[1], lengths, stage.shape[2])
        src = [slice(0, found[0][1]), *(slice(start, start + count) for start, count, _ in found[1:])]
        dst = [
            slice(at, at + (count - 1) * window.spread + 1, window.spread)
            for window, (_, count, at) in zip(self._windows, found, strict=True)
        ]
        images = slice(0, stage.shape[1])
        for piece in range(stage.shape[2]):
            rows = slice(0, self._loader.chunks.rows(first + piece))
            nisa.tensor_copy(dst=tile[(rows, images, piece, *dst)], src=stage[(rows, images, piece, *src)])
        return tile

    def under(
        self, tile: NkiTensor, taps: Sequence[int], box: WindowBlock, start: int, images: slice, rows: int, piece: int
    ) -> NkiTensor:
        """What a tap sees of a block of windows, (channels, images, windows...); `start` is the tile's first window."""
        return tile[(slice(0, rows), images, piece, *shifted(self._windows, taps, box, start))]


def shifted(windows: Sequence[Window], taps: Sequence[int], box: WindowBlock, start: int) -> tuple[slice, ...]:
    """Padded positions of a tap for a block of windows; `start` is the first window of the first dimension."""
    result = []
    for dim, (window, tap, first, count) in enumerate(zip(windows, taps, box.starts, box.counts, strict=True)):
        at = (first - (start if dim == 0 else 0)) * window.stride + window.at(tap)
        result.append(slice(at, at + (count - 1) * window.stride + 1, window.stride))
    return tuple(result)
