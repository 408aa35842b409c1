"""What one instruction costs on a target, remembered for every shape of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

from nki.core.tensor import View
from nki.spec.instruction import Instruction
from nki.spec.program import Issued
from nki.spec.queue import queue_class
from nki.spec.step import Step
from nki.target.model import Target

ENTRIES = 1 << 16
"""Costs that are remembered for one target; then all are forgotten, so that a long-lived process does not grow."""

Key = tuple[Any, ...]


class Duration(NamedTuple):
    """An instruction on an otherwise idle core, as a list scheduler needs it.

    Attributes:
        busy: ns for which the queue can start no other instruction of this kind.
        latency: ns from then until the result is visible; with ``timing.semaphore_ns`` an instruction of another
            queue can start.
    """

    busy: float
    latency: float


def cost_of(issued: Issued, target: Target) -> tuple[Step, ...]:
    """The machine steps of an instruction; one that declares none takes a least interval of its sequencer."""
    return _costs(target).of(issued)


def duration(issued: Issued, target: Target) -> Duration:
    """How long an instruction keeps its queue busy, and when others see its result."""
    return _costs(target).duration(issued)


class Costs:
    """Costs on one target by `signature`."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._steps: dict[Key, tuple[Step, ...]] = {}
        self._durations: dict[Key, Duration] = {}

    def of(self, issued: Issued) -> tuple[Step, ...]:
        """See `cost_of`."""
        key = signature(issued)
        steps = self._steps.get(key)
        if steps is None:
            steps = remember(self._steps, key, steps_of(issued, self.target))
        return steps

    def duration(self, issued: Issued) -> Duration:
        """See `duration`."""
        key = signature(issued)
        found = self._durations.get(key)
        if found is None:
            found = remember(self._durations, key, _duration(self.of(issued), self.target))
        return found


_COSTS: dict[Target, Costs] = {}
"""What is known of each target; its tables are bounded by `remember`, and targets are files."""


def _costs(target: Target) -> Costs:
    found = _COSTS.get(target)
    return _COSTS.setdefault(target, Costs(target)) if found is None else found


def remember(known: dict[Any, Any], key: Any, value: Any) -> Any:
    """Keep a value in a cache of at most `ENTRIES`; returns it."""
    if len(known) >= ENTRIES:
        known.clear()
    known[key] = value
    return value


def steps_of(issued: Issued, target: Target) -> tuple[Step, ...]:
    """The steps from the declaration, evaluated anew."""
    cost = issued.instruction.steps
    steps = () if cost is None else cost.formula(issued.arguments, target, issued.engine)
    return steps or (_sequenced(issued, target),)


def _sequenced(issued: Issued, target: Target) -> Step:
    """An instruction that occupies no unit still passes through a sequencer, Sync's if its engine has none."""
    unit = queue_class(issued)
    unit = "sync" if unit == "dma" else unit
    return Step("Sequencer", unit, target.issue.min_ii_cycles / target.engines[unit].ghz)


def alone(steps: tuple[Step, ...]) -> float:
    """ns from the start on an idle core until the result is visible.

    A step follows the one before at once on the same unit, else when the result of that one is visible.
    """
    total, before = 0.0, steps[0]
    for step in steps:
        total += step.ns if step.unit == before.unit else before.latency + step.ns
        before = step
    return total + before.latency


def _duration(steps: tuple[Step, ...], target: Target) -> Duration:
    """Weights load behind the multiplication before, and a trigger runs before its queue's turn: the longest counts."""
    total, last = alone(steps), steps[-1].unit
    if last == "dma":  # what a DMA's completion takes is measured up to the start of the instruction that waits
        return Duration(steps[-1].ns, max(0.0, total - steps[-1].ns - target.timing["semaphore_ns"]))
    by_unit: dict[str, float] = {}
    for step in steps:
        by_unit[step.unit] = by_unit.get(step.unit, 0.0) + step.ns
    busy = max(by_unit.values())
    return Duration(busy, total - busy)


# --- signatures


class _Parts(NamedTuple):
    """Positions of the arguments of an instruction that its cost may depend on.

    Attributes:
        tensors: those that can be views or lists of views.
        values: gets the plain values, all at once.
        sequences: constants that may be lists.
        members, operators: enumerations and operators, which count by name because their hashes are slow.
    """

    tensors: tuple[int, ...]
    values: Callable[[Any], Any]
    sequences: tuple[int, ...]
    members: tuple[int, ...]
    operators: tuple[int, ...]


def signature(issued: Issued) -> Key:
    """What the cost of an instruction depends on: its engine, and of its arguments all but addresses and numbers.

    Of a view: dtype, shape, strides, memory and the kind of its dynamic index.
    """
    instruction, arguments, _, engine = issued
    parts = _PARTS.get(instruction)
    if parts is None:
        parts = _PARTS[instruction] = _parts(instruction)
    tensors, values, sequences, members, operators = parts
    key: list[Any] = [instruction, engine._value_, values(arguments)]
    for position in tensors:
        value = arguments[position]
        if type(value) is View:
            buffer, dtype, shape, strides, _, dynamic = value
            key += (dtype, shape, strides, buffer.region._value_, dynamic is None or type(dynamic))
        else:
            key.append(_views(value))
    for position in sequences:
        key.append(_frozen(arguments[position]))
    for position in members:
        value = arguments[position]
        key.append(None if value is None else value._name_)  # the property `name` takes twice as long
    for position in operators:
        value = arguments[position]
        key.append(None if value is None else value.name)
    return tuple(key)


_PARTS: dict[Instruction[Any], _Parts] = {}
"""Which arguments a cost may depend on, by declaration: as many as there are instructions."""

_TENSORS = frozenset({"tensor", "tensor_or_number", "column", "tensors", "channels", "register", "register_or_int"})
_SEQUENCES = frozenset({"ints", "pattern", "ranks", "rank_pairs"})


def _parts(instruction: Instruction[Any]) -> _Parts:
    # the engine that runs it stands in `Issued`; the argument only asks for one
    kinds = [(at, operand.kind) for at, (name, operand) in enumerate(instruction.operands.items()) if name != "engine"]
    values = [at for at, kind in kinds if kind in ("flag", "int")]
    return _Parts(
        tuple(at for at, kind in kinds if kind in _TENSORS),
        itemgetter(*values) if values else _nothing,
        tuple(at for at, kind in kinds if kind in _SEQUENCES),
        tuple(at for at, kind in kinds if kind == "enum"),
        tuple(at for at, kind in kinds if kind == "operator"),
    )


def _nothing(arguments: Any) -> None:
    return None


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list | tuple) else value


def _views(value: Any) -> Any:
    """What counts of an argument in the place of a tensor: of numbers and registers only that they are none."""
    if type(value) is View:
        return value.dtype, value.shape, value.strides, value.buffer.region._value_, type(value.dynamic)
    return tuple(_views(item) for item in value) if isinstance(value, tuple) else type(value)
