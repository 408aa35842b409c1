"""Masks as bounds of slices: ``mask=i * 128 + i_p < rows`` leaves ``min(128, rows - i * 128)`` partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import libcst as cst

from nki.tools.migrate.index_expressions import IndexReader, Symbolic, _combined
from nki.tools.migrate.linear import Linear
from nki.tools.migrate.problems import Unmigrated


@dataclass(frozen=True)
class Cut:
    """What is left of an axis: positions ``low`` to ``high``."""

    low: str
    high: str

    @property
    def size(self) -> str:
        return self.high if self.low == "0" else str(Linear.of(self.high) - Linear.of(self.low))


@dataclass
class Bounds:
    """What a mask leaves.

    Attributes:
        axes: 0 for the partitions, -1 for the last axis and so on; what is left of each.
        joined: expressions of several axes: where one is negative, nothing is left.
    """

    axes: dict[int, Cut] = field(default_factory=dict)
    joined: list[Symbolic] = field(default_factory=list)


class MaskReader:
    """Reads masks.

    Args:
        condition: the text of a condition of loop variables and the like.
        name_of: the name of a variable with the smaller of two numbers, which is assigned before the statement.

    Attributes:
        known: masks that have names.
        conditions: those of all masks that were read; where one is false, nothing is left of any value.
    """

    def __init__(
        self,
        indices: IndexReader,
        condition: Callable[[cst.BaseExpression], str],
        name_of: Callable[[int, str], str],
    ) -> None:
        self._indices = indices
        self._condition = condition
        self._name_of = name_of
        self.known: dict[str, cst.BaseExpression] = {}
        self.conditions: dict[str, None] = {}

    def read(self, node: cst.BaseExpression | None, *, joined: bool = False) -> Bounds:
        """The bounds. Raises Unmigrated for a mask that joins axes, but where `joined` says that it may."""
        bounds = Bounds()
        if node is not None:
            self._add(node, bounds)
        if bounds.joined and not joined:
            raise Unmigrated("the mask joins several axes, which is no part that slices can name")
        return bounds

    def _add(self, node: cst.BaseExpression, bounds: Bounds) -> None:
        if isinstance(node, cst.Name):
            if node.value in ("None", "True"):
                return
            if node.value in self.known:
                self._add(self.known[node.value], bounds)
                return
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
            self._add(node.left, bounds)
            self._add(node.right, bounds)
            return
        if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.And):
            self._add(node.left, bounds)
            self._add(node.right, bounds)
            return
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            self._compare(node, bounds)
            return
        self.conditions[self._condition(node)] = None

    def relation(self, node: cst.BaseExpression) -> tuple[Symbolic, str]:
        """A comparison of index expressions as one of an expression with 0."""
        if isinstance(node, cst.Name) and node.value in self.known:
            node = self.known[node.value]
        if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
            raise Unmigrated("the predicate is no single comparison")
        target = node.comparisons[0]
        left, right = self._indices.read(node.left), self._indices.read(target.comparator)
        if left is None or right is None:
            raise Unmigrated("the predicate is no comparison of index expressions")
        less = isinstance(target.operator, cst.LessThan | cst.LessThanEqual)
        found = _combined(right, left, "-") if less else _combined(left, right, "-")
        assert found is not None, "a difference of index expressions is one"
        if isinstance(target.operator, cst.LessThan | cst.GreaterThan):
            found = replace(found, base=found.base - Linear.number(1))
        if isinstance(target.operator, cst.Equal | cst.NotEqual):
            return found, "equal" if isinstance(target.operator, cst.Equal) else "not_equal"
        return found, "greater_equal"

    def _compare(self, node: cst.Comparison, bounds: Bounds) -> None:
        target = node.comparisons[0]
        left, right = self._indices.read(node.left), self._indices.read(target.comparator)
        if left is None or right is None:
            raise Unmigrated("the mask is no comparison of index expressions")
        if not left.axes and not right.axes:
            self.conditions[self._condition(node)] = None
            return
        strict = isinstance(target.operator, cst.LessThan | cst.GreaterThan)
        if isinstance(target.operator, cst.LessThan | cst.LessThanEqual):
            rest = _combined(right, left, "-")
        elif isinstance(target.operator, cst.GreaterThan | cst.GreaterThanEqual):
            rest = _combined(left, right, "-")
        else:
            raise Unmigrated("the mask chooses single positions of an axis")
        assert rest is not None, "a difference of index expressions is one"
        base = rest.base - Linear.number(int(strict))
        self._cut(rest, base, bounds)

    def _cut(self, rest: Symbolic, base: Linear, bounds: Bounds) -> None:
        """``base + steps * positions >= 0``."""
        axes = {axis: extent for axis, extent in rest.axes.items() if extent.step.terms}
        if len(axes) > 1:
            bounds.joined.append(replace(rest, base=base, axes=axes))
            return
        ((axis, extent),) = axes.items()
        step = extent.step.constant
        if not step:
            raise Unmigrated("the mask has a step that is no number")
        key = 0 if axis == -rest.rank else axis
        before = bounds.axes.get(key, Cut("0", str(extent.size)))
        if step < 0:
            limit = base if step == -1 else Linear.of(f"({base}) // {-step}")
            high = self._smaller(key, before.high, limit + Linear.number(1))
            bounds.axes[key] = Cut(before.low, high)
        else:
            first = -base if step == 1 else Linear.of(f"-(({base}) // {step})")
            number = first.constant
            low = str(max(0, number)) if number is not None else self._name_of(key, f"max(0, {first})")
            bounds.axes[key] = Cut(low, before.high)

    def _smaller(self, key: int, size: str, limit: Linear) -> str:
        number, other = limit.constant, Linear.of(size).constant
        if number is not None and other is not None:
            return str(min(number, other))
        return self._name_of(key, f"min({size}, {limit})")
