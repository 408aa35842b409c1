"""Convolutions in which every input feature has its own kernel: sums on Vector, a feature per partition."""

from __future__ import annotations

from itertools import product as combinations

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.conv_shape import ConvShape
from nki.graph.emit.kit.images import Images, WindowBlock, shifted
from nki.graph.emit.kit.panels import Chunks, Dim, Loader, ProductOperand, joined, strides_of
from nki.graph.emit.kit.results import ResultBlock, Results
from nki.graph.ir import Op
from nki.target.model import Target

_IMAGE_BYTES = 32 << 10
"""Bytes of a partition for the padded images that are in SBUF at once."""


class Depthwise:
    """All groups of a convolution with one input feature each."""

    def __init__(
        self,
        shape: ConvShape,
        image: NkiTensor,
        kernel: NkiTensor,
        op: Op,
        dtype: DType,
        target: Target,
        results: Results,
    ) -> None:
        self._shape, self._results, self._dtype = shape, results, dtype
        self._tensors, self._op, self._target = (image, kernel), op, target
        self._features = len(shape.shares)

    def run(self) -> None:
        """As many features as there are partitions at a time."""
        sizes, feature = self._op.results[0].type.shape, self._shape.output.second
        self._results.arrange(*sizes[:feature], self._features, self._shape.outs, *sizes[feature + 1 :])
        rows = self._target.partitions
        for first in range(0, self._features, rows):
            self._rows(first, min(rows, self._features - first))

    def _rows(self, first: int, count: int) -> None:
        images, weights = self._images(first, count), self._weights(first, count)
        height = self._shape.windows[0].out
        while height > 1 and images.bytes_per_image(height) > _IMAGE_BYTES:
            height = -(-height // 2)
        together = max(1, min(self._shape.batch, _IMAGE_BYTES // images.bytes_per_image(height)))
        for batch in range(0, self._shape.batch, together):
            size = min(together, self._shape.batch - batch)
            for start in range(0, self._shape.windows[0].out, height):
                outs = min(height, self._shape.windows[0].out - start)
                tile = images.load(batch, size, start, outs)
                box = WindowBlock(
                    (start, *(0 for _ in self._shape.windows[1:])), (outs, *(w.out for w in self._shape.windows[1:]))
                )
                for multiple in range(self._shape.outs):
                    self._sum(tile, weights, multiple, first, batch, box)

    def _images(self, first: int, count: int) -> Images:
        shape, value = self._shape, self._op.operands[0]
        sizes, steps = value.type.shape, strides_of(value.type.shape)
        feature = shape.input.second
        operand = ProductOperand(
            self._tensors[0],
            (Dim(shape.batch, steps[shape.input.first]),),
            joined([Dim(sizes[d], steps[d]) for d in shape.input.spatial])[0],
            (Dim(count, steps[feature]),),
            first * steps[feature],
        )
        return Images(Loader(operand, Chunks(count, count, True), self._dtype, self._target), shape.windows)

    def _weights(self, first: int, count: int) -> NkiTensor:
        """(features, multiples, taps), in float32."""
        shape, value = self._shape, self._op.operands[1]
        sizes, steps = value.type.shape, strides_of(value.type.shape)
        out = steps[shape.kernel.second]
        tile = nl.ndarray((count, shape.outs, shape.taps), dtype=nl.float32, buffer=nl.sbuf)
        pattern = [[shape.outs * out, count], [out, shape.outs]]
        pattern += [[steps[d], sizes[d]] for d in shape.kernel.spatial]
        nisa.dma_copy(dst=tile, src=self._tensors[1].ap(pattern, offset=first * shape.outs * out))
        return tile

    def _sum(
        self, tile: NkiTensor, weights: NkiTensor, multiple: int, first: int, batch: int, box: WindowBlock
    ) -> None:
        """One output feature for each input feature; those that belong together lie `outs` apart in the result."""
        rows, images = tile.shape[0], tile.shape[1]
        sums = nl.ndarray((rows, images, box.size), dtype=nl.float32, buffer=nl.sbuf)
        for number, tap in enumerate(combinations(*(range(window.taps) for window in self._shape.windows))):
            seen = tile[(slice(0, rows), slice(0, images), 0, *shifted(self._shape.windows, tap, box, box.starts[0]))]
            weight = weights[:, multiple, number : number + 1]
            if number == 0:  # plus 0, because a sum is never -0
                nisa.tensor_scalar(dst=sums, data=seen, op0=nl.multiply, operand0=weight, op1=nl.add, operand1=0.0)
            else:
                nisa.scalar_tensor_tensor(
                    dst=sums, data=seen, op0=nl.multiply, operand0=weight, op1=nl.add, operand1=sums
                )
        self._results.put(self._part(multiple, (first, rows), (batch, images), box), sums)

    def _part(self, multiple: int, rows: tuple[int, int], batch: tuple[int, int], box: WindowBlock) -> ResultBlock:
        """In the result with its features as (groups, multiples)."""
        side = self._shape.output
        dims = {side.first: [batch], side.second: [rows, (multiple, 1)]}
        dims |= {dim: [span] for dim, span in zip(side.spatial, zip(box.starts, box.counts, strict=True), strict=True)}
        spans = [(dim, span) for dim in range(len(dims)) for span in dims[dim]]
        place = {dim: [at for at, (own, _) in enumerate(spans) if own == dim] for dim in dims}
        order = (
            tuple(place[side.second]), tuple(place[side.first]), tuple(place[dim][0] for dim in side.spatial),
        )  # fmt: skip
        return ResultBlock(tuple(start for _, (start, _) in spans), tuple(count for _, (_, count) in spans), order)
