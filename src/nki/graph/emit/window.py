"""Kernels for windows: pooling, running sums, and the gradient of pooling."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as combinations
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, float32
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.combine import Combination, column_of, combination, spread
from nki.graph.emit.kit.conv_shape import MOST_POOLED, Window, refuse_dims
from nki.graph.emit.kit.engines import storage
from nki.graph.emit.kit.images import Images, WindowBlock, shifted
from nki.graph.emit.kit.panels import Chunks, Dim, Loader, ProductOperand, chunked, joined, store, strides_of
from nki.graph.emit.select_and_scatter import Gradient
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op, Value
from nki.isa import alu
from nki.target.model import Target

_IMAGE_BYTES = 40 << 10
"""Bytes of a partition for the padded images that are in SBUF at once."""

_REDUCED_DIMS = 2
"""Spatial dimensions that one instruction reduces windows of."""


def emit_window(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a reduce_window (or of a select_and_scatter, which is the same kind of group).

    Raises:
        GraphError: several operands, or a region that is no single operator (``graph.unsupported``).
    """
    op = group.ops[-1]
    if op.name == "select_and_scatter":
        return emit_select_and_scatter(group, target)
    if len(op.results) != 1:
        raise unsupported(op, f"it reduces {len(op.results)} operands together", "reduce each operand by itself")
    how = combination(op, op.regions[0])
    if how.operator is None:
        raise unsupported(op, "its region returns its second argument", "slice the operand instead")
    if op.operands[0].type.shape:
        refuse_dims(op, len(window_dims(op)[0]), MOST_POOLED)

    def windows(*tensors: NkiTensor) -> None:
        known = dict(zip((*group.inputs, *group.outputs), tensors, strict=True))
        _Pooling(op, how, target).run(*(known[value] for value in (*op.operands, *op.results)))

    return windows


def emit_select_and_scatter(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a select_and_scatter, the gradient of pooling.

    Raises:
        GraphError: regions other than a comparison and an addition (``graph.unsupported``).
    """
    op = group.ops[-1]
    refuse_dims(op, len(window_dims(op)[0]), MOST_POOLED)
    gradient = Gradient(op, target, *window_dims(op))

    def select_and_scatter(*tensors: NkiTensor) -> None:
        known = dict(zip((*group.inputs, *group.outputs), tensors, strict=True))
        gradient.run(*(known[value] for value in (*op.operands, *op.results)))

    return select_and_scatter


def window_dims(op: Op) -> tuple[list[int], list[Window]]:
    """The dimensions along which there are windows, at least one, and their windows."""
    shape = op.operands[0].type.shape
    counts = op.operands[1].type.shape if op.name == "select_and_scatter" else op.results[0].type.shape
    a, rank = op.attributes, len(shape)
    ones = (1,) * rank
    padding = a.get("padding") or ((0, 0),) * rank
    windows = [
        Window(
            size=shape[d],
            taps=int((a.get("window_dimensions") or ones)[d]),
            out=counts[d],
            stride=int((a.get("window_strides") or ones)[d]),
            low=int(padding[d][0]),
            high=int(padding[d][1]),
            spread=int((a.get("base_dilations") or ones)[d]),
            dilation=int((a.get("window_dilations") or ones)[d]),
        )
        for d in range(rank)
    ]
    found = [d for d in range(rank) if windows[d] != Window(shape[d], 1, shape[d])] or list(range(rank))[-1:]
    return found, [windows[d] for d in found]


def operand_of(tensor: NkiTensor, value: Value, along: list[int]) -> ProductOperand:
    """Dimensions with windows as the free group, the others over the partitions."""
    shape, steps = value.type.shape, strides_of(value.type.shape)
    rest = [Dim(shape[d], steps[d]) for d in range(len(shape)) if d not in along]
    free = joined([Dim(shape[d], steps[d]) for d in along])[0]
    return ProductOperand(tensor, (Dim(1, 1),), free, joined(rest)[0])


class _Pooling:
    """A reduce_window with one operand."""

    def __init__(self, op: Op, how: Combination, target: Target) -> None:
        self._op, self._how, self._target = op, how, target
        self._along, self._windows = window_dims(op) if op.operands[0].type.shape else ([], [Window(1, 1, 1)])
        self._dtype: DType = storage(op.operands[0].type.dtype)
        self._wide = float32 if self._dtype.is_float else self._dtype

    def run(self, source: NkiTensor, initial: NkiTensor, result: NkiTensor) -> None:
        """From device memory to device memory, as many rows as there are partitions at a time."""
        image = operand_of(source, self._op.operands[0], self._along)
        there = operand_of(result, self._op.results[0], self._along)
        chunks = self._chunks(image, there)
        column = column_of(initial, chunks.size, self._dtype)
        images = Images(Loader(image, chunks, self._dtype, self._target), self._windows, column)
        height = 1 if self._direction() else self._height(images, chunks)
        for piece in range(chunks.count):
            if self._direction():
                self._running(image, there, chunks, piece, column)
                continue
            for start in range(0, self._windows[0].out, height):
                outs = min(height, self._windows[0].out - start)
                tile = images.load(0, 1, start, outs, (piece, 1))
                sums = self._reduced(tile[0 : chunks.rows(piece)], outs)
                inner = prod(window.out for window in self._windows[1:])
                store(there, chunks, piece, start * inner, self._finished(sums, column))

    def _chunks(self, image: ProductOperand, there: ProductOperand) -> Chunks:
        both = joined(image.contracted, there.contracted) if len(image.contracted) == len(there.contracted) else None
        rows = self._target.partitions
        return chunked(image.contracted if both is None else both[0], rows)

    def _height(self, images: Images, chunks: Chunks) -> int:
        height = self._windows[0].out
        while height > 1 and images.bytes_per_image(height) > _IMAGE_BYTES * chunks.count:
            height = -(-height // 2)
        return height

    def _finished(self, sums: NkiTensor, column: NkiTensor) -> NkiTensor:
        """With the initial value, and in the dtype of the result."""
        result = nl.ndarray(sums.shape, dtype=self._dtype, buffer=nl.sbuf)
        self._how.into(result, sums, spread(column, sums.shape))
        return result

    # --- windows

    def _reduced(self, tile: NkiTensor, outs: int) -> NkiTensor:
        """(rows, windows) of a tile (rows, 1, 1, padded positions...)."""
        counts = (outs, *(window.out for window in self._windows[1:]))
        sums = nl.ndarray((tile.shape[0], prod(counts)), dtype=self._wide, buffer=nl.sbuf)
        if len(self._windows) <= _REDUCED_DIMS and not self._how.words:
            nisa.tensor_reduce(
                dst=sums,
                op=self._how.operator,
                data=self._all_windows(tile, counts),
                axis=tuple(range(1 + len(counts), 1 + 2 * len(counts))),
            )
            return sums
        for number, taps in enumerate(combinations(*(range(window.taps) for window in self._windows))):
            box = WindowBlock((0,) * len(counts), counts)
            seen = tile[(slice(0, tile.shape[0]), 0, 0, *shifted(self._windows, taps, box, 0))]
            if number == 0:
                nisa.tensor_copy(dst=sums, src=seen)
            else:
                self._how.into(sums, sums, seen)
        return sums

    def _all_windows(self, tile: NkiTensor, counts: tuple[int, ...]) -> NkiTensor:
        """Windows that overlap, as dimensions of their own: (rows, windows..., taps...)."""
        lengths = tile.shape[3:]
        steps = strides_of(lengths)
        pattern = [[prod(lengths), tile.shape[0]]]
        pattern += [[w.stride * step, count] for w, step, count in zip(self._windows, steps, counts, strict=True)]
        pattern += [[w.dilation * step, w.taps] for w, step in zip(self._windows, steps, strict=True)]
        return tile.ap(pattern, offset=0)

    # --- running sums

    def _direction(self) -> int:
        """1 if each window ends at its element and begins with the first one, -1 the other way round, else 0."""
        window = self._windows[0]
        plain = window.stride == window.dilation == window.spread == 1 and window.taps == window.size
        if len(self._windows) != 1 or not plain or window.taps == 1:
            return 0
        return {(window.taps - 1, 0): 1, (0, window.taps - 1): -1}.get((window.low, window.high), 0)

    def _running(
        self, image: ProductOperand, there: ProductOperand, chunks: Chunks, piece: int, column: NkiTensor
    ) -> None:
        rows, length = chunks.rows(piece), self._windows[0].size
        plain = Images(Loader(image, chunks, self._dtype, self._target), [Window(length, 1, length)])
        tile = plain.load(0, 1, 0, length, (piece, 1)).reshape((chunks.size, length))[0:rows, :]
        step = self._direction()
        sums = self._doubled(tile, step) if self._how.words else self._scanned(tile, step)
        store(there, chunks, piece, 0, self._finished(sums, column))

    def _scanned(self, tile: NkiTensor, step: int) -> NkiTensor:
        rows, length = tile.shape
        sums = nl.ndarray((rows, length), dtype=self._wide, buffer=nl.sbuf)
        seen, out = (tile, sums) if step > 0 else (_backwards(tile), _backwards(sums))
        operator = self._how.operator
        assert operator is not None, "a replacement has no sums"
        if operator == alu.ADD:
            first, op0, start = self._ones(rows, length), alu.MULTIPLY, 0.0
        elif operator == alu.MULTIPLY:
            nisa.tensor_tensor_scan(
                dst=out, data0=seen, data1=self._ones(rows, length), initial=1.0, op0=operator, op1=operator
            )
            return sums
        else:
            worst = self._dtype.min if operator == alu.MAXIMUM else self._dtype.max
            lowest = float("-inf") if operator == alu.MAXIMUM else float("inf")
            first, op0, start = seen, operator, lowest if self._dtype.is_float else float(worst)
        nisa.tensor_tensor_scan(dst=out, data0=first, data1=seen, initial=start, op0=op0, op1=operator)
        return sums

    def _ones(self, rows: int, length: int) -> NkiTensor:
        one = nl.ndarray((rows, 1), dtype=float32, buffer=nl.sbuf)
        nisa.memset(dst=one, value=1.0)
        return one.broadcast(1, length)

    def _doubled(self, tile: NkiTensor, step: int) -> NkiTensor:
        """32-bit integers exactly: sums over 1, 2, 4, ... elements."""
        rows, length = tile.shape
        reach = 1
        while reach < length:
            result = nl.ndarray((rows, length), dtype=self._dtype, buffer=nl.sbuf)
            low, high = slice(0, length - reach), slice(reach, length)
            kept, added, to = (slice(0, reach), low, high) if step > 0 else (slice(length - reach, length), high, low)
            nisa.tensor_copy(dst=result[:, kept], src=tile[:, kept])
            self._how.into(result[:, to], tile[:, to], tile[:, added])
            tile, reach = result, 2 * reach
        return tile


def _backwards(tile: NkiTensor) -> NkiTensor:
    """The elements of each row from the last to the first."""
    rows, length = tile.shape
    return tile.ap([[length, rows], [-1, length]], offset=length - 1)
