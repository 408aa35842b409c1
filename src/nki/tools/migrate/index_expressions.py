"""Index expressions of the first NKI as they are written: ``i * TILE + nl.arange(TILE)[:, None]``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import libcst as cst

from nki.tools.migrate.linear import Linear
from nki.tools.migrate.names import Names


@dataclass(frozen=True)
class Extent:
    """What an index expression does along one axis: ``step * (0 ... size - 1)``."""

    step: Linear
    size: Linear


@dataclass(frozen=True)
class Symbolic:
    """An index expression.

    Attributes:
        base: its value at position 0 of all axes.
        text: the base as the user writes it.
        axes: what it does along each axis, counted from the last one (-1).
        rank: how many axes it has.
    """

    base: Linear
    text: str
    axes: dict[int, Extent] = field(default_factory=dict)
    rank: int = 0


ONE = Linear.number(1)
ZERO = Linear.number(0)


def plain(text: str) -> Symbolic:
    """A number of Python."""
    return Symbolic(Linear.of(text), text)


class IndexReader:
    """Reads index expressions.

    Args:
        names: what names stand for.
        code: the text of an expression that is no index expression.
    """

    def __init__(self, names: Names, code: Callable[[cst.BaseExpression], str]) -> None:
        self._names = names
        self._code = code
        self.known: dict[str, Symbolic] = {}
        self.grids: dict[str, list[Symbolic]] = {}

    def read(self, node: cst.BaseExpression) -> Symbolic | None:
        """The expression; None if it is none that is understood. What has no axes is a number."""
        if isinstance(node, cst.Name) and node.value in self.known:
            return self.known[node.value]
        if isinstance(node, cst.Subscript):
            return self._subscript(node)
        if isinstance(node, cst.Call):
            size = self.arange(node)
            if size is not None:
                start, count, step = size
                return Symbolic(start, str(start), {-1: Extent(step, count)}, 1)
            return self._function(node)
        if isinstance(node, cst.Attribute):
            grid = self.grid(node.value)
            if grid is not None and node.attr.value in "pxyzw" and "pxyzw".index(node.attr.value) < len(grid):
                return grid["pxyzw".index(node.attr.value)]
        if isinstance(node, cst.BinaryOperation):
            return self._binary(node)
        if isinstance(node, cst.IfExp):
            return self._chosen(node)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            inner = self.read(node.expression)
            return None if inner is None else _scaled(inner, -ONE, "-1")
        return plain(self._code(node))

    def _function(self, node: cst.Call) -> Symbolic | None:
        name = self._names.canonical(node.func)
        functions = {"nl.add": "+", "nl.subtract": "-", "nl.multiply": "*"}
        if name in functions and len(node.args) == 2:
            a, b = (self.read(arg.value) for arg in node.args)
            if a is None or b is None:
                return None
            if a.axes or b.axes:
                return _combined(a, b, functions[name])
        return plain(self._code(node))

    def arange(self, node: cst.BaseExpression) -> tuple[Linear, Linear, Linear] | None:
        """Start, count and step of ``nl.arange(...)``."""
        if not isinstance(node, cst.Call) or self._names.canonical(node.func) != "nl.arange":
            return None
        given = [Linear.of(self._code(arg.value)) for arg in node.args if arg.keyword is None]
        if len(given) == 1:
            return ZERO, given[0], ONE
        if len(given) == 2:
            return given[0], given[1] - given[0], ONE
        if len(given) == 3 and given[2].constant:
            count = (given[1] - given[0]).constant
            return (given[0], Linear.number(-(-count // given[2].constant)), given[2]) if count is not None else None
        return None

    def grid(self, node: cst.BaseExpression) -> list[Symbolic] | None:
        """The index expressions of ``nl.mgrid[...]``."""
        if isinstance(node, cst.Name):
            return self.grids.get(node.value)
        if not isinstance(node, cst.Subscript) or self._names.canonical(node.value) != "nl.mgrid":
            return None
        found = []
        rank = len(node.slice)
        for axis, element in enumerate(node.slice):
            part = element.slice
            if not isinstance(part, cst.Slice) or part.upper is None or part.step is not None:
                return None
            low = Linear.of(self._code(part.lower)) if part.lower is not None else ZERO
            size = Linear.of(self._code(part.upper)) - low
            found.append(Symbolic(low, str(low), {axis - rank: Extent(ONE, size)}, rank))
        return found

    def _subscript(self, node: cst.Subscript) -> Symbolic | None:
        grid = self.grid(node.value)
        if grid is not None and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
            index = node.slice[0].slice.value
            if isinstance(index, cst.Integer) and int(index.value) < len(grid):
                return grid[int(index.value)]
        if isinstance(node.value, cst.Name | cst.Call | cst.BinaryOperation):
            inner = self.read(node.value)
            if inner is not None and inner.axes:
                return _placed(inner, node)
        return plain(self._code(node))

    def _chosen(self, node: cst.IfExp) -> Symbolic | None:
        """One of two expressions along the same axes; what differs is chosen where it is written."""
        one, other = self.read(node.body), self.read(node.orelse)
        if one is None or other is None or one.rank != other.rank or one.axes.keys() != other.axes.keys():
            return None
        test = self._code(node.test)

        def chosen(a: Linear, b: Linear) -> Linear:
            return a if str(a) == str(b) else Linear.of(f"{a} if {test} else {b}")

        axes = {}
        for axis, extent in one.axes.items():
            if str(extent.size) != str(other.axes[axis].size):
                return None
            axes[axis] = Extent(chosen(extent.step, other.axes[axis].step), extent.size)
        base = chosen(one.base, other.base)
        return Symbolic(base, one.text if one.text == other.text else str(base), axes, one.rank)

    def _binary(self, node: cst.BinaryOperation) -> Symbolic | None:
        symbols = {cst.Add: "+", cst.Subtract: "-", cst.Multiply: "*"}
        symbol = symbols.get(type(node.operator))
        left, right = self.read(node.left), self.read(node.right)
        if left is None or right is None:
            return None
        if not left.axes and not right.axes:
            return plain(self._code(node))
        return None if symbol is None else _combined(left, right, symbol)


def _combined(left: Symbolic, right: Symbolic, symbol: str) -> Symbolic | None:
    if symbol == "*":
        if left.axes and right.axes:
            return None
        factor, inner = (right, left) if left.axes else (left, right)
        return _scaled(inner, factor.base, factor.text)
    axes = dict(left.axes)
    for axis, extent in right.axes.items():
        step = extent.step if symbol == "+" else -extent.step
        if axis in axes:
            if str(axes[axis].size) != str(extent.size):
                return None
            step = axes[axis].step + step
        axes[axis] = Extent(step, extent.size)
    base = left.base + right.base if symbol == "+" else left.base - right.base
    return Symbolic(base, _joined(left.text, right.text, symbol), axes, max(left.rank, right.rank))


def _joined(left: str, right: str, symbol: str) -> str:
    if right == "0":
        return left
    if left == "0" and symbol == "+":
        return right
    if symbol == "-" and any(sign in right for sign in " +-"):
        right = f"({right})"
    return f"{left} {symbol} {right}" if left != "0" else f"-{right}"


def _scaled(inner: Symbolic, factor: Linear, text: str) -> Symbolic:
    axes = {axis: Extent(extent.step * factor, extent.size) for axis, extent in inner.axes.items()}
    base = inner.base * factor
    return Symbolic(base, "0" if inner.text == "0" else str(base), axes, inner.rank)


def _placed(inner: Symbolic, node: cst.Subscript) -> Symbolic | None:
    """``nl.arange(n)[:, None]``: where the axes of an expression come to stand."""
    keys = [element.slice for element in node.slice]
    rank = len(keys)
    own = sorted(inner.axes)
    kept: list[int] = []
    for at, key in enumerate(keys):
        if isinstance(key, cst.Slice) and key.lower is None and key.upper is None:
            kept.append(at - rank)
        elif not (isinstance(key, cst.Index) and isinstance(key.value, cst.Name) and key.value.value == "None"):
            return None
    if len(kept) != inner.rank or len(own) != len(kept):
        return None
    return Symbolic(inner.base, inner.text, dict(zip(kept, (inner.axes[axis] for axis in own), strict=True)), rank)
