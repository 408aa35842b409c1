"""Running compiled kernels natively: when that pays, and the plans of their cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from nki.core.collector import paused_collector
from nki.core.locks import lock
from nki.core.tensor import MemoryRegion
from nki.native.objects import blobs
from nki.native.plan.cache_layout import Layout, arrange
from nki.native.plan.control import Control, at_scalar_offsets
from nki.native.plan.definite_initialization import FormOf, Proven, prove
from nki.native.plan.execution_plan import ExecutionPlanner
from nki.native.plan.steps import ExecutionPlan, trips
from nki.native.plan.stored_plans import functions_of, packed, plan_key, unpacked
from nki.native.plan.tile_versions import renamed
from nki.native.plan.transfer_elision import forwarded
from nki.native.records.forms import Form, form_of
from nki.native.records.moves import Product
from nki.native.run.core import NativeCore
from nki.native.run.team import threads_of
from nki.native.tiering.compilation_policy import Functions
from nki.native.tiering.process_history import Earlier
from nki.options import Options
from nki.report import Executed
from nki.spec.program import Block, Issued, Program
from nki.target.model import Target

_WORTH = 5e-4
"""Seconds that NumPy takes for one form in one call, from which a kernel that is called again compiles it."""
_LARGE = 2e-3
"""Seconds that NumPy takes for all forms in one call, from which a kernel that is called again compiles all of them: an
instruction that NumPy executes interrupts the others."""
_INSTRUCTION = 15e-6
"""Seconds that NumPy's machine takes for an instruction beside the work on its elements."""
_MOST_IDLE = 2


class NativeKernel:
    """What the calls of a compiled kernel have in common; they may come from several threads at once."""

    def __init__(
        self, programs: Sequence[Program], target: Target, options: Options, functions: Functions, artifact: str = ""
    ) -> None:
        """`artifact` is the key of the programs on disk; their plans are kept as well if it is not empty."""
        self.functions = functions
        self._target = target
        self._options = options
        self._programs = programs
        self._lock = lock()
        self._calls = 0
        self._there = 0
        self._proven: list[Proven] = []
        self._waiting: frozenset[int] = frozenset()
        self._layouts: list[Layout] = []
        self._plans: list[ExecutionPlan] = []
        self._idle: list[list[NativeCore]] = []
        self._key = plan_key(artifact, options, threads_of(options.threads)) if artifact else ""
        self._kept = self._take_kept()
        if not self._kept:
            self._earlier = Earlier(functions, self._key)
            self._find_forms()

    def _find_forms(self) -> None:
        found = [_forms(program, self._target, self._options.matmul) for program in self._programs]
        self._forms = [forms for forms, _ in found]
        self._moving = [moving for _, moving in found]
        self._counts = _counts(list(zip(self._programs, self._forms, strict=True)))
        self._weights = [(form, count * form.cost) for form, count in self._counts.values() if form.native is not None]

    def _take_kept(self) -> bool:
        """Take the plans from disk; whether they and all their functions are there."""
        data = self.functions.kept(self._key) if self._key else None
        if data is None:
            return False
        try:
            document, arrays = blobs.read(data)
            addresses = self.functions.found(functions_of(document))
        except (blobs.DamagedError, KeyError, TypeError):
            return False
        found = None if addresses is None else unpacked(document, arrays, self._programs, addresses)
        if found is None:
            return False
        self._layouts, self._plans = found
        return True

    @property
    def _complete(self) -> bool:
        return self._kept or self._there == len(self._weights)

    def _keep(self) -> None:
        """Keep the plans on disk once everything is compiled, so that there is nothing to add."""
        if self._key and self._complete:
            names = self.functions.names(form for form, _ in self._weights)
            data = packed(self._programs, self._layouts, self._plans, names)
            if data is not None:
                self.functions.keep(self._key, data)
            self._key = ""

    def cores(self) -> list[NativeCore] | None:
        """A core for each program, with its plan; None if NumPy is to execute this call.

        They are given back with `release` when the call is over.
        """
        with self._lock:
            self._calls += 1
            compiled = self._kept or self._compiled()
            if self._calls == 1 and not self._complete:
                self._earlier.count()
            if not compiled:
                return None
            if self._plans and self._idle:
                return self._idle.pop()
            with paused_collector():
                if not self._plans:
                    self._make_plans()
                    self._keep()
                return [
                    NativeCore(number, layout, plan, self._target, self._options, self.functions)
                    for number, (layout, plan) in enumerate(zip(self._layouts, self._plans, strict=True))
                ]

    def release(self, cores: list[NativeCore]) -> None:
        """The memory of a call may be used by the next one."""
        for core in cores:
            core.end()
        with self._lock:
            current = len(cores) == len(self._plans)
            for core, plan in zip(cores, self._plans, strict=False):
                current = current and core.plan is plan
            if current and len(self._idle) < _MOST_IDLE:
                self._idle.append(cores)

    @staticmethod
    def executed(cores: Sequence[NativeCore]) -> Executed:
        """Who executed the instructions of these cores in the last call; those of a loop count once.

        Other calls may have made other plans meanwhile.
        """
        if len(cores) == 1:
            return cores[0].executed()
        found = [core.executed() for core in cores]
        reasons = sum((Counter(each.reasons) for each in found), Counter())
        native = sum(each.native for each in found)
        return Executed(native, reasons.total(), reasons, tuple(trips for each in found for trips in each.trips))

    def _compiled(self) -> bool:
        """Compile what pays; False if there is nothing that runs natively yet."""
        first = self._calls == 1
        paid = first and self._earlier.paid(self._weights, sum(map(len, self._forms)))
        total = sum(weight for _, weight in self._weights)
        for form, weight in self._weights:
            if not form.function:
                now = paid or (not first and (weight >= _WORTH or total >= _LARGE))
                spends = weight + _INSTRUCTION * self._counts[id(form)][1]
                self.functions.ready(form, spends, now, look=first, again=not first)
        there = sum(1 for form, _ in self._weights if form.function)
        if there != self._there:  # also those that another kernel had compiled
            self._plans, self._there = [], there
        return there > 0

    def _make_plans(self) -> None:
        """Plans with the functions that are compiled now; calls that run meanwhile keep theirs."""
        looked = [_looked_up(forms) for forms in self._forms]
        waiting = frozenset(id(form) for form, _ in self._weights if _is_product(form) and not form.function)
        if not self._proven or waiting != self._waiting:
            found = zip(self._programs, [_looked_up(forms, waiting) for forms in self._forms], strict=True)
            self._proven = _shared([prove(p, self._target, forms) for p, forms in found], self._programs)
            self._waiting = waiting
        constant, unread = _untouched(self._programs)
        plans: list[ExecutionPlan] = []
        layouts: list[Layout] = []
        for number, (program, proven, forms) in enumerate(zip(self._programs, self._proven, looked, strict=True)):
            moving = self._moving[number]
            static = _at_static_addresses(forms, moving)
            moved = forwarded(program, proven, static, constant[number], unread[number])
            versions = renamed(moved.renamed)
            layout = arrange(program, proven, moved, versions, self._target)
            layouts.append(layout)
            barrier = self.functions.barrier if threads_of(self._options.threads) > 1 else 0
            control = Control(layout.bases, self.functions.control, layout.place)
            planner = ExecutionPlanner(
                program, proven, forms, moving, moved.skipped, versions, layout.place, layout.register, control, barrier
            )
            plans.append(planner.plan())
        self._layouts, self._idle = layouts, []
        self._plans = plans  # at the end: an interrupt or a fork finds all of them, or none


def _untouched(programs: Sequence[Program]) -> tuple[list[frozenset[int]], list[frozenset[int]]]:
    """For each program the inputs that nobody writes, and the device buffers that nobody reads.

    Arguments may be the same array, so that one that is written leaves none unwritten; and what one core reads of the
    shared memory, the other may have written. Cores that meet take turns, so that memory which both write, be it with
    the same values in the end, cannot be a tile of either.
    """
    touched = [_touched(program) for program in programs]
    reads, writes = [reads for reads, _ in touched], [writes for _, writes in touched]
    inputs = [frozenset(buffer.id for buffer in program.inputs) for program in programs]
    written = any(own & found for own, found in zip(inputs, writes, strict=True))
    shared = [
        frozenset(b.id for b in program.body.all_buffers() if b.region is MemoryRegion.shared_hbm)
        for program in programs
    ]
    looked_at = len(programs) > 1 and (
        any(own & found for own, found in zip(shared, reads, strict=True)) or any(_meets(p) for p in programs)
    )
    unread = []
    for program, found, own in zip(programs, reads, shared, strict=True):
        device = frozenset(b.id for b in program.body.all_buffers() if not b.on_chip)
        unread.append(device - found - (own if looked_at else frozenset()))
    return [frozenset() if written else own for own in inputs], unread


def _meets(program: Program) -> bool:
    """Whether a core waits for the other one before it ends."""
    return any("rendezvous" in issued.instruction.effects(issued.arguments) for issued in program.body.walk())


def _touched(program: Program) -> tuple[frozenset[int], frozenset[int]]:
    """Ids of the buffers that are read, and of those that are written."""
    reads, writes = set(), set()
    for issued in program.body.walk():
        operands = issued.instruction.operands
        for name, view in issued.views():
            if operands[name].reads:
                reads.add(view.buffer.id)
            if operands[name].writes:
                writes.add(view.buffer.id)
    return frozenset(reads), frozenset(writes)


def _forms(program: Program, target: Target, matmul: str) -> tuple[dict[int, Form], frozenset[int]]:
    """The forms of the instructions, as if scalar offsets were 0, and which have dynamic addresses, by identity."""
    found, moving = {}, set()
    for issued in program.body.walk():
        still = at_scalar_offsets(issued)
        if still is not None:
            found[id(issued)] = form_of(still, target, matmul)
        if still is not issued:
            moving.add(id(issued))
    return found, frozenset(moving)


def _at_static_addresses(forms: FormOf, moving: frozenset[int]) -> FormOf:
    """A look-up of forms that knows those of instructions without dynamic addresses only."""
    return lambda issued: None if id(issued) in moving else forms(issued)


def _looked_up(forms: Mapping[int, Form], waiting: frozenset[int] = frozenset()) -> FormOf:
    """The form of an instruction, None for those that are `waiting` to be compiled.

    A product that NumPy executes asks who wrote PSUM before, which only the notes of a tensor in doubt can tell it.
    """

    def look(issued: Issued) -> Form | None:
        form = forms.get(id(issued))
        return None if id(form) in waiting else form

    return look


def _is_product(form: Form) -> bool:
    return form.native is not None and isinstance(form.native.move, Product)


def _counts(programs: Sequence[tuple[Program, Mapping[int, Form]]]) -> dict[int, tuple[Form, int]]:
    """Every form, by identity, and how many instructions have it in one call."""
    found: dict[int, tuple[Form, int]] = {}
    for program, forms in programs:
        for issued, times in _times(program.body, 1):
            form = forms.get(id(issued))
            if form is not None:
                found[id(form)] = (form, found.get(id(form), (form, 0))[1] + times)
    return found


def _times(block: Block, times: int) -> Iterator[tuple[Issued, int]]:
    """All instructions, and how often each is executed."""
    for item in block.items:
        if isinstance(item, Issued):
            yield item, times
        else:
            yield from _times(item.body, times * trips(item))


def _shared(proven: list[Proven], programs: Sequence[Program]) -> list[Proven]:
    """What is proven of each core, once a shared_hbm buffer in doubt on one is in doubt on all.

    The n-th shared_hbm buffer of every core is the same memory.
    """
    pairs = list(
        zip(
            *[[b.id for b in p.body.all_buffers() if b.region is MemoryRegion.shared_hbm] for p in programs],
            strict=False,
        )
    )
    doubtful = [pair for pair in pairs if any(key in p.doubtful for key, p in zip(pair, proven, strict=True))]
    return [one._replace(doubtful=one.doubtful | {pair[core] for pair in doubtful}) for core, one in enumerate(proven)]
