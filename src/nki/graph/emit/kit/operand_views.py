"""Operands of products that are views: where their elements lie in the tensor that is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nki.graph.emit.kit.access import NotAffineError
from nki.graph.emit.kit.boxes import strides_of
from nki.graph.ir import Op, Value


@dataclass(frozen=True, slots=True)
class OperandView:
    """An element is at ``offset + sum(index * step)`` of the source, in elements.

    Attributes:
        source: what is loaded.
        steps: one for each dimension of the operand.
    """

    source: Value
    offset: int
    steps: tuple[int, ...]


def view_of(value: Value, makers: Mapping[Value, Op]) -> OperandView:
    """Where an operand lies, by way of the transposes, slices and reshapes that make it.

    Raises:
        NotAffineError: on no regular pattern.
    """
    if value not in makers:
        return OperandView(value, 0, strides_of(value.type.shape))
    op = makers[value]
    inner = view_of(op.operands[0], makers)
    if op.name == "transpose":
        return OperandView(inner.source, inner.offset, tuple(inner.steps[dim] for dim in op.attributes["permutation"]))
    if op.name == "slice":
        starts, strides = op.attributes["start_indices"], op.attributes["strides"]
        offset = sum(start * step for start, step in zip(starts, inner.steps, strict=True))
        steps = tuple(stride * step for stride, step in zip(strides, inner.steps, strict=True))
        return OperandView(inner.source, inner.offset + offset, steps)
    if op.name == "reshape":
        steps = _reshaped(op.operands[0].type.shape, inner.steps, value.type.shape)
        return OperandView(inner.source, inner.offset, steps)
    raise NotAffineError


def _reshaped(shape: Sequence[int], steps: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """Steps in another shape: dimensions that follow each other in memory are merged, then cut."""
    whole: list[tuple[int, int]] = []
    for size, step in zip(shape, steps, strict=True):
        if size == 1:
            continue
        if whole and whole[-1][1] == size * step:
            whole[-1] = (whole[-1][0] * size, step)
        else:
            whole.append((size, step))
    found: list[int] = []
    for size in reversed(wanted):
        if size == 1:
            found.append(1)
            continue
        if not whole or whole[-1][0] % size:
            raise NotAffineError
        count, step = whole.pop()
        found.append(step)
        if count > size:
            whole.append((count // size, step * size))
    return tuple(reversed(found))
