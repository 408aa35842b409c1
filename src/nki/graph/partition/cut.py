"""The halves of a model's kernels, and what results may still take the memory of an operand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nki.core.tensor import Buffer
from nki.frontend.results import written_inputs
from nki.graph.link.steps import KernelRun, Step, is_whole
from nki.graph.partition.device_bytes import marks
from nki.graph.partition.halves import Divisible, halves, meet
from nki.target.model import Target
from nki.timing.timeline import timeline

_ONE = "the model is compiled for one core"


def cut_kernels(steps: Iterable[Step], target: Target) -> dict[int, Divisible]:
    """The halves of kernels on one core, by the identity of their programs.

    Results no longer take the memory of an operand (`KernelRun.within`) where one half would overwrite what the other
    reads.
    """
    found: dict[int, Divisible] = {}
    for run in steps:
        if isinstance(run, KernelRun) and len(run.programs) == 1:
            program = run.programs[0]
            if id(program) not in found:
                found[id(program)] = _cut(run, target)
            run.within = _apart(run, found[id(program)], target)
    return found


def _cut(run: KernelRun, target: Target) -> Divisible:
    program = run.programs[0]
    if run.reference is not None and (written_inputs(run.programs) or not all(map(is_whole, program.outputs))):
        return Divisible(timeline(program, target).makespan, why="its results are parts of tensors, or operands")
    return halves(program, results_of(run), target)


def _apart(run: KernelRun, cuts: Divisible, target: Target) -> tuple[tuple[int, int], ...]:
    """Results that take the memory of an operand: those whose bytes no other half reads of the operand."""
    within = run.within
    for cut in cuts.cuts if within else ():
        one, two = (marks(program, run.programs[0].inputs, target) for program in cut.programs)
        tensors = [buffer.id for buffer in run.programs[0].inputs]
        # Memory is planned before it is known which cut is taken, if any: a result stays there only if all cuts allow
        # it.
        within = tuple(
            (result, operand)
            for result, operand in within
            if not meet(one[tensors[len(run.reads) + result]][1], two[tensors[operand]][0])
            and not meet(two[tensors[len(run.reads) + result]][1], one[tensors[operand]][0])
        )
    return within


def whole_kernels(steps: Iterable[Step]) -> dict[int, Divisible]:
    """All kernels as they are, for a model of which only the user's own kernels run on two cores."""
    runs = [step for step in steps if isinstance(step, KernelRun) and len(step.programs) == 1]
    return {id(run.programs[0]): Divisible(0.0, why=_ONE) for run in runs}


def results_of(run: KernelRun) -> Sequence[Buffer]:
    """The tensors of a kernel's program that it makes."""
    program = run.programs[0]
    return program.inputs[len(run.reads) :] if run.reference is None else [view.buffer for view in program.outputs]


def stays(run: KernelRun) -> bool:
    """Whether a kernel of the user leaves its results where they are to be: each is a tensor that it writes."""
    program, written = run.programs[0], written_inputs(run.programs)
    given = {buffer.id for number, buffer in enumerate(program.inputs) if number not in written}
    made = [view.buffer.id for view in program.outputs]
    return len(set(made)) == len(made) and not given & set(made) and all(map(is_whole, program.outputs))
