"""Where the elements of an epilogue's values lie, seen from the elements of the product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from nki.graph.emit.kit.panels import Dim, joined, strides_of
from nki.graph.errors import unsupported
from nki.graph.ir import Group, Op, Value

Axes = tuple[tuple[int, ...], ...]
"""For each dimension of a value the fine axes of the product that run through it; none if it is repeated."""

_RENAMING = frozenset({"broadcast_in_dim", "reshape", "transpose", "optimization_barrier"})


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is loaded, or made from its position: element = offset + sum of index times stride.

    Attributes:
        source: the input that holds it; None if the sum itself is the value (iota).
        strides: for each fine axis; 0 where it is repeated.
    """

    source: Value | None
    strides: tuple[int, ...]


class Coordinates:
    """The fine axes of a product: its dimensions, split where reshapes in the epilogue split them.

    Args:
        group: the product, then pointwise operations.

    Raises:
        GraphError: an operation of the epilogue changes the shape in a way that is no view (``graph.unsupported``).
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._product = group.ops[0].results[0]
        self._size = self._product.type.size
        self.counts = self._fine_counts()
        self._axes: dict[Value, Axes] = {}
        self._producers = {result: op for op in group.ops[1:] for result in op.results}
        self.leaves: dict[Value, Leaf] = {}
        self._find()

    def _fine_counts(self) -> tuple[int, ...]:
        values = {self._product: None}
        for op in self._group.ops[1:]:
            values.update(dict.fromkeys((*op.operands, *op.results)))
        cuts = {1, self._size}
        for value in values:
            if value.type.size == self._size:
                cuts.update(prod(value.type.shape[dim:]) for dim in range(len(value.type.shape)))
        ordered = sorted(cuts)
        if any(large % small for small, large in pairwise(ordered)):
            raise self._refused(self._group.ops[1], "its reshapes cut the result at places that do not nest")
        return tuple(large // small for small, large in pairwise(ordered))[::-1]

    def _find(self) -> None:
        for value in (*self._group.outputs, self._product):
            self._axes[value] = self._of_shape(value.type.shape)
        for op in reversed(self._group.ops[1:]):
            (result,) = op.results
            if result.type.size == self._size and result not in self._axes:
                self._axes[result] = self._of_shape(result.type.shape)
            axes = self._axes.get(result)
            if axes is None:  # only leaves follow from it
                continue
            if self._as_leaf(result, axes):
                continue
            for operand in op.operands:
                self._note(operand, self._through(op, axes, operand) if op.name in _RENAMING else axes, op)

    def _note(self, value: Value, axes: Axes, op: Op) -> None:
        if not value.type.shape:
            axes = ()
        if self._axes.setdefault(value, axes) != axes:
            raise self._refused(op, "an operand is used in two orientations")
        if value not in self._producers and value is not self._product:
            self._as_leaf(value, axes)

    def _as_leaf(self, value: Value, axes: Axes) -> bool:
        """Whether a value is an input, or an iota, by way of renaming only; then it is noted as such."""
        at, seen = value, axes
        while at in self._producers and self._producers[at].name in _RENAMING:
            op = self._producers[at]
            seen = self._through(op, seen, op.operands[0])
            at = op.operands[0]
        if at is self._product:
            return False
        if at not in self._producers:
            steps = strides_of(at.type.shape)
            self.leaves[value] = Leaf(at, self._strides(seen, steps, at.type.shape))
            return True
        op = self._producers[at]
        if op.name != "iota":
            return False
        steps = tuple(int(dim == op.attributes["iota_dimension"]) for dim in range(len(at.type.shape)))
        self.leaves[value] = Leaf(None, self._strides(seen, steps, at.type.shape))
        return True

    def _strides(self, axes: Axes, steps: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
        result = [0] * len(self.counts)
        for group, step, size in zip(axes, steps, shape, strict=True):
            if size == 1:
                continue
            for axis in reversed(group):
                result[axis] += step
                step *= self.counts[axis]
        return tuple(result)

    def _of_shape(self, shape: Sequence[int]) -> Axes:
        """The axes of a value with all elements, dimension by dimension."""
        result, axis = [], 0
        for size in shape:
            first, product = axis, 1
            while product < size:
                product *= self.counts[axis]
                axis += 1
            result.append(tuple(range(first, axis)))
        return tuple(result)

    def _through(self, op: Op, axes: Axes, operand: Value) -> Axes:
        """Axes of the operand of a renaming operation from those of its result."""
        shape, result = operand.type.shape, op.results[0].type.shape
        if op.name == "broadcast_in_dim":
            dims = op.attributes["broadcast_dimensions"]
            return tuple(axes[dim] if size == result[dim] else () for dim, size in zip(dims, shape, strict=True))
        if op.name == "transpose":
            there = op.attributes["permutation"]
            return tuple(axes[there.index(dim)] for dim in range(len(shape)))
        if op.name == "optimization_barrier" or shape == result:
            return axes
        return self._reshaped(op, axes, shape, result)

    def _reshaped(self, op: Op, axes: Axes, shape: Sequence[int], result: Sequence[int]) -> Axes:
        """Both are cut into the fine axes of the result; a repeated dimension stays whole."""
        pieces = [(axis, self.counts[axis]) for group in axes for axis in group]
        if prod(count for _, count in pieces) != prod(shape):
            full = [size for size in result if size != 1]
            if full != [size for size in shape if size != 1]:
                raise self._refused(op, "it splits or merges a repeated dimension")
            kept = iter(group for group, size in zip(axes, result, strict=True) if size != 1)
            return tuple(next(kept) if size != 1 else () for size in shape)
        found, at = [], iter(pieces)
        for size in shape:
            group: list[int] = []
            product = 1
            while product < size:
                axis, count = next(at)
                group.append(axis)
                product *= count
            if product != size:
                raise self._refused(op, "it cuts its operand where no axis of the product ends")
            found.append(tuple(group))
        return tuple(found)

    def _refused(self, op: Op, reason: str) -> Exception:
        return unsupported(
            op, f"{reason}, in the epilogue of a product", "compile with this operation in its own group"
        )

    def arranged(self, leaf: Leaf, sizes: Sequence[int]) -> list[tuple[Dim, ...]]:
        """The leaf's elements along dimensions of other sizes, into which the fine axes merge."""
        axes = list(zip(self.counts, leaf.strides, strict=True))[::-1]
        return [joined(_taken(axes, size))[0] for size in sizes]


def _taken(axes: list[tuple[int, int]], size: int) -> list[Dim]:
    """Outer axes with so many elements, taken off the end of the list; one may be split."""
    dims: list[Dim] = []
    while size > 1:
        count, stride = axes.pop()
        taken = min(count, size)
        if taken < count:
            axes.append((count // taken, stride))
        dims.append(Dim(taken, stride * (count // taken)))
        size //= taken
    return dims
