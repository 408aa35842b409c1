"""The gradient of pooling: to each window's chosen element goes what belongs to the window."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import float32, uint8
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.combine import column_of, combination, spread
from nki.graph.emit.kit.conv_shape import Window
from nki.graph.emit.kit.images import Images, WindowBlock, shifted
from nki.graph.emit.kit.panels import Dim, Loader, ProductOperand, chunked, joined, store, strides_of
from nki.graph.errors import unsupported
from nki.graph.ir import Op, Value
from nki.isa import alu
from nki.target.model import Target

_CHOICES = {"GE": alu.GREATER_EQUAL, "GT": alu.GREATER, "LE": alu.LESS_EQUAL, "LT": alu.LESS}

_MOST_BYTES = 150 << 10
"""Bytes of a partition for an image, its gradient, and what is made on the way."""


class Gradient:
    """A select_and_scatter.

    Args:
        op: the operation.
        target: where the kernel runs.
        along: dimensions with windows.
        windows: of these dimensions.

    Raises:
        GraphError: regions other than a comparison and an addition, or images too large (``graph.unsupported``).
    """

    def __init__(self, op: Op, target: Target, along: Sequence[int], windows: Sequence[Window]) -> None:
        self._op, self._target, self._along, self._windows = op, target, list(along), list(windows)
        self._dtype = op.operands[0].type.dtype
        chosen = op.regions[0]
        body = [inner for inner in chosen.ops if isinstance(inner, Op)]
        direction = body[0].attributes.get("comparison_direction") if len(body) == 1 else None
        if direction not in _CHOICES or tuple(body[0].operands) != tuple(chosen.arguments):
            raise unsupported(op, "its first region is not one comparison of both arguments", "select by GE or LE")
        if combination(op, op.regions[1]).operator != alu.ADD or not self._dtype.is_float:
            raise unsupported(op, "its second region does not add floats", "scatter with an addition of floats")
        self._stays = _CHOICES[direction]
        lengths = prod(window.reach(window.out) for window in self._windows)
        if 3 * lengths * float32.itemsize > _MOST_BYTES:
            raise unsupported(op, f"its windows cover {lengths} elements of each image", "pool smaller images")

    def run(self, source: NkiTensor, values: NkiTensor, initial: NkiTensor, result: NkiTensor) -> None:
        """From device memory to device memory, as many images as there are partitions at a time."""
        sides = [
            self._side(tensor, value)
            for tensor, value in ((source, self._op.operands[0]), (values, self._op.operands[1]))
        ]
        there = self._side(result, self._op.results[0])
        chunks = chunked(sides[0].contracted, self._target.partitions)
        images = Images(Loader(sides[0], chunks, self._dtype, self._target), self._windows)
        plain = [Window(window.out, 1, window.out) for window in self._windows]
        gradients = Images(Loader(sides[1], chunks, self._dtype, self._target), plain)
        column = column_of(initial, chunks.size, self._dtype)
        for piece in range(chunks.count):
            rows = slice(0, chunks.rows(piece))
            tile = images.load(0, 1, 0, self._windows[0].out, (piece, 1))[rows]
            given = gradients.load(0, 1, 0, self._windows[0].out, (piece, 1))[rows]
            store(there, chunks, piece, 0, self._finished(self._scattered(tile, given), column))

    def _side(self, tensor: NkiTensor, value: Value) -> ProductOperand:
        shape, steps = value.type.shape, strides_of(value.type.shape)
        rest = [Dim(shape[d], steps[d]) for d in range(len(shape)) if d not in self._along]
        return ProductOperand(
            tensor, (Dim(1, 1),), joined([Dim(shape[d], steps[d]) for d in self._along])[0], joined(rest)[0]
        )

    def _scattered(self, tile: NkiTensor, given: NkiTensor) -> NkiTensor:
        """The gradient at each padded position, in float32."""
        rows, counts = tile.shape[0], tuple(window.out for window in self._windows)
        sums = nl.ndarray((rows, 1, 1, *tile.shape[3:]), dtype=float32, buffer=nl.sbuf)
        nisa.memset(dst=sums, value=0.0)
        taps = list(combinations(*(range(window.taps) for window in self._windows)))
        places = self._places(tile, taps)
        given = self._copied(given, rows, counts)
        for number, tap in enumerate(taps):
            box = self._within(tap)
            if not box.size:
                continue
            there = (slice(0, rows), 0, 0, *shifted(self._windows, tap, box, 0))
            here = _windows_of(rows, box)
            chosen = nl.ndarray((rows, *box.counts), dtype=uint8, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=chosen, data=places[here], op0=alu.EQUAL, operand0=float(number))
            moved = nl.ndarray((rows, *box.counts), dtype=float32, buffer=nl.sbuf)
            nisa.memset(dst=moved, value=0.0)
            nisa.tensor_copy_predicated(dst=moved, src=given[here], predicate=chosen)
            nisa.tensor_tensor(dst=sums[there], data1=sums[there], data2=moved, op=alu.ADD)
        return sums

    def _copied(self, given: NkiTensor, rows: int, counts: tuple[int, ...]) -> NkiTensor:
        wide = nl.ndarray((rows, *counts), dtype=float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=wide, src=given[(slice(0, rows), 0, 0, *(slice(0, count) for count in counts))])
        return wide

    def _places(self, tile: NkiTensor, taps: Sequence[tuple[int, ...]]) -> NkiTensor:
        """The number of the tap that each window chooses: (rows, windows...); -1 for windows of padding alone.

        A window is walked through in order, and what the comparison does not keep is replaced. NaN is never kept, and
        so the walk begins with one; padding is no candidate.
        """
        rows, counts = tile.shape[0], tuple(window.out for window in self._windows)
        best = nl.ndarray((rows, *counts), dtype=tile.dtype, buffer=nl.sbuf)
        nisa.memset(dst=best, value=float("nan"))
        places = nl.ndarray((rows, *counts), dtype=float32, buffer=nl.sbuf)
        nisa.memset(dst=places, value=-1.0)
        for number, tap in enumerate(taps):
            box = self._within(tap)
            if not box.size:
                continue
            here = _windows_of(rows, box)
            seen = tile[(slice(0, rows), 0, 0, *shifted(self._windows, tap, box, 0))]
            lost = nl.ndarray((rows, *box.counts), dtype=uint8, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=lost, data1=best[here], data2=seen, op=self._stays)
            nisa.tensor_scalar(dst=lost, data=lost, op0=alu.EQUAL, operand0=0.0)
            nisa.tensor_copy_predicated(dst=best[here], src=seen, predicate=lost)
            nisa.tensor_copy_predicated(dst=places[here], src=float(number), predicate=lost)
        return places

    def _within(self, tap: Sequence[int]) -> WindowBlock:
        """The windows in which a tap is on the image and not on its padding."""
        spans = []
        for window, number in zip(self._windows, tap, strict=True):
            before = window.low - window.at(number)
            first = max(0, -(-before // window.stride))
            stop = min(window.out, (before + window.size - 1) // window.stride + 1)
            spans.append((first, max(0, stop - first)))
        return WindowBlock(tuple(first for first, _ in spans), tuple(count for _, count in spans))

    def _finished(self, sums: NkiTensor, column: NkiTensor) -> NkiTensor:
        """Without the padding, with the initial value, in the dtype of the result: (rows, elements)."""
        rows, sizes = sums.shape[0], tuple(window.size for window in self._windows)
        result = nl.ndarray((rows, *sizes), dtype=self._dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=spread(column, result.shape))
        spans = [window.inside(0, window.reach(window.out)) for window in self._windows]
        src = tuple(slice(at, at + count) for _, count, at in spans)
        dst = tuple(slice(first, first + count) for first, count, _ in spans)
        if all(count for _, count, _ in spans):
            part = result[(slice(0, rows), *dst)]
            nisa.tensor_tensor(dst=part, data1=sums[(slice(0, rows), 0, 0, *src)], data2=part, op=alu.ADD)
        return result.reshape((rows, prod(sizes)))


def _windows_of(rows: int, box: WindowBlock) -> tuple[slice, ...]:
    spans = zip(box.starts, box.counts, strict=True)
    return (slice(0, rows), *(slice(first, first + count) for first, count in spans))
