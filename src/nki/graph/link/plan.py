"""Device memory of a model: which values share it, by when each is needed for the last time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from nki.core.dtypes import DType, uint8
from nki.graph.ir import Function, TensorType, Value
from nki.graph.kernels import tensor_of
from nki.graph.link.bind import reads, writes
from nki.graph.link.steps import Choice, KernelRun, ModelLoop, ModelSteps, Step

_UNIT = 64
"""Bytes that a slot is a multiple of, so that any element type fits."""


@dataclass(slots=True)
class BufferSlot:
    """Device memory that values have one after another.

    Attributes:
        kind: "argument", "constant", "output" or "temporary".
        shape, dtype: of what it holds; if a temporary, of its first value, or bytes if others need more.
        values: how many values have it.
    """

    name: str
    kind: str
    nbytes: int
    shape: tuple[int, ...]
    dtype: DType
    values: int = 1


@dataclass(slots=True)
class MemoryPlan:
    """Where every value is.

    Attributes:
        slots: the memory.
        of: the number of the slot of each value that has memory of its own.
        arguments, constants, outputs: numbers of their slots, in order.
        bytes_without: of temporaries if each had memory of its own.
    """

    slots: list[BufferSlot] = field(default_factory=list)
    of: dict[Value, int] = field(default_factory=dict)
    arguments: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    bytes_without: int = 0

    def nbytes(self, kind: str) -> int:
        """Bytes of the slots of a kind."""
        return sum(slot.nbytes for slot in self.slots if slot.kind == kind)


def plan(
    function: Function,
    steps: ModelSteps,
    outputs: Sequence[Value],
    names: Sequence[str],
    donated: Mapping[int, int] | None = None,
) -> MemoryPlan:
    """Give every value a slot.

    Args:
        steps: with their copies (`bind`).
        outputs: the values that hold the results.
        names: of the arguments.
        donated: for results that may take the memory of an argument, result and argument by position.
    """
    found = MemoryPlan()
    planner = _MemoryPlanner(found, steps)
    found.arguments = tuple(
        planner.fixed(value, "argument", name) for value, name in zip(function.arguments, names, strict=True)
    )
    found.constants = tuple(planner.fixed(value, "constant", f"constant{n}") for n, value in enumerate(steps.constants))
    gifts = {outputs[result]: function.arguments[argument] for result, argument in (donated or {}).items()}
    planner.outputs = {value: gifts.get(value) for value in outputs}
    planner.given = set(gifts.values())
    planner.block(steps.steps, planner.given)
    found.outputs = tuple(found.of[value] for value in outputs)
    return found


class _MemoryPlanner:
    """Gives out slots in the order of the steps.

    Attributes:
        outputs: the values that hold results, each with the argument whose memory it may take.
        given: arguments whose memory a result may take.
    """

    def __init__(self, found: MemoryPlan, steps: ModelSteps) -> None:
        self._plan = found
        self._steps = steps
        self._free: list[int] = []
        self.outputs: dict[Value, Value | None] = {}
        self.given: set[Value] = set()

    def fixed(self, value: Value, kind: str, name: str) -> int:
        """A slot of its own."""
        shape, dtype = tensor_of(value.type)
        self._plan.slots.append(BufferSlot(name, kind, _bytes(value.type), shape, dtype))
        self._plan.of[value] = len(self._plan.slots) - 1
        return self._plan.of[value]

    def block(self, block: Sequence[Step], given: Iterable[Value] = ()) -> None:
        """Slots for what a block makes; those that are no longer needed are free for what comes later.

        Args:
            given: arguments whose memory is the block's after their last use.
        """
        steps = self._steps
        touched = [dict.fromkeys((*reads(step, steps), *writes(step, steps))) for step in block]
        last = {value: position for position, values in enumerate(touched) for value in values}
        # Only the block that makes a value gives its memory back: the next trip of a loop may need what comes from
        # outside.
        own: set[Value] = set(given)
        for position, step in enumerate(block):
            if isinstance(step, KernelRun):
                self._within(step, last, position, own)
            # Large ones first: otherwise a small one may take the only slot that is long enough for them.
            for value in sorted(self._made(step), key=lambda value: -_bytes(value.type)):
                if value not in self._plan.of:
                    self._new(value)
                    own.add(value)
            self._inner(step)
            for value in touched[position]:
                if value in own and last[value] == position and value not in self.outputs:
                    self._give(self._plan.of[value])

    def _made(self, step: Step) -> list[Value]:
        if isinstance(step, Choice):
            return [self._steps.root(value) for value in step.results]
        return [] if isinstance(step, ModelLoop) else writes(step, self._steps)

    def _inner(self, step: Step) -> None:
        if isinstance(step, ModelLoop):
            self.block([*step.body, *step.condition])
        elif isinstance(step, Choice):
            for branch, _ in step.branches:
                self.block(branch)

    def _within(self, run: KernelRun, last: Mapping[Value, int], position: int, own: set[Value]) -> None:
        """Results that take the memory of an operand that is not needed later; each operand's goes to one result."""
        taken = set()
        # First what the caller wants in that memory.
        for result, operand in sorted(
            run.within, key=lambda pair: self._steps.root(run.writes[pair[0]]) not in self.outputs
        ):
            new, old = self._steps.root(run.writes[result]), self._steps.root(run.reads[operand])
            once = sum(self._steps.root(value) is old for value in run.reads) == 1
            if not once or last[old] != position or new in self._plan.of or not self._may_take(new, old, own):
                continue
            self._plan.of[new] = self._plan.of[old]
            self._plan.slots[self._plan.of[old]].values += 1
            self._plan.bytes_without += _bytes(new.type)
            own.discard(old)
            taken.add(new)
        own |= taken

    def _may_take(self, new: Value, old: Value, own: set[Value]) -> bool:
        if old not in own or old in self.outputs:
            return False
        slot = self._plan.of[old]
        if self._plan.slots[slot].kind == "argument":
            gifts = [value for value in self.given if self._plan.of[value] == slot]
            return new not in self.outputs or self.outputs[new] in gifts
        return new not in self.outputs

    def _new(self, value: Value) -> None:
        if value in self.outputs:
            self.fixed(value, "output", value.name or "result")
            return
        size = _bytes(value.type)
        self._plan.bytes_without += size
        number = self._fitting(size)
        if number is None:
            shape, dtype = tensor_of(value.type)
            self._plan.slots.append(BufferSlot(f"slot{len(self._plan.slots)}", "temporary", size, shape, dtype))
            number = len(self._plan.slots) - 1
        else:
            self._free.remove(number)
            slot = self._plan.slots[number]
            slot.values += 1
            slot.nbytes = max(slot.nbytes, size)
            shape, dtype = tensor_of(value.type)
            held = prod(slot.shape) * slot.dtype.itemsize
            if prod(shape) * dtype.itemsize > held or held % dtype.itemsize:
                slot.shape, slot.dtype = (slot.nbytes,), uint8  # long enough, and whole elements of any type
        self._plan.of[value] = number

    def _fitting(self, size: int) -> int | None:
        """The smallest free slot that is large enough, else the largest one, which grows; the oldest of equal ones."""
        slots = self._plan.slots
        large = [number for number in self._free if slots[number].nbytes >= size]
        if large:
            return min(large, key=lambda number: slots[number].nbytes)
        return max(self._free, key=lambda number: slots[number].nbytes, default=None)

    def _give(self, number: int) -> None:
        if self._plan.slots[number].kind == "temporary":
            self._free.append(number)


def _bytes(kind: TensorType) -> int:
    shape, dtype = tensor_of(kind)
    return -(-prod(shape) * dtype.itemsize // _UNIT) * _UNIT
