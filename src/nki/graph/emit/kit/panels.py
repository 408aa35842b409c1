"""Operands of a product in SBUF, the contracted dimension on partitions, whatever their order in device memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, bfloat16
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit import squares, transfers
from nki.graph.emit.kit.boxes import Dim, DimensionRun, boxes, joined, moves, runs, strides_of
from nki.target.model import Target

__all__ = [
    "Chunks",
    "Dim",
    "Loader",
    "OperandBlock",
    "ProductOperand",
    "chunked",
    "joined",
    "runs",
    "store",
    "strides_of",
]

PIECE_BYTES = 1 << 19
"""Bytes that one transfer brings at most, so that the first product need not wait for the last one."""

_TRANSPOSED_AT_ONCE = 32
"""Rows that follow each other evenly, from which on a transfer that transposes is worth its start."""

_STRIDED_ELEMENTS = 1 << 14
"""Up to so many elements are loaded one by one where nothing transposes on the way."""


@dataclass(frozen=True, slots=True)
class ProductOperand:
    """A tensor in device memory as (batch, free, contracted), each a group of dimensions, from `offset` on."""

    tensor: NkiTensor
    batch: tuple[Dim, ...]
    free: tuple[Dim, ...]
    contracted: tuple[Dim, ...]
    offset: int = 0

    @property
    def columns(self) -> int:
        """Elements of the flattened free group."""
        return prod(dim.count for dim in self.free)

    @property
    def is_direct(self) -> bool:
        """Whether neighbours in memory differ in the free group, so that rows come as they are."""
        return self.free[-1].stride == 1 and self.columns > 1

    def view(self, offset: int, pattern: Sequence[Sequence[int]]) -> NkiTensor:
        """Elements by (stride, count)."""
        return self.tensor.ap([[stride, count] for stride, count in pattern], offset=self.offset + offset)


@dataclass(frozen=True, slots=True)
class Chunks:
    """How the contracted dimension is cut: pieces of `size`, the last one may be shorter.

    Attributes:
        total: contracted elements.
        whole: whether several pieces can be loaded at once, as they follow each other evenly.
    """

    total: int
    size: int
    whole: bool

    @property
    def count(self) -> int:
        """Pieces."""
        return -(-self.total // self.size)

    def rows(self, chunk: int) -> int:
        """Elements of a piece."""
        return min(self.size, self.total - chunk * self.size)

    def groups(self, first: int, count: int, at_once: int) -> Iterator[tuple[int, int, int]]:
        """(first, count, rows) of the pieces that one transfer brings."""
        end = first + count
        while first < end:
            rows = self.rows(first)
            step = min(at_once, end - first) if self.whole else 1
            while step > 1 and self.rows(first + step - 1) != rows:
                step -= 1
            yield first, step, rows
            first += step


def chunked(contracted: Sequence[Dim], rows: int) -> Chunks:
    """Even pieces if that costs few more of them, else full ones; pieces end where dimensions end if possible."""
    total, inner = prod(dim.count for dim in contracted), contracted[-1].count
    if len(contracted) > 1 and inner <= rows:
        return Chunks(total, inner * (rows // inner), False)
    least = -(-inner // rows)
    for count in range(least, least + 1 + least // 4):
        if inner % count == 0:
            return Chunks(total, inner // count, len(contracted) == 1)
    return Chunks(total, rows, len(contracted) == 1)


@dataclass(frozen=True, slots=True)
class OperandBlock:
    """A part of an operand: batches, columns and pieces of the contracted dimension, each by start and count."""

    batch: int
    batches: int
    column: int
    columns: int
    chunk: int
    chunks: int


class Loader:
    """Brings blocks of an operand to SBUF as (rows of a piece, batches, pieces, columns)."""

    def __init__(self, operand: ProductOperand, chunks: Chunks, dtype: DType, target: Target) -> None:
        self.operand = operand
        self.chunks = chunks
        self.dtype = dtype
        self._target = target
        self._cast = dtype != operand.tensor.dtype
        self._by_dma = (
            target.has("dma_transpose")
            and not self._cast
            and dtype.itemsize in target.dma.transpose_dtype_bytes
            and (len(operand.free) == 1 or operand.free[-1].count >= _TRANSPOSED_AT_ONCE)
        )

    def bytes_per_column(self) -> int:
        """What one column of one batch takes of each partition."""
        return self.chunks.count * self.dtype.itemsize

    def load(self, block: OperandBlock) -> NkiTensor:
        """A new tile with the block."""
        shape = (self.chunks.size, block.batches, block.chunks, block.columns)
        tile = nl.ndarray(shape, dtype=self.dtype, buffer=nl.sbuf)
        columns = block.columns * block.batches
        at_once = max(1, PIECE_BYTES // (self.chunks.size * columns * self.dtype.itemsize))
        if self.operand.is_direct or (not self._by_dma and self._is_small(block)):
            self._copy(tile, block, at_once)
        elif self._by_dma:
            self._transpose(tile, block, at_once)
        else:
            self._transpose_on_chip(tile, block)
        return tile

    def _is_small(self, block: OperandBlock) -> bool:
        return block.batches * block.chunks * self.chunks.size * block.columns <= _STRIDED_ELEMENTS

    def _parts(
        self, block: OperandBlock, at_once: int
    ) -> Iterator[tuple[DimensionRun, DimensionRun, tuple[int, int, int], DimensionRun]]:
        """Runs over batches, columns and contracted elements; of the latter several pieces at once if possible."""
        operand, size = self.operand, self.chunks.size
        for first, count, rows in self.chunks.groups(block.chunk, block.chunks, at_once):
            for k in runs(operand.contracted, first * size, rows):
                for b in runs(operand.batch, block.batch, block.batches):
                    for f in runs(operand.free, block.column, block.columns):
                        yield b, f, (first - block.chunk, count, size * k.stride), k

    def _copy(self, tile: NkiTensor, block: OperandBlock, at_once: int) -> None:
        for b, f, (first, count, step), k in self._parts(block, at_once):
            pattern = [(k.stride, k.count), (b.stride, b.count), (step, count), (f.stride, f.count)]
            transfers.copy(
                dst=_part(tile, k, b, first, count, f),
                src=self.operand.view(b.offset + f.offset + k.offset, pattern),
            )

    def _transpose(self, tile: NkiTensor, block: OperandBlock, at_once: int) -> None:
        for b, f, (first, count, step), k in self._parts(block, at_once):
            pattern = [(f.stride, f.count), (b.stride, b.count), (step, count), (k.stride, k.count)]
            transfers.transpose(
                dst=_part(tile, k, b, first, count, f),
                src=self.operand.view(b.offset + f.offset + k.offset, pattern),
            )

    def _transpose_on_chip(self, tile: NkiTensor, block: OperandBlock) -> None:
        """Rows as they are in memory, then one square after the other through the Tensor engine or Vector."""
        rows = self._target.pe.columns
        through = self._through_tensor if self._target.pe.transpose_exact else self._through_vector
        for start in range(0, block.columns, rows):
            width = min(rows, block.columns - start)
            for batch in range(block.batches):
                part = OperandBlock(block.batch + batch, 1, block.column + start, width, block.chunk, block.chunks)
                through(tile[:, batch, :, start : start + width], part)

    def _fill(self, stage: NkiTensor, block: OperandBlock) -> None:
        """Rows to a tile (columns, contracted elements)."""
        operand, first = self.operand, block.chunk * self.chunks.size
        (b,) = runs(operand.batch, block.batch, 1)
        for f in boxes(operand.free, block.column, block.columns):
            for k in boxes(operand.contracted, first, self._length(block)):
                for move in moves([f, k]):
                    transfers.copy(dst=stage[move.here], src=operand.view(b.offset + move.offset, move.pattern))

    def _length(self, block: OperandBlock) -> int:
        """Contracted elements of a block."""
        return min(block.chunks * self.chunks.size, self.chunks.total - block.chunk * self.chunks.size)

    def _through_tensor(self, tile: NkiTensor, block: OperandBlock) -> None:
        """Elements of one byte, which do not leave the Tensor engine side by side, as bfloat16, which holds all of
        them."""
        size, dtype = self.chunks.size, self.dtype if self.dtype.itemsize > 1 else bfloat16
        stage = nl.ndarray((block.columns, self._length(block)), dtype=dtype, buffer=nl.sbuf)
        self._fill(stage, block)
        at_once = max(1, self._target.psum.bank_bytes // (block.columns * dtype.itemsize))
        for first, count, rows in Chunks(self.chunks.total, size, True).groups(block.chunk, block.chunks, at_once):
            there = nl.ndarray((rows, count, block.columns), dtype=dtype, buffer=nl.psum)
            local = first - block.chunk
            for i in range(count):
                at = (local + i) * size
                nisa.nc_transpose(dst=there[:, i, :], data=stage[:, at : at + rows], engine=nisa.engine.tensor)
            nisa.tensor_copy(dst=tile[0:rows, local : local + count, :], src=there)

    def _through_vector(self, tile: NkiTensor, block: OperandBlock) -> None:
        """Bit by bit, where the Tensor engine would multiply by 0 and 1, which makes NaN of infinities."""
        size, height, length = self.chunks.size, squares.padded(block.columns), self._length(block)
        last = (block.chunks - 1) * size
        width = max(last + squares.padded(length - last), last - size + squares.padded(size))
        stage = nl.ndarray((height, width), dtype=self.dtype, buffer=nl.sbuf)
        if (height, width) != (block.columns, length):
            nisa.memset(dst=stage, value=0)
        self._fill(stage, block)
        for chunk in range(block.chunks):
            rows = self.chunks.rows(block.chunk + chunk)
            there = nl.ndarray((squares.padded(rows), height), dtype=self.dtype, buffer=nl.sbuf)
            squares.transpose(there, stage[:, chunk * size : chunk * size + squares.padded(rows)])
            nisa.tensor_copy(dst=tile[0:rows, chunk, :], src=there[0:rows, 0 : block.columns])


def _part(tile: NkiTensor, k: DimensionRun, b: DimensionRun, first: int, count: int, f: DimensionRun) -> NkiTensor:
    return tile[k.at : k.at + k.count, b.at : b.at + b.count, first : first + count, f.at : f.at + f.count]


def store(operand: ProductOperand, chunks: Chunks, piece: int, column: int, tile: NkiTensor) -> None:
    """A tile (rows of a piece, columns) to where the operand has them, columns from `column` on; there is no batch."""
    rows, columns = tile.shape[0], tile.shape[1]
    for k in runs(operand.contracted, piece * chunks.size, rows):
        for f in runs(operand.free, column, columns):
            transfers.copy(
                dst=operand.view(k.offset + f.offset, [(k.stride, k.count), (f.stride, f.count)]),
                src=tile[k.at : k.at + k.count, f.at : f.at + f.count],
            )
