"""Elementwise operations on a concatenation of slices, as in a rotary embedding, are done on its pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki.graph.ir import Module, Op, TensorType, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.kinds import is_pointwise
from nki.graph.passes.rewriter import Rewriter, rewrite

_MOST_PIECES = 4
_DEPTH = 4
"""Operations through which a slice is moved towards what they read."""


def spread(module: Module, context: GraphContext) -> Module:
    """The model with concatenations of slices after the elementwise operations that use them, so that one kernel reads
    the slices, computes, and writes the pieces of the result."""
    return rewrite(module, _Spread().rule)


@dataclass(slots=True)
class _Spread:
    """Concatenations that were made, and how often the values in whose place they are were used."""

    made: dict[Value, int] = field(default_factory=dict)

    def rule(self, r: Rewriter, op: Op) -> Sequence[Value] | None:
        if not is_pointwise(op) or len(op.results) != 1:
            return None
        shape = op.results[0].type.shape
        if any(value.type.shape != shape for value in op.operands):
            return None
        joins = [join for value in op.operands if (join := self._join(r, value)) is not None]
        if not joins or len({_cuts(join) for join in joins}) > 1:
            return None
        return self._spread(r, op, joins)

    def _join(self, r: Rewriter, value: Value) -> Op | None:
        """The concatenation of slices that makes a value which nothing else uses."""
        join = r.maker(value, "concatenate")
        if join is None or self.made.get(value, r.uses.get(value, 0)) != 1:
            return None
        if value in self.made:
            return join
        few = len(join.operands) <= _MOST_PIECES
        return join if few and all(_is_slice(r, piece) for piece in join.operands) else None

    def _spread(self, r: Rewriter, op: Op, joins: Sequence[Op]) -> Sequence[Value]:
        dim, kind = joins[0].attributes["dimension"], op.results[0].type
        by_result = {join.results[0]: join for join in joins}
        pieces, start = [], 0
        for number, like in enumerate(joins[0].operands):
            size = like.type.shape[dim]
            operands = [
                by_result[value].operands[number] if value in by_result else _sliced(r, value, dim, start, size, _DEPTH)
                for value in op.operands
            ]
            pieces.append(r.op(op.name, operands, [_cut(kind, dim, size)], op.attributes)[0])
            start += size
        result = r.one("concatenate", pieces, kind, dimension=dim)
        self.made[result] = r.uses.get(op.results[0], 0)
        return [result]


def _cuts(join: Op) -> tuple[int, ...]:
    dim = join.attributes["dimension"]
    return (dim, *(piece.type.shape[dim] for piece in join.operands))


def _is_slice(r: Rewriter, value: Value) -> bool:
    """Whether a value is a slice, perhaps after one elementwise operation."""
    op = r.maker(value)
    if op is not None and is_pointwise(op) and len(op.operands) == 1:
        op = r.maker(op.operands[0])
    return op is not None and op.name == "slice"


def _cut(kind: TensorType, dim: int, size: int) -> TensorType:
    return TensorType((*kind.shape[:dim], size, *kind.shape[dim + 1 :]), kind.dtype)


def _sliced(r: Rewriter, value: Value, dim: int, start: int, size: int, depth: int) -> Value:
    """Part of a value along a dimension, by way of what makes it as far as that is elementwise."""
    op, kind = r.maker(value), _cut(value.type, dim, size)
    number = r.scalar_of(value)
    if number is not None:
        return r.full(number, kind)
    if op is not None and op.name == "broadcast_in_dim":
        return _repeated(r, op, dim, start, kind)
    inner = op is not None and depth and is_pointwise(op) and r.uses.get(value, 1) == 1
    if op is not None and inner and all(operand.type.shape == value.type.shape for operand in op.operands):
        operands = [_sliced(r, operand, dim, start, size, depth - 1) for operand in op.operands]
        return r.op(op.name, operands, [kind], op.attributes)[0]
    rank = len(kind.shape)
    starts = tuple(start if d == dim else 0 for d in range(rank))
    limits = tuple(low + count for low, count in zip(starts, kind.shape, strict=True))
    return r.one("slice", [value], kind, start_indices=starts, limit_indices=limits, strides=(1,) * rank)


def _repeated(r: Rewriter, op: Op, dim: int, start: int, kind: TensorType) -> Value:
    source, dims = op.operands[0], tuple(op.attributes["broadcast_dimensions"])
    if dim in dims and source.type.shape[dims.index(dim)] != 1:
        source = _sliced(r, source, dims.index(dim), start, kind.shape[dim], 0)
    return r.broadcast(source, kind.shape, dims)
