"""Memory and shapes of the array namespace on symbols: which elements a value is loaded from and stored to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from nki.core.tensor import FreeIndirection, VectorOffset, View
from nki.native.trace.expression import (
    COLUMN,
    F32,
    INSIDE,
    ROW,
    Node,
    NotTraceable,
    RecurrenceStep,
    float_bits,
    reachable,
    storage_type,
)
from nki.native.trace.form import OperandSlot, Store
from nki.native.trace.integers import Integers
from nki.native.trace.regular_parts import piece
from nki.spec.program import Issued


class _Pieces(NamedTuple):
    """Columns side by side, which only a store takes."""

    columns: tuple[Node, ...]


class Operands(Integers):
    """Loads, stores, and what regroups elements."""

    def __init__(self, issued: Issued) -> None:
        super().__init__()
        self._names = list(issued.views())
        self._partitions = 0
        self._slots: list[OperandSlot] = []
        self._stores: list[Store] = []
        self._counts: list[int] = []
        self._groups = 1

    # --- memory

    def load(self, view: View) -> Node:
        return self.decoded(self.load_raw(view))

    def load_raw(self, view: View) -> Node:
        slot, domain = self._slot(view, "read")
        kind, rank = storage_type(view.dtype), COLUMN if domain < 0 else ROW
        return self.graph.leaf("load", slot, kind, rank, domain, view.dtype)

    def column(self, value: View | float | int) -> Node:
        return self.load(value) if isinstance(value, View) else self.immediate(float_bits(value), F32)

    def store(self, view: View, values: Any) -> None:
        if isinstance(values, _Pieces):
            for i, column in enumerate(values.columns):
                self.store(self._piece(view, i, 1, 1), column)
            return
        value = self.real(values)
        if value.op == "constant":
            value = self.immediate(value.whole, F32)
        self._write(view, self.encoded(value, view.dtype))

    def store_raw(self, view: View, values: Any) -> None:
        value = self.storage(values)
        if value.type != storage_type(view.dtype):
            raise NotTraceable("bits of another size")
        self._write(view, value)

    def copy(self, dst: View, src: View) -> None:
        if dst.dtype == src.dtype:
            self.store_raw(dst, self.load_raw(src))
        else:
            self.store(dst, self.load(src))

    def dma(self, dst: View, src: View, skip: bool, axes: Sequence[int] | None = None, add: View | None = None) -> None:
        if dst.dynamic is not None or src.dynamic is not None or tuple(axes or ()) not in ((), tuple(range(src.ndim))):
            raise NotTraceable("dma")
        if add is not None:
            self.store(dst, self.add(self.load(add), self.load(src)))
        else:
            self.copy(dst, src)

    def _write(self, view: View, value: Node) -> None:
        slot, domain = self._slot(view, "write")
        if value.rank == ROW and value.domain != domain:
            raise NotTraceable("a store of another length")
        if domain >= 0 and any(s.domain < 0 and self._slots[s.slot].view is not None for s in self._stores):
            raise NotTraceable("a row after a column")
        self._stores.append(Store(slot, value, domain))

    def _slot(self, view: View, mode: str) -> tuple[int, int]:
        if isinstance(view.dynamic, FreeIndirection | VectorOffset):
            raise NotTraceable("dynamic address")
        if self._stores and mode == "read":
            raise NotTraceable("load after store")
        if self._partitions not in (0, view.shape[0]):
            raise NotTraceable("several numbers of partitions")
        self._partitions = view.shape[0]
        count = view.free_size
        if self._groups > 1:
            if mode == "read" or count != self._groups:
                raise NotTraceable("groups and rows")
            count = 1
        domain = -1 if count == 1 else self.domain(count)
        self._slots.append(OperandSlot(self._name(view), view, mode, view.dtype, domain >= 0 or self._groups > 1))
        return len(self._slots) - 1, domain

    def domain(self, count: int) -> int:
        if count not in self._counts:
            self._counts.append(count)
        return self._counts.index(count)

    def _name(self, view: View) -> str:
        for name, given in self._names:
            if given.buffer is view.buffer:
                return name
        raise NotTraceable("memory that is no operand")

    def _piece(self, view: View, start: int, step: int, count: int) -> View:
        found = piece(view, start, step, count)
        if found is None:
            raise NotTraceable("elements of several dimensions")
        return found

    # --- shapes

    def reshape(self, a: Any, shape: Sequence[int]) -> Node:
        extent = 1 if a.domain < 0 else self._counts[a.domain]
        groups = prod(shape[1:-1])
        if len(shape) == 3 and groups > 1 and a.domain >= 0:
            return self._grouped(a, groups, shape[2])
        if prod(shape[1:]) != extent * (self._groups if a.domain < 0 else 1) or shape[0] != self._partitions:
            raise NotTraceable("reshape")
        return a

    def _grouped(self, a: Node, groups: int, count: int) -> Node:
        """Rows fall into groups: what is one value for each partition from here on is one for each group."""
        raw = a.arguments[0] if a.op in ("decode", "bitcast") else a
        if raw.op != "load" or len(self._slots) != 1 or count == 1:
            raise NotTraceable("groups of computed rows")
        self._groups = groups
        self._counts = [count]
        return a

    def broadcast(self, a: Any, partitions: int, count: int) -> Node:
        if count != 1 or a.rank == ROW:
            raise NotTraceable("broadcast")
        return a

    def every(self, a: Any, start: int, step: int) -> Node:
        if a.domain < 0 and start == 0:
            return a
        if a.op == "recurrence" and start == self._counts[a.domain] - 1:
            return self.graph.special("last", (a,), None, COLUMN, -1)
        count = len(range(start, self._counts[a.domain], step))
        return self._part(a, start, step, count)

    def _part(self, value: Node, start: int, step: int, count: int) -> Node:
        """Regular elements of a row that is loaded."""
        raw = value.arguments[0] if value.op in ("decode", "bitcast") else value
        view = self._slots[raw.whole].view if raw.op == "load" else None
        if view is None:
            raise NotTraceable("elements of computed rows")
        part = self._piece(view, start, step, count)
        return self.load_raw(part) if raw is value else self.load(part)

    def concatenate(self, parts: Sequence[Any]) -> Any:
        if any(part.rank == ROW for part in parts):
            raise NotTraceable("concatenate")
        return _Pieces(tuple(parts))

    def reduced_difference(self, value: Node) -> Node:
        if value.domain < 0:
            return self.node("subtract", (value, self.constant(0.0)))
        first, rest = self._part(value, 0, 1, 1), self._part(value, 1, 1, self._counts[value.domain] - 1)
        total = self.graph.reduction("add", rest) if rest.rank == ROW else self.node("add", (rest, self.constant(0.0)))
        return self.node("subtract", (first, total))

    def recurrence(self, step: Callable[..., Any], initial: Any, *sequences: Any) -> Node:
        domain = sequences[0].domain
        if any(sequence.domain != domain for sequence in sequences):
            raise NotTraceable("sequences of several lengths")
        if domain < 0:
            return step(initial, *sequences)
        leaves = [self.graph.special("inside", (), i, ROW, INSIDE) for i in range(len(sequences) + 1)]
        result = self.real(step(*leaves))
        outer = [node for node in reachable([result]) if node.rank != ROW and node.op != "constant"]
        attribute = RecurrenceStep(leaves[0], tuple(leaves[1:]), result)
        return self.graph.special("recurrence", (initial, *sequences, *outer), attribute, ROW, domain)
