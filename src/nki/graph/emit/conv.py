"""Kernels for convolutions: a product for each tap of the kernel, summed up in PSUM, or sums on Vector per channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product as combinations
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.depthwise import Depthwise
from nki.graph.emit.dot import multiplied
from nki.graph.emit.kit.conv_shape import ConvGroup, ConvShape, Side, conv_shape
from nki.graph.emit.kit.images import Images, WindowBlock, boxes, filling
from nki.graph.emit.kit.panels import Chunks, Dim, Loader, OperandBlock, ProductOperand, chunked, joined, strides_of
from nki.graph.emit.kit.results import ResultBlock, Results
from nki.graph.ir import Group, Value
from nki.target.model import Target

_IMAGE_BYTES = 40 << 10
"""Bytes of a partition for the padded images that are in SBUF at once."""

_KERNEL_BYTES = 64 << 10
"""Bytes of a partition for the kernel that is in SBUF at once."""

_FEW_CHANNELS = 16
"""With so few input features, several taps share the rows of the Tensor engine."""

_FEW_TAPS = 128

_DEPTHWISE_GROUPS = 8
"""From so many groups of one input feature each on, the engines that work per partition are the better ones."""


def emit_conv(group: Group, target: Target) -> Callable[..., None]:
    """The kernel of a convolution and the pointwise operations on its result.

    Raises:
        GraphError: operands that the Tensor engine does not multiply (``graph.unsupported``).
    """
    op = group.ops[0]
    shape = conv_shape(op)
    dtype = multiplied(op, shape.features * shape.taps, target)
    results = Results(group, target)

    def convolution(*tensors: NkiTensor) -> None:
        known = results.bind(tensors)
        results.arrange(*op.results[0].type.shape)
        image, kernel = known[op.operands[0]], known[op.operands[1]]
        if shape.by_feature and shape.features == 1 and len(shape.shares) >= _DEPTHWISE_GROUPS:
            Depthwise(shape, image, kernel, op, dtype, target, results).run()
            return
        for share in shape.shares:
            Convolution(shape, share, (image, kernel), op.operands, dtype, target, results).run()

    return convolution


def dims(value: Value, which: Sequence[int]) -> tuple[Dim, ...]:
    """Dimensions of a tensor in device memory, merged where they follow each other."""
    shape, steps = value.type.shape, strides_of(value.type.shape)
    return joined([Dim(shape[d], steps[d]) for d in which])[0]


def part_of(
    side: Side, order: Sequence[str], starts: dict[str, int], counts: dict[str, int], box: WindowBlock
) -> ResultBlock:
    """A block of the result, by the names of its dimensions: "n" batch, "f" features, "s" the spatial ones."""
    rank = len(side.spatial) + 2
    at, size = [0] * rank, [1] * rank
    at[side.first], size[side.first] = starts["n"], counts["n"]
    at[side.second], size[side.second] = starts["f"], counts["f"]
    for dim, start, count in zip(side.spatial, box.starts, box.counts, strict=True):
        at[dim], size[dim] = start, count
    named = {"n": (side.first,), "f": (side.second,), "s": side.spatial}
    return ResultBlock(tuple(at), tuple(size), tuple(sum((named[name] for name in names), ()) for names in order))


class Convolution:
    """One group of a convolution."""

    def __init__(
        self,
        shape: ConvShape,
        share: ConvGroup,
        tensors: tuple[NkiTensor, NkiTensor],
        values: Sequence[Value],
        dtype: DType,
        target: Target,
        results: Results,
    ) -> None:
        self._shape, self._share, self._target, self._results = shape, share, target, results
        self._dtype = dtype
        channels = (Dim(shape.features, strides_of(values[0].type.shape)[shape.input.second]),)
        self._chunks = chunked(channels, target.pe.rows)
        image = ProductOperand(
            tensors[0],
            dims(values[0], (shape.input.first,)),
            dims(values[0], shape.input.spatial),
            channels,
            share.batch * strides_of(values[0].type.shape)[shape.input.first]
            + share.feature * strides_of(values[0].type.shape)[shape.input.second],
        )
        self._images = Images(Loader(image, self._chunks, dtype, target), shape.windows)
        self._kernel, self._values = tensors[1], values
        self._packed = self._taps_together()
        self._features_last = shape.output.second == len(shape.output.spatial) + 1

    def _taps_together(self) -> int:
        """Taps whose channels share the partitions; 1 if each tap has a product of its own."""
        shape = self._shape
        if shape.features > _FEW_CHANNELS or not 1 < shape.taps <= _FEW_TAPS:
            return 1
        return min(shape.taps, self._target.pe.rows // shape.features)

    # --- the kernel

    def _kernel_loader(self) -> Loader:
        shape, value = self._shape, self._values[1]
        steps = strides_of(value.type.shape)
        features = (Dim(shape.features, steps[shape.kernel.first]),)
        outs = (Dim(shape.outs, steps[shape.kernel.second]),)
        taps = dims(value, shape.kernel.spatial)
        offset = self._share.out * steps[shape.kernel.second]
        if self._packed == 1:
            operand = ProductOperand(self._kernel, taps, outs, features, offset)
            return Loader(operand, self._chunks, self._dtype, self._target)
        rows = joined([Dim(value.type.shape[d], steps[d]) for d in shape.kernel.spatial] + list(features))[0]
        chunks = Chunks(shape.taps * shape.features, self._packed * shape.features, len(rows) == 1)
        return Loader(ProductOperand(self._kernel, (Dim(1, 1),), outs, rows, offset), chunks, self._dtype, self._target)

    def _kernel_block(self, loader: Loader, first: int, count: int) -> NkiTensor:
        batches = self._shape.taps if self._packed == 1 else 1
        return loader.load(OperandBlock(0, batches, first, count, 0, loader.chunks.count))

    # --- the loops

    def run(self) -> None:
        """All images; the kernel stays if it fits, else as many output features of it as fit."""
        loader = self._kernel_loader()
        tall = self._target.pe.columns
        per_out = loader.bytes_per_column() * (self._shape.taps if self._packed == 1 else 1)
        outs = min(self._shape.outs, max(tall, _KERNEL_BYTES // per_out // tall * tall))
        for first in range(0, self._shape.outs, outs):
            count = min(outs, self._shape.outs - first)
            self._all_images(self._kernel_block(loader, first, count), first, count)

    def _all_images(self, kernel: NkiTensor, first: int, count: int) -> None:
        height = self._shape.windows[0].out
        while height > 1 and self._images.bytes_per_image(height) > _IMAGE_BYTES:
            height = -(-height // 2)
        batches = max(1, min(self._shape.batch, _IMAGE_BYTES // self._images.bytes_per_image(height)))
        for batch in range(0, self._shape.batch, batches):
            images = min(batches, self._shape.batch - batch)
            for start in range(0, self._shape.windows[0].out, height):
                rows = min(height, self._shape.windows[0].out - start)
                tile = self._images.load(batch, images, start, rows)
                if self._packed > 1:
                    tile = self._spread(tile)
                self._block(kernel, tile, (first, count), (batch, images), (start, rows))

    def _spread(self, tile: NkiTensor) -> NkiTensor:
        """Copies of the images for several taps below each other, each shifted to where its tap looks."""
        shape, features = self._shape, self._shape.features
        lengths, images = tile.shape[3:], tile.shape[1]
        packs = -(-shape.taps // self._packed)
        size = prod(lengths)
        result = nl.ndarray((self._packed * features, images, packs, *lengths), dtype=self._dtype, buffer=nl.sbuf)
        source = tile.reshape((features, images, size))
        there = result.reshape((self._packed * features, images, packs, size))
        for number, taps in enumerate(self._taps()):
            pack, place = divmod(number, self._packed)
            shift = sum(
                window.at(tap) * prod(lengths[dim + 1 :])
                for dim, (window, tap) in enumerate(zip(shape.windows, taps, strict=True))
            )
            rows = slice(place * features, (place + 1) * features)
            nisa.dma_copy(dst=there[rows, :, pack, 0 : size - shift], src=source[:, :, shift:size])
        return result

    def _taps(self) -> list[tuple[int, ...]]:
        return list(combinations(*(range(window.taps) for window in self._shape.windows)))

    def _block(
        self,
        kernel: NkiTensor,
        tile: NkiTensor,
        outs: tuple[int, int],
        batch: tuple[int, int],
        rows: tuple[int, int],
    ) -> None:
        """Results of the images in SBUF: (outs, windows) in PSUM, or where features come last (windows, outs)."""
        bank, tall = nl.tile_size.psum_bank_fmax, self._target.pe.columns
        windows, features = (tall, bank) if self._features_last else (bank, tall)
        counts = (rows[1], *(window.out for window in self._shape.windows[1:]))
        most = filling(counts, windows)
        together = max(1, min(batch[1], windows // prod(most))) if most == counts else 1
        for box in boxes(counts, most):
            box = WindowBlock((box.starts[0] + rows[0], *box.starts[1:]), box.counts)
            for image in range(0, batch[1], together):
                images = slice(image, min(image + together, batch[1]))
                for feature in range(0, outs[1], features):
                    here = slice(feature, min(feature + features, outs[1]))
                    sums = self._sum(kernel, tile, here, images, box, rows[0])
                    starts = {"n": batch[0] + image, "f": self._share.out + outs[0] + feature}
                    sizes = {"n": images.stop - image, "f": here.stop - feature}
                    self._put(starts, sizes, box, sums)

    def _put(self, starts: dict[str, int], sizes: dict[str, int], box: WindowBlock, sums: NkiTensor) -> None:
        order = ("ns", "f") if self._features_last else ("f", "n", "s")
        self._results.put(part_of(self._shape.output, order, starts, sizes, box), sums)

    def _sum(
        self, kernel: NkiTensor, tile: NkiTensor, outs: slice, images: slice, box: WindowBlock, start: int
    ) -> NkiTensor:
        count, features = images.stop - images.start, outs.stop - outs.start
        shape = (count * box.size, features) if self._features_last else (features, count, box.size)
        sums = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
        first = True
        for seen, weights in self._factors(kernel, tile, outs, images, box, start):
            stationary, moving = (seen, weights) if self._features_last else (weights, seen)
            nisa.nc_matmul(dst=sums, stationary=stationary, moving=moving, accumulate=not first)
            first = False
        return sums

    def _factors(
        self, kernel: NkiTensor, tile: NkiTensor, outs: slice, images: slice, box: WindowBlock, start: int
    ) -> list[tuple[NkiTensor, NkiTensor]]:
        """Images and kernel for each product of a sum."""
        if self._packed > 1:
            origin = [w.taps - 1 if w.reverse else 0 for w in self._shape.windows]
            chunks = Chunks(self._shape.taps * self._shape.features, self._packed * self._shape.features, True)
            return [
                (
                    self._images.under(tile, origin, box, start, images, chunks.rows(pack), pack),
                    kernel[0 : chunks.rows(pack), 0, pack, outs],
                )
                for pack in range(chunks.count)
            ]
        return [
            (
                self._images.under(tile, taps, box, start, images, self._chunks.rows(chunk), chunk),
                kernel[0 : self._chunks.rows(chunk), number, chunk, outs],
            )
            for chunk in range(self._chunks.count)
            for number, taps in enumerate(self._taps())
        ]
