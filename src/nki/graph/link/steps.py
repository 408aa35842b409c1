"""What a model does in order, as steps over values in device memory: kernels, copies, loops and choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from nki.core.source import Location
from nki.core.tensor import View, contiguous_strides
from nki.frontend.results import written_inputs
from nki.graph.errors import unsupported
from nki.graph.ir import Function, Group, Op, Value
from nki.graph.kernels import GroupKernel, Kernels
from nki.graph.link.model_parts import origin_of, parts_of
from nki.graph.references import Reference, is_reference, reference_of
from nki.spec.model_kernels import KernelPart
from nki.spec.program import Program


@dataclass(eq=False, slots=True)
class KernelRun:
    """One kernel.

    Attributes:
        programs: one for each core; their arguments are the group's inputs and outputs, or the operands of a
            reference.
        reads, writes: values that it takes and makes.
        kind: of its group.
        reference: the user's kernel, if it is one.
        within: for results that take the memory of an operand, if it is not needed later: (result, operand) positions.
        parts: of the model that it computes.
    """

    programs: tuple[Program, ...]
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    location: Location
    kind: str
    reference: Reference | None = None
    within: tuple[tuple[int, int], ...] = ()
    parts: tuple[KernelPart, ...] = ()


@dataclass(eq=False, slots=True)
class ValueCopy:
    """The bytes of a value into the memory of another one of the same type."""

    source: Value
    target: Value
    location: Location


@dataclass(eq=False, slots=True)
class ModelLoop:
    """``while condition(carried): carried = body(carried)``.

    Attributes:
        initial: values that the carried ones start with.
        carried: results of the loop, which are the memory of what is carried.
        condition: steps that make `test`.
        body: steps that make `following`.
    """

    initial: tuple[Value, ...]
    carried: tuple[Value, ...]
    condition: list[Step]
    test: Value
    body: list[Step]
    following: tuple[Value, ...]
    location: Location


@dataclass(eq=False, slots=True)
class Choice:
    """One of several branches, by the number in `index`; a truth value chooses the first if it is true.

    Attributes:
        branches: for each its steps and what it makes of `results`.
    """

    index: Value
    truth: bool
    branches: tuple[tuple[list[Step], tuple[Value, ...]], ...]
    results: tuple[Value, ...]
    location: Location


Step = KernelRun | ValueCopy | ModelLoop | Choice


@dataclass(slots=True)
class ModelSteps:
    """A model in order.

    Attributes:
        steps: in the order of the model.
        constants: arrays of values that are there from the start.
        same: values that are the same bytes as another one, which is no reshape of a third.
        kernels: those of groups, by key.
        collectives: whether ranks meet in it.
    """

    steps: list[Step] = field(default_factory=list)
    constants: dict[Value, np.ndarray] = field(default_factory=dict)
    same: dict[Value, Value] = field(default_factory=dict)
    kernels: dict[str, GroupKernel] = field(default_factory=dict)
    collectives: bool = False

    def root(self, value: Value) -> Value:
        """The value whose memory a value is."""
        while value in self.same:
            value = self.same[value]
        return value


def steps_of(function: Function, kernels: Kernels) -> ModelSteps:
    """The steps of a function of groups. Raises what emitters and compilation raise, at the model's line."""
    maker = _StepMaker(kernels)
    maker.made.steps = maker.block(function.body)
    return maker.made


class _StepMaker:
    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._within: dict[str, tuple[tuple[int, int], ...]] = {}
        self.made = ModelSteps()

    def block(self, body: Sequence[Op | Group]) -> list[Step]:
        return [step for item in body for step in self._item(item)]

    def _item(self, item: Op | Group) -> Iterator[Step]:
        if isinstance(item, Op):
            yield from self._op(item)
        elif len(item.ops) == 1 and (item.ops[0].name in _WHOLE or is_reference(item.ops[0])):
            yield from self._op(item.ops[0])
        else:
            yield self._kernel(item)

    def _op(self, op: Op) -> Iterator[Step]:
        if op.name == "constant":
            self.made.constants[op.results[0]] = op.attributes["value"]
        elif op.name in ("reshape", "bitcast_convert"):
            self.made.same[op.results[0]] = op.operands[0]
        elif op.name == "optimization_barrier":
            self.made.same.update(zip(op.results, op.operands, strict=True))
        elif op.name == "while":
            yield self._loop(op)
        elif op.name in ("case", "if"):
            yield self._choice(op)
        elif is_reference(op):
            found = reference_of(op)
            self.made.collectives |= any(map(_meets_ranks, found.programs))
            parts = (KernelPart(origin_of(op), 1, 1, 1),)
            within = _in_place(found)
            yield KernelRun(found.programs, op.operands, op.results, op.location, "call", found, within, parts)
        else:
            raise unsupported(op, "it is in no group", "report the model: grouping leaves no such operation behind")

    def _kernel(self, group: Group) -> KernelRun:
        kernel = self._kernels.of(group)
        self.made.kernels.setdefault(kernel.key, kernel)
        self.made.collectives |= group.kind == "collective"
        if kernel.key not in self._within:
            self._within[kernel.key] = self._kernels.may_share(kernel.program, len(group.inputs))
        within = self._within[kernel.key]
        parts, where = parts_of(group, self._kernels.target), group.location
        return KernelRun((kernel.program,), group.inputs, group.outputs, where, group.kind, None, within, parts)

    def _loop(self, op: Op) -> ModelLoop:
        condition, body = op.regions
        for region in (condition, body):
            self.made.same.update(zip(region.arguments, op.results, strict=True))
        return ModelLoop(
            op.operands,
            op.results,
            self.block(condition.ops),
            condition.results[0],
            self.block(body.ops),
            body.results,
            op.location,
        )

    def _choice(self, op: Op) -> Choice:
        branches = tuple((self.block(region.ops), region.results) for region in op.regions)
        return Choice(op.operands[0], op.name == "if", branches, op.results, op.location)


def _meets_ranks(program: Program) -> bool:
    return any("ranks" in issued.instruction.effects(issued.arguments) for issued in program.body.walk())


def _in_place(reference: Reference) -> tuple[tuple[int, int], ...]:
    """Results of a user's kernel that are operands which it writes to."""
    program = reference.programs[0]
    written = written_inputs(reference.programs)
    return tuple(
        (result, operand)
        for result, view in enumerate(program.outputs)
        for operand, buffer in enumerate(program.inputs)
        if view.buffer is buffer and operand in written
    )


_WHOLE = frozenset({"constant", "reshape", "optimization_barrier", "while", "case", "if"})
"""Operations that are no kernels of their own, whatever group they are in."""


def walk(steps: Sequence[Step]) -> Iterator[Step]:
    """All steps, each before those in it."""
    for step in steps:
        yield step
        if isinstance(step, ModelLoop):
            yield from walk(step.condition)
            yield from walk(step.body)
        elif isinstance(step, Choice):
            for inner, _ in step.branches:
                yield from walk(inner)


def is_whole(view: View) -> bool:
    """Whether a view is all of its tensor, in order."""
    return view.nbytes == view.buffer.nbytes and view.strides == contiguous_strides(view.shape)
