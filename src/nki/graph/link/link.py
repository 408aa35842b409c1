"""One program for each core, from the programs of a model's kernels, one after another and synchronised anew.

Kernels keep the order of each queue; their tensors on chip keep their distances, those of the user's kernels their
places. Device tensors become the slots of the plan, everything else is made anew for each call. Waits are found over
whole segments from dependences on bytes, so that the engines of the next kernel start as soon as their own operands
are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nki.core.dtypes import int32, uint8
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN, Location
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.frontend.results import written_inputs
from nki.graph.errors import GraphError
from nki.graph.ir import TensorType, Value
from nki.graph.kernels import Kernels, tensor_of
from nki.graph.link import glue
from nki.graph.link.calls import Bindings, Call, Linker
from nki.graph.link.collisions import refuse_collisions
from nki.graph.link.model_parts import parts_at
from nki.graph.link.plan import MemoryPlan
from nki.graph.link.room import Shift
from nki.graph.link.shares import CORES, StepShare, blocks
from nki.graph.link.steps import Choice, KernelRun, ModelLoop, ModelSteps, Step, ValueCopy, is_whole, walk
from nki.passes.analysis.liveness import register_places
from nki.passes.check_races import refuse_races
from nki.passes.scheduling.resynchronize import relink
from nki.spec.model_kernels import CoreKernels, KernelCall, KernelPart
from nki.spec.program import Block, Issued, Program, WhileLoop
from nki.target.model import Target


@dataclass(frozen=True, slots=True)
class Linked:
    """A model as a program.

    Attributes:
        programs: one for each core; inputs are the arguments and the constants, outputs the results.
        copies: kernels among them that copy from device memory to device memory.
        waits: that queues need.
        meetings: of the cores.
        kernels: of each core, in order.
        launched: where the user's kernels on two cores are called.
    """

    programs: tuple[Program, ...]
    copies: int
    waits: int
    kernels: tuple[CoreKernels, ...]
    meetings: int = 0
    launched: tuple[Location, ...] = ()


def link(
    name: str,
    steps: ModelSteps,
    plan: MemoryPlan,
    kernels: Kernels,
    target: Target,
    shares: Sequence[StepShare] | None = None,
) -> Linked:
    """Put the kernels of a model together. What is to run is proved to be right by `refuse_faults`.

    Args:
        shares: for a model on two cores, what each core does of the steps, in order. Both meet before and after a
            kernel of the user on two cores. None for one core.

    Raises:
        GraphError: "graph.reference" for a kernel of the user that does not fit its call.
    """
    cores = 1 if shares is None else CORES
    linkers = [Linker(name, steps, plan, kernels, target, core, cores) for core in range(cores)]
    programs = tuple(_linked(linker, steps.steps, shares, target) for linker in linkers)
    launched = (step.location for step in walk(steps.steps) if isinstance(step, KernelRun) and len(step.programs) > 1)
    waits = sum(_waits(program.body) for program in programs)
    called = tuple(tuple(linker.called) for linker in linkers)
    return Linked(programs, linkers[0].copies, waits, called, linkers[0].meetings, tuple(launched))


def refuse_faults(linked: Linked, target: Target) -> None:
    """Prove that queues and cores wait for each other wherever they must.

    This takes longer than linking, and programs that are only timed do not need it.

    Raises:
        ExecutionError: see `refuse_races` and `refuse_collisions`; that would be a fault of this package.
    """
    refuse_races(linked.programs, target)
    if len(linked.programs) > 1:
        refuse_collisions(linked.programs, linked.launched, target)


def _linked(linker: Linker, steps: Sequence[Step], shares: Sequence[StepShare] | None, target: Target) -> Program:
    block = _Builder(linker)
    if shares is None:
        block.steps(steps)
    else:
        block.shared(steps, shares)
    own = [slot for slot, kind in zip(linker.slots, linker.plan.slots, strict=True) if kind.kind in _OWN]
    block.block.buffers[:0] = [*linker.constants.values(), *own, *([linker.both] if linker.meetings else ())]
    return relink(replace(linker.program, body=block.block), target)


_OWN = ("temporary", "output")


def _waits(block: Block) -> int:
    """How often queues wait in a block and in the loops in it."""
    own = sum(len(sync.waits) for sync in block.sync or () if sync is not None)
    return own + sum(_waits(item.body) for item in block.items if not isinstance(item, Issued))


class _Builder:
    """Fills one block of the linked program, and the loops in it."""

    def __init__(self, linker: Linker) -> None:
        self._linker = linker
        self.block = Block([], [], [])

    def steps(self, steps: Sequence[Step]) -> None:
        """What steps do, one after another, on one core."""
        for step in steps:
            match step:
                case KernelRun() if step.reference is not None:
                    self._reference(step)
                case KernelRun():
                    self._run(step, step.programs[0])
                case ValueCopy():
                    self._copy(self._at(step.source), self._at(step.target), step.source.type, step.location)
                case ModelLoop():
                    self._loop(step)
                case Choice():
                    self._choice(step)

    def shared(self, steps: Sequence[Step], shares: Sequence[StepShare]) -> None:
        """This core's share of steps, and the meetings."""
        core = self._linker.core
        for step, share in zip(steps, shares, strict=True):
            if share.meets:
                self._meet(step.location)
            mine = share.programs[core]
            if isinstance(step, KernelRun) and mine is not None and step.reference is None:
                self._run(step, mine)
            elif isinstance(step, KernelRun) and (mine is not None or len(step.programs) > 1):
                self._reference(step, mine)
            elif isinstance(step, ModelLoop | Choice) and share.inner is not None:
                self._loop(step, share) if isinstance(step, ModelLoop) else self._choice(step, share)
            elif share.programs == (None, None) and core == 0:
                self.steps([step])

    def _inner(self, steps: Sequence[Step], share: StepShare | None, number: int) -> None:
        """The steps in a step, by number; None if one core runs it alone."""
        if share is None or share.inner is None:
            self.steps(steps)
        else:
            self.shared(steps, share.inner[number])

    def _meet(self, where: Location) -> None:
        self._linker.meetings += 1
        self._call(self._linker.meeting(), (self._linker.both,), Location(where.frames), fixed=True)

    def _at(self, value: Value) -> Buffer:
        return self._linker.buffer(value)

    def _run(self, run: KernelRun, program: Program) -> None:
        arguments = [self._at(value) for value in (*run.reads, *run.writes)]
        self._call(program, arguments, run.location, parts=run.parts)

    def _copy(self, source: Buffer, target: Buffer, kind: TensorType, where: Location) -> None:
        if 0 in kind.shape:
            return  # no byte to copy
        self._linker.copies += 1
        self._call(self._linker.small("copy", glue.copy, (kind, kind)), [source, target], where)

    def _reference(self, run: KernelRun, half: Program | None = None) -> None:
        """The user's kernel; what it writes in place is a copy of the operand unless the plan gave it the memory.

        Args:
            half: of a kernel on one core, all of whose results are tensors of their own.
        """
        program, several = check_reference(run, self._linker.core), len(run.programs) > 1
        program = program if half is None else half
        first = self._linker.core == 0
        written = written_inputs(run.programs)
        results = {view.buffer.id: result for result, view in enumerate(program.outputs)}
        arguments: list[Buffer] = []
        for number, (value, buffer) in enumerate(zip(run.reads, program.inputs, strict=True)):
            place = source = self._at(value)
            if number in written:
                result = results.get(buffer.id)
                place = self._scratch(buffer, several) if result is None else self._at(run.writes[result])
                if place is not source and first:
                    self._copy(source, place, value.type, run.location)
            arguments.append(place)
        known = {buffer.id: place for buffer, place in zip(program.inputs, arguments, strict=True)}
        late = []
        for view, value in zip(program.outputs, run.writes, strict=True):
            if view.buffer.id not in known and is_whole(view):
                known[view.buffer.id] = self._at(value)
            elif known.get(view.buffer.id) is not self._at(value):
                known.setdefault(view.buffer.id, self._scratch(view.buffer, several))
                late.append((view, value))
        if several:
            self._meet(run.location)
        self._call(program, arguments, run.location, known, fixed=several, parts=run.parts)
        if several:
            self._meet(run.location)
        for view, value in late if first else ():
            self._part(known[view.buffer.id], view, value, run.location)

    def _part(self, source: Buffer, view: View, value: Value, where: Location) -> None:
        function = glue.part_of(view.strides, view.shape, view.offset)
        kinds = (TensorType((view.row,), view.dtype), TensorType(view.shape, view.dtype))
        key = ("part", view.strides, view.shape, view.offset)
        self._call(self._linker.small(key, function, kinds), [source, self._at(value)], where)

    def _scratch(self, buffer: Buffer, several: bool) -> Buffer:
        shared = MemoryRegion.shared_hbm if several else MemoryRegion.private_hbm
        made = replace(self._linker.fresh(buffer, False), region=shared, role="temporary")
        self.block.buffers.append(made)
        return made

    def _loop(self, loop: ModelLoop, share: StepShare | None = None) -> None:
        """If both cores run it, they meet before each of them loads the condition."""
        kind = TensorType((1,), tensor_of(loop.test.type)[1])
        test = self._linker.small("truth", glue.truth, (kind,))
        condition, whole = blocks(loop)
        self._inner(condition, share, 0)
        if share is not None:
            self._meet(loop.location)
        register = self._call(test, [self._at(loop.test)], loop.location)
        body = _Builder(self._linker)
        body._inner(whole, share, 1)
        if share is not None:
            body._meet(loop.location)
        body._call(test, [self._at(loop.test)], loop.location, register=register)
        self._nested(WhileLoop(_known(register), body.block, self._linker.location(UNKNOWN, loop.location)))

    def _choice(self, choice: Choice, share: StepShare | None = None) -> None:
        """Branches as loops that run once or not at all; cores that both run one meet at its end."""
        kind = TensorType((1,), uint8 if choice.truth else int32)
        index = [self._at(choice.index)]
        count = len(choice.branches)
        for number, (steps, _) in enumerate(choice.branches):
            function = glue.chosen(number, count, choice.truth)
            chosen = self._linker.small(("chosen", number, count, choice.truth), function, (kind,))
            register = self._call(chosen, index, choice.location)
            body = _Builder(self._linker)
            body._inner(steps, share, number)
            if share is not None:
                body._meet(choice.location)
            ended = self._linker.small("ended", glue.ended, (kind,))
            body._call(ended, index, choice.location, register=register)
            where = self._linker.location(UNKNOWN, choice.location)
            self._nested(WhileLoop(_known(register), body.block, where))

    def _nested(self, loop: WhileLoop) -> None:
        self.block.items.append(loop)
        assert self.block.sync is not None, "linked blocks have queues"
        self.block.sync.append(None)

    def _call(
        self,
        program: Program,
        arguments: Sequence[Buffer],
        where: Location,
        known: Mapping[int, Buffer] | None = None,
        register: VirtualRegister | None = None,
        fixed: bool = False,
        parts: tuple[KernelPart, ...] = (),
    ) -> VirtualRegister | None:
        """A kernel's instructions; returns the register that its last one writes, if it writes one.

        Args:
            known: what other device tensors of the kernel are.
            register: that its last instruction is to write instead of its own.
            fixed: whether its tensors on chip stay where its compiler put them.
            parts: of the model that it computes; by default the one that `where` says.
        """
        names: Bindings = {**(known or {})}
        names |= {buffer.id: place for buffer, place in zip(program.inputs, arguments, strict=True)}
        room = Shift(0, 0, {}) if fixed else self._linker.room.next(program)
        call = Call(self._linker, program, names, where, room)
        last = _last_register(program)
        if last is not None and register is not None:
            call.registers[last] = register
        start = self._linker.position
        call.into(self.block, program.body)
        after = self._linker.position
        self._linker.called.append(KernelCall(program.name, start, after, parts or parts_at(where)))
        whole_program = self._linker.program
        whole_program.edges += [(start + first, start + last) for first, last in program.edges]
        whole_program.fences += [(start + first, start + after) for first, after in program.fences]
        return None if last is None else call.registers.get(last)


def check_reference(run: KernelRun, core: int) -> Program:
    """A core's program of the user's kernel, which takes and gives what its call says. Raises GraphError otherwise."""
    assert run.reference is not None, "only references are checked"
    program, name = run.programs[core if len(run.programs) > 1 else 0], run.reference.name
    found = [TensorType(buffer.shape, buffer.dtype) for buffer in program.inputs]
    found += [TensorType(view.shape, view.dtype) for view in program.outputs]
    wanted = [TensorType(*tensor_of(value.type)) for value in (*run.reads, *run.writes)]
    if len(program.inputs) != len(run.reads) or list(map(_bytes, found)) != list(map(_bytes, wanted)):
        raise GraphError(
            "graph.reference",
            f"kernel {name} was compiled for {', '.join(map(str, found))}, and is called for "
            f"{', '.join(map(str, wanted))}",
            rule="operands, then results, are the tensors that the kernel was compiled for",
            fix="trace the model again, so that the kernel is compiled for these shapes",
            location=run.location,
        )
    return program


def _bytes(kind: TensorType) -> tuple[int, int]:
    return kind.size, kind.dtype.itemsize


def _last_register(program: Program) -> VirtualRegister | None:
    last = program.body.items[-1] if program.body.items else None
    if not isinstance(last, Issued):
        return None
    places = register_places(last.instruction)
    first = last.arguments[places[0]] if places else None
    return first if isinstance(first, VirtualRegister) else None


def _known(register: VirtualRegister | None) -> VirtualRegister:
    assert register is not None, "kernels that choose end with a register"
    return register
