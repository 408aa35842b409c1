"""The ways in which two cores can run a step, and which bytes of device memory each core uses then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nki.graph.ir import Value
from nki.graph.link.bind import reads, writes
from nki.graph.link.plan import MemoryPlan
from nki.graph.link.steps import KernelRun, ModelSteps, Step
from nki.graph.partition.cut import stays
from nki.graph.partition.device_bytes import Marks, marks
from nki.graph.partition.halves import Divisible, meet
from nki.spec.program import Program
from nki.target.model import Target

Touched = Mapping[int, Sequence[tuple[Marks | None, Marks | None]]]
"""The bytes that a core reads and writes in a step, by the number of the slot."""


class Way(NamedTuple):
    """One way to run a step.

    Attributes:
        programs: of both cores; None for a core that does nothing, and where the step is no kernel or has programs for
            both cores itself.
        ns: that both cores take.
        touched: by both cores.
        meets: whether the cores meet before it in any case.
        leaves: whether what is touched counts after it as well; else the cores have met at its end.
    """

    programs: tuple[Program | None, Program | None]
    ns: tuple[float, float]
    touched: tuple[Touched, Touched]
    meets: bool = False
    leaves: bool = True


class Ways:
    """The ways of all steps of a model that is compiled for two cores.

    Args:
        cuts: of kernels, by the identity of their programs.
    """

    def __init__(self, steps: ModelSteps, plan: MemoryPlan, cuts: Mapping[int, Divisible], target: Target) -> None:
        self._steps, self._plan, self._cuts, self._target = steps, plan, cuts, target
        self._written = {plan.of[value] for step in steps.steps for value in writes(step, steps)}
        self._marks: dict[int, dict[int, tuple[Marks | None, Marks | None]]] = {}

    def of(self, step: Step) -> list[Way]:
        """The first core first; kernels whose times are not known have no other way."""
        if not isinstance(step, KernelRun):
            return [Way((None, None), (0.0, 0.0), (self._whole(step), {}))]
        if len(step.programs) > 1:  # the first core makes copies before it, and takes results apart after it
            return [Way((None, None), (0.0, 0.0), (self._whole(step), {}), leaves=not stays(step))]
        program, found = step.programs[0], self._cuts[id(step.programs[0])]
        touched = self._of(step, program)
        ways = [Way((program, None), (found.ns, 0.0), (touched, {}))]
        if step.reference is None and found.ns and not found.state:
            ways.append(Way((None, program), (0.0, found.ns), ({}, touched)))
        for cut in found.cuts:
            one, two = cut.programs
            ways.append(Way(cut.programs, cut.ns, (self._of(step, one), self._of(step, two))))
        return ways

    def loaded(self, value: Value, *, by: int) -> Way:
        """The loading of a value that decides what is done next, by one core or by both."""
        slot = self._slot(value)
        touched = {slot: [(Marks.whole(self._plan.slots[slot].nbytes), None)]} if slot in self._written else {}
        return Way((None, None), (0.0, 0.0), (touched, touched if by > 1 else {}))

    def _whole(self, step: Step) -> Touched:
        """What a step touches that only the first core runs, whatever parts of tensors it uses."""
        found: dict[int, list[tuple[Marks | None, Marks | None]]] = {}
        for values, is_write in ((reads(step, self._steps), False), (writes(step, self._steps), True)):
            for value in values:
                slot = self._plan.of[value]
                if slot in self._written:
                    everything = Marks.whole(self._plan.slots[slot].nbytes)
                    found.setdefault(slot, []).append((None, everything) if is_write else (everything, None))
        return found

    def _of(self, run: KernelRun, program: Program) -> Touched:
        """What a kernel's program touches."""
        tensors = [*program.inputs, *([view.buffer for view in program.outputs] if run.reference is not None else ())]
        slots = [self._slot(value) for value in (*run.reads, *run.writes)]
        pairs = [(slot, buffer) for slot, buffer in zip(slots, tensors, strict=True) if slot in self._written]
        known = self._marks.setdefault(id(program), {})
        missing = [buffer for _, buffer in pairs if buffer.id not in known]
        if missing:
            known.update(marks(program, missing, self._target))
        found: dict[int, list[tuple[Marks | None, Marks | None]]] = {}
        for slot, buffer in pairs:
            found.setdefault(slot, []).append(known[buffer.id])
        return found

    def _slot(self, value: Value) -> int:
        return self._plan.of[self._steps.root(value)]


def collide(one: Way, other: Way) -> bool:
    """Whether one core does one thing, and the other core the other, that has to come before or after it."""
    return _cross(one.touched[0], other.touched[1]) or _cross(one.touched[1], other.touched[0])


def _cross(one: Touched, other: Touched) -> bool:
    """Whether one writes a byte that the other one reads or writes."""
    for slot in one.keys() & other.keys():
        for read, written in one[slot]:
            for other_read, other_written in other[slot]:
                if meet(written, other_written) or meet(written, other_read) or meet(read, other_written):
                    return True
    return False
