"""The rule of the advice on results that were there already: the same instruction on data that has not changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import prod
from typing import Any

from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer, View
from nki.profiling.advice.ranking import COMPUTE, Advice, Evidence, busy, counted, duration, percent, where
from nki.profiling.facts.change import Change, unused
from nki.spec.operator import Operator
from nki.spec.program import Issued


class _Values:
    """Numbers what tensors hold: equal numbers for what equal instructions made of equal numbers."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._known: dict[Any, int] = {}
        self._meetings = 0

    def made(self, issued: Issued) -> int | None:
        """The number of the result; None if nothing tells whether another run gives the same."""
        operands, views = issued.instruction.operands, list(issued.views())
        effects = issued.instruction.effects(issued.arguments)
        if "rendezvous" in effects:  # the other core may have written device memory
            self._meetings += 1
        certain = not effects and all(view.dynamic is None for _, view in views)
        certain = certain and not any(isinstance(value, VirtualRegister) for value in issued.arguments)
        key = [
            self._frozen(value, operand.reads)
            for operand, value in zip(operands.values(), issued.arguments, strict=True)
        ]
        number = self._number((issued.instruction.name, issued.engine.name, *key) if certain else object())
        for name, view in views:
            if operands[name].writes:
                whole = view.dynamic is None and prod(view.shape) * view.dtype.itemsize == view.buffer.nbytes
                before = -1 if whole else self._held.get(view.buffer.id, -1)
                self._held[view.buffer.id] = self._number((before, name, number, _place(view)))
        return number if certain else None

    def _frozen(self, value: Any, reads: bool) -> Any:
        if type(value) is View:
            return (self._of(value.buffer), *_place(value)) if reads else (str(value.dtype), value.shape)
        if isinstance(value, Operator):
            return value.name
        return tuple(self._frozen(item, reads) for item in value) if isinstance(value, tuple) else value

    def _of(self, buffer: Buffer) -> Any:
        if buffer.region.is_hbm:
            return buffer.id, self._meetings, self._held.get(buffer.id)
        return self._held.get(buffer.id)

    def _number(self, key: Any) -> int:
        return self._known.setdefault(key, len(self._known))


def _place(view: View) -> tuple[Any, ...]:
    return str(view.dtype), view.shape, view.strides, view.offset


def repeated_results(evidence: Evidence) -> Advice | None:
    """An engine computes again what it has computed before; only of programs without device loops.

    A tensor that is written again, as a sum that is cleared first, could not be shared and does not count.
    """
    core = evidence.core
    if core.line.loops:
        return None
    values, seen = _Values(), dict[int, int]()
    writers = Counter(view.buffer.id for issued in core.items for view in _results(issued))
    again: dict[str, dict[int, float]] = defaultdict(dict)
    gone: dict[int, int] = {}
    for position, issued in enumerate(core.items):
        number = values.made(issued)
        if number is None:
            continue
        kept = all(writers[view.buffer.id] == 1 for view in _results(issued))
        if number in seen and kept and core.ran[position] and core.unit(position) in COMPUTE:
            again[core.unit(position)][position] = evidence.ns(position)
            gone[position] = seen[number]
        seen.setdefault(number, position)
    if not again:
        return None
    unit = max(again, key=lambda name: sum(again[name].values()))
    costs = again[unit]
    total = sum(costs.values())
    return Advice(
        "repeated-results",
        unit,
        f"{busy(evidence, unit)}; in {counted(len(costs), 'instruction')} it computes again what an earlier one "
        f"computed from the same data: {duration(total)}, {percent(total, evidence.busy(unit))} of its work"
        f"{where(evidence, costs)}",
        "compute it once, before the loop, and keep the tile",
        evidence.gain(Change(gone=unused(core, gone))),
        costs,
    )


def _results(issued: Issued) -> list[View]:
    return [view for name, view in issued.views() if issued.instruction.operands[name].writes]
