"""An instruction as the timeline sees it: units and times, ports, activation table, what it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki.core.register import VirtualRegister
from nki.core.tensor import MemoryRegion, View
from nki.spec.cost import activation_table
from nki.spec.program import Issued
from nki.spec.queue import by_dma
from nki.spec.step import Step
from nki.target.model import Target
from nki.timing.cost import Key, alone, remember, signature, steps_of
from nki.timing.hardware import DMA, GPSIMD, LOAD, PSUM_PORT, SBUF_PORT, SCALAR, UNIT, VECTOR, Hardware

ENGINE, MATMUL, TRANSFER = range(3)
"""Kinds of recipes: steps of one engine after another; weights and a multiplication; a trigger and a transfer."""

Touch = tuple[Any, ...]
"""Something that is read or written: a `View`, or ``(register,)``."""


class Recipe:
    """What all instructions with the same `signature` have in common.

    Attributes:
        kind: one of the kinds above.
        chain: ``(unit, ns, latency)`` of the steps; without that of the transfer.
        unit, ns, latency: the same of the last step.
        demand: part of the aggregate DMA rate that the transfer uses.
        skew: ns that a transfer does not take right after another one of its queue; negative if it takes longer then,
            because the engines of that one still write its signal.
        work: least ns for which all DMA engines work for a transfer.
        nbytes: payload of transfers.
        alone: ns on an idle core until the result is visible.
        signal: ns from then until an instruction of another queue can start.
        chained: ns from the end until an instruction of the same queue can read the result; 0 if it cannot have to.
        table: activation table that it needs, or None.
        ports: that it occupies while it runs.
        banked: whether it also occupies the PSUM banks that it touches.
        needs: positions of the arguments that it reads; of a transfer also of those that it writes, because transfers
            overtake each other.
        writes: positions of the arguments that it writes; `touches` are both.
        dynamic: whether an address is read from a register or a tensor.
        plain: whether all these arguments are views at fixed addresses.
        meets, joins: whether it meets the other core, and whether other ranks.
        busy: ns for each unit but that of DMA, without what the circumstances add.
    """

    __slots__ = (
        "alone",
        "banked",
        "busy",
        "chain",
        "chained",
        "demand",
        "dynamic",
        "joins",
        "kind",
        "latency",
        "meets",
        "nbytes",
        "needs",
        "ns",
        "plain",
        "ports",
        "signal",
        "skew",
        "table",
        "touches",
        "unit",
        "work",
        "writes",
    )

    def __init__(self, issued: Issued, target: Target, hardware: Hardware) -> None:
        steps = steps_of(issued, target)
        last = steps[-1]
        chain = tuple((UNIT[step.unit], step.ns, step.latency) for step in steps)
        self.unit, self.ns, self.latency = chain[-1]
        self.kind = _kind(chain)
        self.chain = chain[:-1] if self.kind == TRANSFER else chain
        if self.kind == ENGINE and len({unit for unit, _, _ in chain}) == 1:
            self.ns = sum(ns for _, ns, _ in chain)
            self.chain = ((self.unit, self.ns, self.latency),)
        self.demand = _demand(last, hardware) if self.kind == TRANSFER else 0.0
        self.skew = last.skew
        self.work = min(self.ns * self.demand, self.ns - self.skew)
        self.nbytes = sum(step.nbytes for step in steps)
        self.alone = alone(steps)
        self.signal = 0.0 if self.kind == TRANSFER else hardware.semaphore
        self.chained = 0.0 if self.kind == MATMUL else self.latency + hardware.chained[self.unit]
        self.busy = tuple((unit, ns) for unit, ns, _ in self.chain)
        self.table = activation_table(issued.arguments, target) if self.unit == SCALAR else None
        self.ports, self.banked = _ports(issued, self.unit, hardware)
        reads, self.writes = _touching(issued)
        self.needs = reads + self.writes if self.kind == TRANSFER else reads
        self.touches = reads + self.writes
        self.dynamic = any(view.dynamic is not None for _, view in issued.views())
        values = [issued.arguments[position] for position in self.touches]
        self.plain = not self.dynamic and all(type(value) is View for value in values)
        effects = issued.instruction.effects(issued.arguments)
        self.meets, self.joins = "rendezvous" in effects, "ranks" in effects


class Recipes:
    """Recipes on one target, by signature.

    An instruction that comes again is known by its identity: one object serves all orders of a program that are timed.
    """

    def __init__(self, target: Target, hardware: Hardware) -> None:
        self.hardware = hardware
        self._target = target
        self._known: dict[Key, Recipe] = {}
        self._seen: dict[int, tuple[Issued, Recipe]] = {}

    def of(self, issued: Issued) -> Recipe:
        """The recipe of an instruction."""
        seen = self._seen.get(id(issued))
        if seen is not None:
            return seen[1]
        key = signature(issued)
        found = self._known.get(key)
        if found is None:
            found = remember(self._known, key, Recipe(issued, self._target, self.hardware))
        remember(self._seen, id(issued), (issued, found))
        return found


def _kind(chain: Sequence[tuple[int, float, float]]) -> int:
    units = [unit for unit, _, _ in chain]
    if DMA in units:
        assert units.index(DMA) == len(units) - 1, "a transfer is the last step of its instruction"
        return TRANSFER
    if LOAD in units:
        assert len(units) == 2, "weights are loaded for one multiplication"
        return MATMUL
    return ENGINE


def _demand(step: Step, hardware: Hardware) -> float:
    return min(1.0, step.working(hardware.aggregate) / step.ns) if step.ns > 0.0 else 0.0


def _ports(issued: Issued, unit: int, hardware: Hardware) -> tuple[tuple[int, ...], bool]:
    """Shared ports of an instruction, and whether its PSUM banks count."""
    if by_dma(issued):
        return (), False
    regions = {view.buffer.region for _, view in issued.views()}
    ports = []
    if hardware.sbuf_shared and unit in (VECTOR, GPSIMD) and MemoryRegion.sbuf in regions:
        ports.append(SBUF_PORT)
    psum = unit in (VECTOR, SCALAR) and MemoryRegion.psum in regions
    if psum and hardware.psum_shared:
        ports.append(PSUM_PORT)
    return tuple(ports), psum and not hardware.psum_shared


def _touching(issued: Issued) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions of the arguments that are read and written: views, lists of views, and registers."""
    reads, writes = [], []
    for position, (operand, value) in enumerate(
        zip(issued.instruction.operands.values(), issued.arguments, strict=True)
    ):
        if type(value) is View or isinstance(value, tuple | VirtualRegister):
            if operand.reads:
                reads.append(position)
            if operand.writes:
                writes.append(position)
    return tuple(reads), tuple(writes)


def touched(arguments: Any, positions: tuple[int, ...]) -> list[Touch]:
    """The views and registers among some arguments."""
    found: list[Touch] = []
    for position in positions:
        value = arguments[position]
        if type(value) is View:
            found.append(value)
        else:
            _add(found, value)
    return found


def indices(arguments: Any, positions: tuple[int, ...]) -> list[Touch]:
    """What the dynamic addresses of views are read from."""
    found: list[Touch] = []
    for view in touched(arguments, positions):
        if type(view) is View and view.dynamic is not None:
            _add(found, view.dynamic.indices)
    return found


def _add(found: list[Touch], value: Any) -> None:
    if type(value) is View:
        found.append(value)
    elif isinstance(value, VirtualRegister):
        found.append((value,))
    elif type(value) is tuple:
        for item in value:
            _add(found, item)
