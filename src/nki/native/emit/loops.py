"""In which loops over the elements of a partition the values of a trace are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nki.native.emit.code import LANES
from nki.native.trace.expression import F32, FREE, IN_ORDER, ROW, SCALAR, Node, reachable
from nki.native.trace.symbolic_execution import Store

_DEAR = 12
"""Operations from which on a row is kept in scratch memory, not computed again by a later loop."""

_LATENCY_BOUND, _MODERATE = 24, 64
_SHORT = 8
_SCANNED_AT_ONCE = 8


@dataclass(slots=True)
class ElementLoop:
    """One pass over the elements.

    Attributes:
        domain: whose length it has.
        nodes: what it computes, in order; loads are among them.
        reductions: whose argument it has.
        stores: of rows.
        spills, reloads: rows that it writes to scratch memory, or reads from there instead of computing them.
        scans: recurrences over rows that it spills.
    """

    domain: int
    nodes: list[Node] = field(default_factory=list)
    reductions: list[Node] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    spills: list[Node] = field(default_factory=list)
    reloads: list[Node] = field(default_factory=list)
    scans: list[Node] = field(default_factory=list)

    @property
    def in_order(self) -> bool:
        """Whether its reductions are sums in order: a vector has a partition in each lane."""
        return any(node.attribute == IN_ORDER for node in self.reductions)

    @property
    def operations(self) -> int:
        """How much it computes for an element."""
        return sum([node.op not in FREE for node in self.nodes])


@dataclass(slots=True)
class LoopNest:
    """What a partition needs.

    Attributes:
        loops: in order.
        columns: values for each partition, in order, all of which are needed; reductions are among them.
        scalars: values for the whole record.
        slots: numbers of the slots that are read.
        writes: whether rows or columns are stored.
        copies: partitions that the loops treat at once, to overlap chains of dependent additions.
        unroll: vectors of one partition that the loops treat at once.
    """

    loops: list[ElementLoop]
    columns: list[Node]
    scalars: list[Node]
    slots: set[int]
    writes: bool
    copies: int
    unroll: int


def plan(columns: Sequence[Node], stores: Sequence[Store]) -> LoopNest:
    """Loops for these values: all rows are stored by the last ones, so that every loop reads what was there before."""
    live = reachable([*columns, *[store.value for store in stores]])
    levels = _levels(live)
    rows = [store for store in stores if store.domain >= 0]
    reductions = [node for node in live if node.op == "reduce"]
    scans = [node for node in live if node.op == "recurrence"]
    begins = [levels[node.arguments[0].number] for node in reductions] + [levels[node.number] - 1 for node in scans]
    last = max([*begins, *[levels[store.value.number] for store in rows]], default=0)
    loops: dict[tuple[int, int], ElementLoop] = {}

    def loop(level: int, domain: int) -> ElementLoop:
        return loops.setdefault((level, domain), ElementLoop(domain))

    for node in reductions:
        loop(levels[node.arguments[0].number], node.arguments[0].domain).reductions.append(node)
    for node in scans:
        loop(levels[node.number] - 1, node.domain).scans.append(node)
    for store in rows:
        loop(last, store.domain).stores.append(store)
    ordered = sorted(loops.items(), key=lambda item: (item[0][0], bool(item[1].stores), item[0][1]))
    result = [loop for _, loop in ordered]
    _fill(result)
    return LoopNest(
        result,
        [node for node in live if node.rank not in (SCALAR, ROW)],
        [node for node in live if node.rank == SCALAR],
        {node.whole for node in live if node.op == "load"},
        bool(stores),
        *_shape(result),
    )


def _shape(loops: Sequence[ElementLoop]) -> tuple[int, int]:
    operations = max([loop.operations for loop in loops], default=0)
    if any(loop.in_order for loop in loops):
        return LANES, 1
    if any(loop.scans for loop in loops):
        return _SCANNED_AT_ONCE, 1
    if any(node.type == F32 for loop in loops for node in loop.reductions):
        return (4 if operations <= _LATENCY_BOUND else 2 if operations <= _MODERATE else 1), 1
    return 1, (2 if operations <= _SHORT else 1)


def _levels(live: Sequence[Node]) -> dict[int, int]:
    """The first loop that can have each value."""
    levels: dict[int, int] = {}
    for node in live:
        level = max([levels[argument.number] for argument in node.arguments], default=0)
        levels[node.number] = level + (node.op in ("reduce", "recurrence"))
    return levels


def _fill(loops: Sequence[ElementLoop]) -> None:
    """Find what each loop computes, and what it takes from an earlier one."""
    earlier: dict[int, ElementLoop] = {}
    costs: dict[int, int] = {}
    for loop in loops:
        roots = [node.arguments[0] for node in loop.reductions] + [store.value for store in loop.stores]
        sequences = [a for node in loop.scans for a in node.arguments if a.rank == ROW]
        loop.spills += [node for i, node in enumerate(sequences) if node not in sequences[:i]]
        found: dict[int, Node] = {}
        waiting = [node for node in [*roots, *sequences] if node.rank == ROW]
        while waiting:
            node = waiting.pop()
            if node.number in found:
                continue
            found[node.number] = node
            if node.op == "recurrence":
                loop.reloads.append(node)
                continue
            source = earlier.get(node.number)
            if source is not None and node.type == F32 and _cost(node, costs) >= _DEAR:
                loop.reloads.append(node)
                if node not in source.spills:
                    source.spills.append(node)
                continue
            waiting += [argument for argument in node.arguments if argument.rank == ROW]
        loop.nodes = [found[number] for number in sorted(found)]
        for node in loop.nodes:
            earlier.setdefault(node.number, loop)


def _cost(node: Node, known: dict[int, int]) -> int:
    """Operations below a row, those that are shared counted more than once."""
    if node.number not in known:
        inner = sum([_cost(argument, known) for argument in node.arguments if argument.rank == ROW])
        known[node.number] = min(inner + (node.op not in FREE), 1 << 20)
    return known[node.number]
