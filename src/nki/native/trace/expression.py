"""Symbolic values of a body: nodes of an expression graph, in which equal expressions are one node."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

import numpy as np

from nki.core.dtypes import DType

SCALAR, COLUMN, ROW = 0, 1, 2
"""How far a value extends: one for all, one for each partition, one for each element."""

F32, F64, MASK, I8, I16, I32, I64 = "f32", "f64", "i1", "i8", "i16", "i32", "i64"

_OF_SIZE = {1: I8, 2: I16, 4: I32}

FREE = frozenset({"immediate", "constant", "load", "bitcast", "partition", "position", "recurrence"})
"""Operations that are no arithmetic."""


IN_ORDER = "sum_in_order"
"""The reduction that is one sum, one element after the other; other ones are names of operators."""


class NotTraceable(Exception):
    """An instruction that has no row kernel; the text is why, in a few words."""


class Symbol:
    """Stands for values; a body that wants to compute on them as NumPy arrays cannot be traced."""

    __slots__ = ()

    def __array__(self, *unused: object, **none: object) -> object:
        raise NotTraceable("computed by NumPy")

    def __getitem__(self, index: object) -> object:
        raise NotTraceable("computed by NumPy")

    def __getattr__(self, name: str) -> object:
        raise NotTraceable("computed by NumPy")


class Node(Symbol):
    """One value; it is no array, and NumPy cannot use it as one.

    Attributes:
        number: position in the graph; arguments come before what uses them.
        op: what computes it; see `nki.native.emit.ops`.
        arguments: the nodes it is computed from.
        attribute: what else decides it: the name of a relation, a slot, the bits of a constant, ...
        type: of one element: f32, f64, i1 (masks) or a storage integer i8, i16, i32.
        rank: `SCALAR`, `COLUMN` or `ROW`.
        domain: which row loop it belongs to; -1 for scalars and columns.
        dtype: what storage integers hold; None for arithmetic values.
    """

    __slots__ = ("arguments", "attribute", "domain", "dtype", "number", "op", "rank", "type")

    def __init__(
        self,
        number: int,
        op: str,
        arguments: tuple[Node, ...],
        attribute: Hashable,
        kind: str,
        rank: int,
        domain: int,
        dtype: DType | None,
    ) -> None:
        self.number = number
        self.op = op
        self.arguments = arguments
        self.attribute = attribute
        self.type = kind
        self.rank = rank
        self.domain = domain
        self.dtype = dtype

    @property
    def whole(self) -> int:
        """The attribute, where it is a number."""
        assert isinstance(self.attribute, int), f"{self} has a number"
        return self.attribute

    def __repr__(self) -> str:
        inner = ", ".join([f"%{argument.number}" for argument in self.arguments])
        return f"%{self.number} = {self.op}[{self.attribute}]({inner}) : {self.type} rank {self.rank}"


class RecurrenceStep(NamedTuple):
    """One step of a recurrence: `result` from the state before and the elements of the sequences."""

    state: Node
    elements: tuple[Node, ...]
    result: Node


INSIDE = -2
"""The domain of what a step computes."""


class MixedDomains(Exception):
    """Rows of different lengths in one operation."""


class Graph:
    """All nodes of one trace."""

    __slots__ = ("_known", "nodes", "text")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.text: list[str] = []
        self._known: dict[tuple[Hashable, ...], Node] = {}

    def leaf(
        self, op: str, attribute: Hashable, kind: str, rank: int, domain: int = -1, dtype: DType | None = None
    ) -> Node:
        """A value that is computed from nothing."""
        key = (op, attribute, kind, rank, domain, dtype)
        found = self._known.get(key)
        return self._added(key, (), dtype) if found is None else found

    def node(
        self, op: str, arguments: tuple[Node, ...], kind: str, attribute: Hashable = None, dtype: DType | None = None
    ) -> Node:
        """An elementwise operation: as far extended as the farthest argument.

        Raises:
            MixedDomains: two arguments are rows of different lengths.
        """
        key = (op, attribute, kind, dtype, *[argument.number for argument in arguments])
        found = self._known.get(key)
        if found is not None:
            return found
        rank, domain = SCALAR, -1
        for argument in arguments:
            if argument.rank > rank:
                rank, domain = argument.rank, argument.domain
            elif argument.rank == ROW and argument.domain != domain:
                raise MixedDomains
        made = Node(len(self.nodes), op, arguments, attribute, kind, rank, domain, dtype)
        return self._keep(key, made)

    def reduction(self, operator: str, argument: Node) -> Node:
        """A row's elements as one value for each partition."""
        key = ("reduce", operator, argument.number)
        found = self._known.get(key)
        if found is not None:
            return found
        made = Node(len(self.nodes), "reduce", (argument,), operator, argument.type, COLUMN, -1, argument.dtype)
        return self._keep(key, made)

    def special(
        self, op: str, arguments: tuple[Node, ...], attribute: Hashable, rank: int, domain: int, kind: str = F32
    ) -> Node:
        """A node whose extent does not follow from its arguments; never shared."""
        made = Node(len(self.nodes), op, arguments, attribute, kind, rank, domain, None)
        return self._keep((op, len(self.nodes)), made)

    def _added(self, key: tuple[Hashable, ...], arguments: tuple[Node, ...], dtype: DType | None) -> Node:
        op, attribute, kind, rank, domain = key[:5]
        made = Node(len(self.nodes), str(op), arguments, attribute, str(kind), rank, domain, dtype)  # type: ignore[arg-type]
        return self._keep(key, made)

    def _keep(self, key: tuple[Hashable, ...], made: Node) -> Node:
        self._known[key] = made
        self.nodes.append(made)
        numbers = ",".join([str(argument.number) for argument in made.arguments])
        self.text.append(f"{made.op}|{made.attribute}|{numbers}|{made.type}|{made.rank}|{made.domain}")
        return made


def storage_type(dtype: DType) -> str:
    """The integer type that holds the bits of a dtype."""
    return _OF_SIZE[dtype.itemsize]


def float_bits(value: float) -> int:
    """The bits of the float32 next to a number."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


def reachable(roots: Iterable[Node]) -> list[Node]:
    """The nodes and all that they are computed from; arguments come first."""
    found: dict[int, Node] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node.number not in found:
            found[node.number] = node
            waiting += node.arguments
    return [found[number] for number in sorted(found)]
