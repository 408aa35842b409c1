"""Kernels for products: dot_general with its pointwise epilogue, on the Tensor engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, as_dtype
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.operand_views import OperandView, view_of
from nki.graph.emit.kit.panels import Chunks, Dim, Loader, OperandBlock, ProductOperand, chunked, joined
from nki.graph.emit.kit.product_group import split
from nki.graph.emit.kit.results import ResultBlock, Results
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op, Value
from nki.target.model import Target

_RESIDENT_BYTES = 1 << 16
"""Bytes of a partition that an operand may take to stay in SBUF."""

_BANKS_SUMMED = 3
"""Banks of PSUM that long sums take, so that the next ones have as many."""

_INTEGERS = {"int8": 7, "uint8": 8, "bool": 1}
"""Bits of the magnitudes that bfloat16 holds exactly."""

_EXACT_BITS = 24

Kernel = Callable[..., None]


@dataclass(frozen=True, slots=True)
class _Shape:
    """Dimensions of the operands and of the result: per operand batch, free and contracted ones."""

    left: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    right: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def emit_dot(group: Group, target: Target) -> Kernel:
    """The kernel of a dot_general, others of its left operand with the same shapes, and the pointwise operations on
    their results.

    Raises:
        GraphError: operands that no route multiplies exactly enough (``graph.unsupported``).
    """
    parts = split(group)
    op = parts.roots[0]
    terms = prod(op.operands[0].type.shape[d] for d in op.attributes["lhs_contracting_dimensions"])
    dtype = multiplied(op, terms, target)
    results = Results(group, target)
    sides = _shape(op)

    def product(*tensors: NkiTensor) -> None:
        known = results.bind(tensors)
        left = _operand(known, view_of(op.operands[0], parts.views), op.operands[0], sides.left)
        rights = [
            _operand(known, view_of(root.operands[1], parts.views), root.operands[1], sides.right)
            for root in parts.roots
        ]
        multiply(left, rights, dtype, target, results)

    return product


def _shape(op: Op) -> _Shape:
    a = op.attributes
    return _Shape(
        _groups(op.operands[0], a["lhs_batching_dimensions"], a["lhs_contracting_dimensions"]),
        _groups(op.operands[1], a["rhs_batching_dimensions"], a["rhs_contracting_dimensions"]),
    )


def _groups(
    value: Value, batch: Sequence[int], contracted: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    taken = {*batch, *contracted}
    return tuple(batch), tuple(d for d in range(len(value.type.shape)) if d not in taken), tuple(contracted)


def multiplied(op: Op, terms: int, target: Target) -> DType:
    """The dtype in which the Tensor engine gets both operands.

    Args:
        terms: products in each sum.

    Raises:
        GraphError: operands that it does not multiply exactly enough (``graph.unsupported``).
    """
    kinds = [value.type.dtype for value in op.operands[:2]]
    if all(kind.name in _INTEGERS for kind in kinds):
        bits = sum(_INTEGERS[kind.name] for kind in kinds)
        if terms << bits > 1 << _EXACT_BITS:
            raise unsupported(
                op,
                f"{terms} products of {bits} bits are summed up in float32, which is exact up to 2**{_EXACT_BITS}",
                "convert the operands to float32, or contract fewer elements at a time",
            )
        return as_dtype("bfloat16")
    for kind in kinds:
        if kind not in target.pe.input_dtypes:
            raise unsupported(op, f"the Tensor engine does not multiply {kind}", "convert the operands to float32")
    if kinds[0] == kinds[1]:
        return kinds[0]
    wide = "float32" if "float32" in [kind.name for kind in kinds] else "bfloat16"
    return as_dtype("float32" if {"float16", "bfloat16"} == {kind.name for kind in kinds} else wide)


def _operand(
    known: Mapping[Value, NkiTensor], view: OperandView, value: Value, groups: Sequence[Sequence[int]]
) -> ProductOperand:
    shape = value.type.shape
    batch, free, contracted = (tuple(Dim(shape[d], view.steps[d]) for d in group) for group in groups)
    return ProductOperand(known[view.source], batch, free, contracted, view.offset)


@dataclass(frozen=True, slots=True)
class ProductTiling:
    """Sizes of the blocks.

    Attributes:
        batches: that are loaded together.
        rows: of the left operand that are in SBUF at once.
        columns: of the right operand that are multiplied at once.
        chunks: pieces of the contracted dimension that are in SBUF at once.
        keep_right: whether the right operand is loaded once for all rows.
    """

    batches: int
    rows: int
    columns: int
    chunks: int
    keep_right: bool


def multiply(
    left: ProductOperand, rights: Sequence[ProductOperand], dtype: DType, target: Target, results: Results
) -> None:
    """``left @ right`` per batch, (batch, rows, columns), handed to `results` in blocks, those of all rights together.

    Args:
        left, rights: with batch and contracted dimensions of the same counts; the rights in the same order in memory.
        dtype: in which they are multiplied.
    """
    if len(rights) == 1 and rights[0].columns == 1 and left.columns > 1:
        left, rights = rights[0], [left]  # the same elements in the same order as the transposed product
    batch = joined(left.batch, rights[0].batch)
    contracted = joined(left.contracted, rights[0].contracted)
    (rows,), (columns,) = joined(left.free), joined(rights[0].free)
    left = ProductOperand(left.tensor, batch[0], rows, contracted[0], left.offset)
    chunks = chunked(left.contracted, target.pe.rows)
    made = [ProductOperand(right.tensor, batch[1], columns, contracted[1], right.offset) for right in rights]
    loaders = [Loader(operand, chunks, dtype, target) for operand in (left, *made)]
    batches = prod(dim.count for dim in left.batch)
    plan = _plan(batches, left.columns, made[0].columns, len(made), chunks, dtype, target)
    results.arrange(batches, left.columns, made[0].columns)
    _BlockedProduct(loaders[0], loaders[1:], chunks, plan, target, results).run(batches)


def _plan(
    batches: int, rows: int, columns: int, products: int, chunks: Chunks, dtype: DType, target: Target
) -> ProductTiling:
    bank = nl.tile_size.psum_bank_fmax
    per_column = chunks.count * dtype.itemsize
    width = min(columns, bank)
    if per_column * max(target.pe.columns, width) > _RESIDENT_BYTES and per_column * width > _RESIDENT_BYTES:
        fewer = max(1, _RESIDENT_BYTES // (bank * dtype.itemsize) // (1 + products))
        tall = max(1, _BANKS_SUMMED // products)
        return ProductTiling(1, min(rows, tall * target.pe.columns), width, min(fewer, chunks.count), False)
    fit = _RESIDENT_BYTES // per_column
    all_columns = columns * products
    keep = all_columns <= fit
    held = rows if rows <= fit else max(fit // target.pe.columns, 1) * target.pe.columns
    together = max(1, min(batches, fit // max(1, (rows if rows <= fit else held) + all_columns)))
    return ProductTiling(together if keep and rows <= fit else 1, held, width, chunks.count, keep)


@dataclass(frozen=True, slots=True)
class ProductBlock:
    """A block of the result seen as (batches, rows, columns): starts and counts."""

    batch: int
    batches: int
    row: int
    rows: int
    column: int
    columns: int

    def placed(self) -> ResultBlock:
        """As (rows, batches, columns) of a tile."""
        starts, counts = (self.batch, self.row, self.column), (self.batches, self.rows, self.columns)
        return ResultBlock(starts, counts, ((1,), (0,), (2,)))


class _BlockedProduct:
    """The loops over blocks."""

    def __init__(
        self,
        left: Loader,
        rights: Sequence[Loader],
        chunks: Chunks,
        plan: ProductTiling,
        target: Target,
        results: Results,
    ) -> None:
        self._left, self._rights = left, rights
        self._rows, self._columns = left.operand.columns, rights[0].operand.columns
        self._chunks, self._plan, self._target, self._results = chunks, plan, target, results

    def run(self, batches: int) -> None:
        """All batches."""
        plan = self._plan
        for first in range(0, batches, plan.batches):
            count = min(plan.batches, batches - first)
            if plan.chunks < self._chunks.count:
                self._stream(first)
            else:
                self._hold(first, count)

    def _hold(self, batch: int, batches: int) -> None:
        """All contracted elements of a block of the operands are in SBUF."""
        plan, rows, columns = self._plan, self._rows, self._columns
        kept = self._all_loaded(batch, batches, 0, columns) if plan.keep_right else None
        for row in range(0, rows, plan.rows):
            height = min(plan.rows, rows - row)
            stationary = self._loaded(self._left, batch, batches, row, height)
            for column in range(0, columns, plan.columns):
                width = min(plan.columns, columns - column)
                if kept is None:
                    moving = self._all_loaded(batch, batches, column, width)
                else:
                    moving = [tile[:, :, :, column : column + width] for tile in kept]
                self._block(stationary, moving, ProductBlock(batch, batches, row, height, column, width))

    def _all_loaded(self, batch: int, batches: int, column: int, columns: int) -> list[NkiTensor]:
        return [self._loaded(right, batch, batches, column, columns) for right in self._rights]

    def _loaded(self, loader: Loader, batch: int, batches: int, column: int, columns: int) -> NkiTensor:
        return loader.load(OperandBlock(batch, batches, column, columns, 0, self._chunks.count))

    def _block(self, stationary: NkiTensor, moving: Sequence[NkiTensor], part: ProductBlock) -> None:
        """As many batches together as a bank holds, so that one instruction takes their results out of it."""
        bank, tall = nl.tile_size.psum_bank_fmax, self._target.pe.columns
        together = max(1, bank // part.columns) if part.columns == self._columns else 1
        for row in range(0, part.rows, tall):
            height = min(tall, part.rows - row)
            for first in range(0, part.batches, together):
                count = min(together, part.batches - first)
                sums = [
                    nl.ndarray((height, count, part.columns), dtype=nl.float32, buffer=nl.psum) for _ in self._rights
                ]
                for total, tile in zip(sums, moving, strict=True):
                    for i in range(count):
                        held = stationary[:, first + i, :, row : row + height]
                        self._sum(total[:, i, :], held, tile[:, first + i, :, :])
                self._results.put(
                    ProductBlock(part.batch + first, count, part.row + row, height, part.column, part.columns).placed(),
                    *sums,
                )

    def _sum(self, sums: NkiTensor, stationary: NkiTensor, moving: NkiTensor) -> None:
        for chunk in range(self._chunks.count):
            k = self._chunks.rows(chunk)
            nisa.nc_matmul(
                dst=sums, stationary=stationary[0:k, chunk, :], moving=moving[0:k, chunk, :], accumulate=chunk > 0
            )

    def _stream(self, batch: int) -> None:
        """Long sums: a few banks of results stay in PSUM while the operands pass by."""
        plan, rows, columns = self._plan, self._rows, self._columns
        for row in range(0, rows, plan.rows):
            height = min(plan.rows, rows - row)
            for column in range(0, columns, plan.columns):
                self._long(ProductBlock(batch, 1, row, height, column, min(plan.columns, columns - column)))

    def _long(self, part: ProductBlock) -> None:
        tall = self._target.pe.columns
        starts = range(0, part.rows, tall)
        sums = [
            [nl.ndarray((min(tall, part.rows - s), 1, part.columns), dtype=nl.float32, buffer=nl.psum) for s in starts]
            for _ in self._rights
        ]
        for first in range(0, self._chunks.count, self._plan.chunks):
            count = min(self._plan.chunks, self._chunks.count - first)
            stationary = self._left.load(OperandBlock(part.batch, 1, part.row, part.rows, first, count))
            for right, blocks in zip(self._rights, sums, strict=True):
                moving = right.load(OperandBlock(part.batch, 1, part.column, part.columns, first, count))
                for start, total in zip(starts, blocks, strict=True):
                    self._add(total, stationary[:, 0, :, start : start + total.shape[0]], moving[:, 0, :, :], first)
        for position, start in enumerate(starts):
            blocks = [each[position] for each in sums]
            self._results.put(
                ProductBlock(part.batch, 1, part.row + start, blocks[0].shape[0], part.column, part.columns).placed(),
                *blocks,
            )

    def _add(self, total: NkiTensor, stationary: NkiTensor, moving: NkiTensor, first: int) -> None:
        """Products of the pieces from `first` on that are in SBUF."""
        for i in range(moving.shape[1]):
            k = self._chunks.rows(first + i)
            nisa.nc_matmul(
                dst=total[:, 0, :],
                stationary=stationary[0:k, i, :],
                moving=moving[0:k, i, :],
                accumulate=first + i > 0,
            )
