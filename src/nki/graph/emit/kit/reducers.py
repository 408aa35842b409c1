"""Reductions over the columns of a block: how elements combine, what changes nothing, and positions of extremes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod

import nki.isa as nisa
from nki.core.dtypes import DType, bool_, float32, int32, uint8
from nki.core.nki_tensor import NkiTensor
from nki.graph.emit.kit.engines import EngineOps, Form, Splat, is_word, storage
from nki.graph.emit.kit.evaluation import Evaluation
from nki.graph.emit.kit.integers import arithmetic, wrapped
from nki.graph.emit.kit.tiles import TileBlock
from nki.graph.errors import unsupported
from nki.graph.ir import Op
from nki.isa import alu
from nki.spec.operator import Operator

_COMBINERS: Mapping[str, Operator] = {
    "add": alu.ADD,
    "multiply": alu.MULTIPLY,
    "maximum": alu.MAXIMUM,
    "minimum": alu.MINIMUM,
    "and": alu.BITWISE_AND,
    "or": alu.BITWISE_OR,
    "xor": alu.BITWISE_XOR,
}
_OF_TRUTH: Mapping[str, Operator] = {
    "add": alu.BITWISE_OR,
    "multiply": alu.BITWISE_AND,
    "maximum": alu.BITWISE_OR,
    "minimum": alu.BITWISE_AND,
}
_FAR = float(1 << 24)
"""Beyond all positions that float32 holds exactly."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """A reduction of values and their positions to the largest or smallest value and where it is first."""

    op: Operator


def combined(op: Op) -> Operator | Extreme:
    """How a reduction combines two elements.

    Raises:
        GraphError: in a way that is not known.
    """
    region = op.regions[0]
    inside = [inner for inner in region.ops if isinstance(inner, Op)]
    if len(op.results) == 1 and len(inside) == 1 and set(inside[0].operands) == set(region.arguments):
        name, dtype = inside[0].name, op.results[0].type.dtype
        table = {**_COMBINERS, **_OF_TRUTH} if dtype == bool_ else _COMBINERS
        if name in table:
            return table[name]
    if len(op.results) == len(region.arguments) // 2 == 2 and not op.operands[1].type.dtype.is_float:
        values = {region.arguments[0], region.arguments[2]}
        for inner in inside:
            if inner.name == "compare" and set(inner.operands) == values:
                direction = str(inner.attributes["comparison_direction"])[0]
                forward = inner.operands[0] is region.arguments[0]
                if direction in "GL":
                    return Extreme(alu.MAXIMUM if (direction == "G") == forward else alu.MINIMUM)
    names = ", ".join(inner.name for inner in inside)
    raise unsupported(
        op, f"it combines elements by {names}", "reduce by add, multiply, maximum, minimum, and, or, xor or argmax"
    )


def identity(op: Operator, dtype: DType) -> float | int:
    """What changes nothing."""
    if op in (alu.ADD, alu.BITWISE_OR, alu.BITWISE_XOR):
        return 0
    if op == alu.MULTIPLY:
        return 1
    if op == alu.BITWISE_AND:
        return 1 if dtype == bool_ else -1 if dtype.signed else int(dtype.max)
    if dtype.is_float:
        return float("-inf") if op == alu.MAXIMUM else float("inf")
    return int(dtype.min if op == alu.MAXIMUM else dtype.max)


def crosses(how: Operator | Extreme, dtype: DType) -> bool:
    """Whether partial results of partitions can be combined across them."""
    if dtype.is_float:
        return how in (alu.ADD, alu.MAXIMUM, alu.MINIMUM)
    return how in (alu.BITWISE_AND, alu.BITWISE_OR)


def replaces(e: EngineOps, new: NkiTensor, old: NkiTensor, comparison: Operator) -> NkiTensor:
    """Whether a new extreme replaces an older one: it is beyond it, or the first NaN."""
    if is_word(new.dtype):
        return e.copy(e.binary(new, old, comparison, int32), uint8)
    beyond = e.binary(new, old, comparison, uint8)
    if not new.dtype.is_float:
        return beyond
    fresh = e.binary(e.binary(new, new, alu.NOT_EQUAL, uint8), e.binary(old, old, alu.EQUAL, uint8), alu.BITWISE_AND)
    return e.binary(beyond, fresh, alu.BITWISE_OR)


def with_initial(e: EngineOps, op: Op, tile: NkiTensor, initial: Form) -> NkiTensor:
    """A reduction together with its initial value, where that changes something."""
    how = combined(op)
    assert not isinstance(how, Extreme)
    dtype = op.results[0].type.dtype
    if isinstance(initial, Splat) and initial.value == identity(how, dtype):
        return tile
    other = e.tile(initial, tile.dtype, tile.shape)
    if other.dtype != tile.dtype:
        other = e.copy(other, tile.dtype)
    return both(e, tile, other, how)


def both(e: EngineOps, a: NkiTensor, b: NkiTensor, how: Operator) -> NkiTensor:
    """Two parts of a reduction together; integers wrap."""
    if a.dtype.is_float or how.is_bitvec or is_word(a.dtype):
        return e.binary(a, b, how)
    return arithmetic(e, a, b, how, a.dtype)


_SUMMED_AT_ONCE = 128
"""Elements that are added one after the other; what a sum of more of them loses would show."""
_MOST_DIMENSIONS = 5
"""Dimensions of an operand: the partitions and four free ones (access.max_free_dims)."""


def reduce_last(e: EngineOps, dst: NkiTensor, data: NkiTensor, how: Operator, axes: tuple[int, ...]) -> None:
    """Reduce the last dimensions, as `nisa.tensor_reduce`; a long sum of one dimension by sums of its parts.

    A device adds one element after the other, and what that loses grows with their number. Parts of about as many
    elements as there are parts lose least.
    """
    count = data.shape[-1]
    parts = _parts_of(count) if how == alu.ADD and len(axes) == 1 and len(data.shape) < _MOST_DIMENSIONS else 1
    if parts > 1:
        pieces = data.reshape_dim(len(data.shape) - 1, (parts, count // parts))
        data = e.new((*data.shape[:-1], parts), float32)
        nisa.tensor_reduce(dst=data, op=how, data=pieces, axis=(len(pieces.shape) - 1,))
    nisa.tensor_reduce(dst=dst, op=how, data=data, axis=axes)


def _parts_of(count: int) -> int:
    """The divisor of a large number that is nearest to its root; 1 of a small one."""
    if count <= _SUMMED_AT_ONCE:
        return 1
    return next(parts for parts in range(isqrt(count), 0, -1) if count % parts == 0)


class Reducer:
    """Reductions over the columns of a block.

    Args:
        pieces: whether the block has only some of the columns; initial values and casts come later then.
    """

    def __init__(self, block: TileBlock, columns: Sequence[int], pieces: bool = False) -> None:
        self._dims = [at for at, extent in enumerate(block.free, 1) if extent.axis in columns]
        self._others = [at for at, extent in enumerate(block.free, 1) if extent.axis not in columns]
        self._shape = block.shape
        self._pieces = pieces

    def sums(self, op: Op) -> bool:
        """Whether it sums all free elements of float tiles."""
        return not self._others and combined(op) == alu.ADD and op.results[0].type.dtype.is_float

    def reduce(self, evaluation: Evaluation, op: Op) -> list[NkiTensor]:
        """A tile for each result."""
        e, how = evaluation.e, combined(op)
        if isinstance(how, Extreme):
            return self._extreme(evaluation, op, how)
        value, initial = op.operands
        dtype = op.results[0].type.dtype
        partial = evaluation.sums.get(value) if self.sums(op) else None
        if partial is None:
            partial = self._over(e, evaluation.tile(value), how, dtype)
        if self._pieces:
            return [partial]
        total = with_initial(e, op, partial, evaluation.form(initial))
        wanted = storage(dtype)
        return [total if total.dtype == wanted else e.copy(total, wanted)]

    def _over(self, e: EngineOps, tile: NkiTensor, how: Operator, dtype: DType) -> NkiTensor:
        """The reduction of a tile; floats stay float32."""
        tile = e.fit(tile, self._shape)
        if not dtype.is_float and not how.is_bitvec:
            return _exact(e, tile, how, dtype, self._dims, self._others)
        shape = tuple(1 if at in self._dims else size for at, size in enumerate(tile.shape))
        result = e.new(shape, float32 if dtype.is_float else storage(dtype))
        if not self._dims:
            return e.copy(tile, result.dtype, result)
        view = tile.permute((0, *self._others, *self._dims)) if self._others else tile
        last = tuple(range(1 + len(self._others), len(tile.shape)))
        reduce_last(e, result, view, how, last)
        return result

    def _extreme(self, evaluation: Evaluation, op: Op, how: Extreme) -> list[NkiTensor]:
        e = evaluation.e
        values, positions = evaluation.tile(op.operands[0]), evaluation.tile(op.operands[1])
        dtype = op.results[0].type.dtype
        best = self._over(e, values, how.op, dtype)
        comparable = best if best.dtype in (float32, values.dtype) else e.copy(best, values.dtype)
        if is_word(values.dtype):
            hit = e.copy(e.binary(values, comparable, alu.EQUAL, int32), uint8)
        else:
            hit = e.binary(values, comparable, alu.EQUAL, uint8)
        if dtype.is_float:
            hit = e.binary(hit, e.binary(values, values, alu.NOT_EQUAL, uint8), alu.BITWISE_OR)
        number = e.where(e.fit(hit, self._shape), e.copy(positions, float32), Splat(_FAR), float32)
        first = self._over(e, number, alu.MINIMUM, float32)
        kinds = [storage(result.type.dtype) for result in op.results]
        return [t if t.dtype == kind else e.copy(t, kind) for t, kind in zip((best, first), kinds, strict=True)]


def _exact(
    e: EngineOps, tile: NkiTensor, how: Operator, dtype: DType, dims: Sequence[int], others: Sequence[int]
) -> NkiTensor:
    """Integers, which wrap: halves of what is left are combined with each other on GpSimd, until one is left."""
    word = dtype if is_word(dtype) else int32
    lengths = [tile.shape[at] for at in others] + [prod(tile.shape[at] for at in dims)]
    flat_tile = e.new((tile.shape[0], *lengths), word)
    view = tile.permute((0, *others, *dims)) if others and dims else tile
    e.copy(view, word, _like(flat_tile, view))
    last = len(flat_tile.shape) - 1
    while flat_tile.shape[last] > 1:
        count = flat_tile.shape[last]
        half = count // 2
        front, back = flat_tile.slice(last, 0, half), flat_tile.slice(last, half, 2 * half)
        joined = e.binary(front, back, how)
        if count % 2:
            rest = e.binary(joined.slice(last, 0, 1), flat_tile.slice(last, count - 1, count), how)
            e.copy(rest, word, joined.slice(last, 0, 1))
        flat_tile = joined
    shape = tuple(1 if at in dims else size for at, size in enumerate(tile.shape))
    result = flat_tile.reshape(shape)
    return result if is_word(dtype) else wrapped(e, result, dtype)


def _like(tile: NkiTensor, view: NkiTensor) -> NkiTensor:
    return tile.reshape(view.shape) if tile.shape != view.shape else tile
