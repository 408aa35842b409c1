"""Values that one region of the text can see: those of the record, of a partition, and of a vector of elements."""

from __future__ import annotations

from collections.abc import Sequence

from nki.native.emit.code import LANES, Code
from nki.native.emit.memory import AddressEmitter
from nki.native.emit.ops import operation
from nki.native.trace.expression import Node


class EmittedValues:
    """Single values by node, and the vectors that repeat them."""

    def __init__(self, code: Code, outer: EmittedValues | None = None) -> None:
        self.code = code
        self.outer = outer
        self.names: dict[int, str] = {}
        self.vectors: dict[int, str] = {}

    def single(self, node: Node) -> str:
        """The value of a scalar or a column."""
        if node.op == "constant":
            return self.code.constant(node.whole, node.type, 0)
        if node.number in self.names:
            return self.names[node.number]
        assert self.outer is not None, f"{node} was computed"
        return self.outer.single(node)

    def repeat(self, node: Node) -> None:
        """Make the vector of a scalar or column here, outside of the loop that needs it."""
        if node.op == "constant" or node.number in self.vectors:
            return
        if node.number in self.names:
            self.vectors[node.number] = self.code.splat(self.names[node.number], node.type, LANES)
        else:
            assert self.outer is not None, f"{node} was computed"
            self.outer.repeat_known(node, self)

    def repeat_known(self, node: Node, wanted: EmittedValues) -> None:
        """Make the vector for an inner region: here only if it was made before that began."""
        if node.number not in self.vectors:
            wanted.vectors[node.number] = self.code.splat(self.single(node), node.type, LANES)

    def vector(self, node: Node) -> str:
        """The vector that repeats a scalar or column; see `repeat`."""
        if node.op == "constant":
            return self.code.constant(node.whole, node.type, LANES)
        if node.number in self.vectors:
            return self.vectors[node.number]
        assert self.outer is not None, f"{node} was repeated"
        return self.outer.vector(node)

    def compute(self, node: Node) -> None:
        """A scalar or column from others."""
        if node.op != "constant":
            arguments = [self.single(argument) for argument in node.arguments]
            self.names[node.number] = operation(self.code, node, arguments, 0)


def scalars(code: Code, memory: AddressEmitter, nodes: Sequence[Node]) -> EmittedValues:
    """The values of a record."""
    result = EmittedValues(code)
    for node in nodes:
        if node.op == "immediate":
            word = memory.immediates[node.whole]
            result.names[node.number] = _from_word(code, word, node.type)
        else:
            result.compute(node)
        result.repeat(node)
    return result


def _from_word(code: Code, word: str, kind: str) -> str:
    if kind == "f32":
        return code.cast("arith.bitcast", code.cast("arith.trunci", word, "i64", "i32", 0), "i32", "f32", 0)
    return code.cast("arith.trunci", word, "i64", kind, 0)
