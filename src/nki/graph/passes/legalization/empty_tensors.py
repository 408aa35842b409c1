"""Tensors without elements: nothing computes them, and what combines them with others does without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.regions import is_plain, on_tensors
from nki.graph.passes.rewriter import Rewriter

_KEPT = frozenset({"constant", "while", "case", "if", "call", "custom_call", "optimization_barrier"})


def without_elements(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """What takes the place of an operation on, or with the result of, a tensor without elements; None for others."""
    if op.name in _KEPT or not op.results:
        return None
    if not any(value.type.size for value in op.results):
        return [r.constant(np.zeros(value.type.shape, value.type.dtype.numpy)) for value in op.results]
    if all(value.type.size for value in op.operands):
        return None
    rule = _RULES.get(op.name)
    return None if rule is None else rule(r, op)


def _zeros(r: Rewriter, op: Op) -> Sequence[Value]:
    """A sum of nothing."""
    return [r.full(0, op.results[0].type)]


def _concatenate(r: Rewriter, op: Op) -> Sequence[Value]:
    parts = [value for value in op.operands if value.type.size]
    return parts if len(parts) == 1 else r.op(op.name, parts, [op.results[0].type], op.attributes)


def _initial(r: Rewriter, op: Op) -> Sequence[Value]:
    """A reduction of nothing."""
    starts = op.operands[len(op.results) :]
    return [r.broadcast(start, result.type.shape, ()) for start, result in zip(starts, op.results, strict=True)]


def _windows(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Windows of padding alone: the initial value combined with itself, which changes nothing if it is neutral."""
    made = _initial(r, op)
    return on_tensors(r, op.regions[0], [*made, *made]) if is_plain(op.regions[0]) else None


def _filling(r: Rewriter, op: Op) -> Sequence[Value]:
    return [r.broadcast(op.operands[1], op.results[0].type.shape, ())]


def _unchanged(r: Rewriter, op: Op) -> Sequence[Value]:
    """Nothing is written into the operands."""
    return op.operands[: len(op.results)]


def _scattered(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """Updates that are none change nothing; indices without numbers are the origin, as indices of one zero are."""
    operand, indices, updates = op.operands[0], op.operands[len(op.results)], op.operands[-1]
    if not updates.type.size:
        return _unchanged(r, op)
    if not operand.type.shape:
        return on_tensors(r, op.regions[0], [operand, updates]) if is_plain(op.regions[0]) else None
    place = op.attributes["index_vector_dim"]
    shape = (*indices.type.shape[:place], 1, *indices.type.shape[place + 1 :])
    taken = op.attributes.get("input_batching_dims", ())
    free = next(dim for dim in range(len(operand.type.shape)) if dim not in taken)
    zeros = r.full(0, TensorType(shape, indices.type.dtype))
    operands = [zeros if value is indices else value for value in op.operands]
    attributes = {**op.attributes, "scatter_dims_to_operand_dims": (free,)}
    return r.op(op.name, operands, [value.type for value in op.results], attributes, op.regions)


def _spread(r: Rewriter, op: Op) -> Sequence[Value]:
    """The sources of a select_and_scatter are none."""
    return [r.broadcast(op.operands[2], op.results[0].type.shape, ())]


_RULES: Mapping[str, Callable[[Rewriter, Op], Sequence[Value] | None]] = {
    "concatenate": _concatenate,
    "convolution": _zeros,
    "dot_general": _zeros,
    "dynamic_update_slice": _unchanged,
    "pad": _filling,
    "reduce": _initial,
    "reduce_window": _windows,
    "scatter": _scattered,
    "select_and_scatter": _spread,
}
