"""Instructions with one element for each partition: 16 partitions make a vector."""

from __future__ import annotations

from collections.abc import Sequence

from nki.native.emit.code import LANES, Code, type_of
from nki.native.emit.memory import AddressEmitter
from nki.native.emit.ops import operation
from nki.native.emit.values import EmittedValues
from nki.native.trace.expression import Node
from nki.native.trace.symbolic_execution import Store


class Columns:
    """Values of 16 partitions; behind the last partition it is repeated, which computes and stores the same again."""

    def __init__(self, code: Code, memory: AddressEmitter, outer: EmittedValues, partition: str, last: str) -> None:
        self.code = code
        self.memory = memory
        self.outer = outer
        self.partitions = [
            code.binary("arith.minsi", code.add(partition, code.number(lane)), last, "i64", 0) for lane in range(LANES)
        ]
        self.names: dict[int, str] = {}

    def compute(self, nodes: Sequence[Node]) -> None:
        """All columns, in order."""
        for node in nodes:
            if node.op == "partition":
                self.names[node.number] = self._numbers()
            elif node.op == "load":
                self.names[node.number] = self._load(node)
            else:
                arguments = [self.vector(argument) for argument in node.arguments]
                self.names[node.number] = operation(self.code, node, arguments, LANES)

    def vector(self, node: Node) -> str:
        """The values of the partitions."""
        return self.names[node.number] if node.number in self.names else self.outer.vector(node)

    def store(self, stores: Sequence[Store]) -> None:
        """Write all results."""
        for store in stores:
            node = store.value
            vector = self.vector(node)
            for lane, partition in enumerate(self.partitions):
                value = self.code.let(f"vector.extract {vector}[{lane}] : {node.type} from {type_of(node.type, LANES)}")
                self.memory.store(store.slot, partition, value, node.type)

    def _numbers(self) -> str:
        code, vector = self.code, self.code.constant(0, "i64", LANES)
        for lane, partition in enumerate(self.partitions):
            vector = code.let(f"vector.insert {partition}, {vector}[{lane}] : i64 into {type_of('i64', LANES)}")
        return code.cast("arith.trunci", vector, "i64", "i32", LANES)

    def _load(self, node: Node) -> str:
        vector = self.code.constant(0, node.type, LANES)
        for lane, partition in enumerate(self.partitions):
            value = self.memory.load(node.whole, partition, node.type)
            vector = self.code.let(
                f"vector.insert {value}, {vector}[{lane}] : {node.type} into {type_of(node.type, LANES)}"
            )
        return vector
