"""One core of a native call: its memory, which the next call uses again, and the execution of its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nki.core.locks import cached_property
from nki.core.register import VirtualRegister
from nki.core.tensor import Buffer, MemoryRegion, View
from nki.native.call_context import CallContext, address_of
from nki.native.operand_layout import BASES, PANELS
from nki.native.plan.cache_layout import FIRST_BUFFER, ON_CHIP, POOL, REGISTERS, Layout
from nki.native.plan.control import FUEL
from nki.native.plan.steps import BlockSteps, ExecutionPlan, Repeat, Stretch
from nki.native.plan.tile_versions import renamed
from nki.native.primitives.control import UNDEFINED
from nki.native.run.huge_pages import reserved
from nki.native.run.machine import NativeMachine
from nki.native.run.team import Team, threads_of
from nki.native.tiering.compilation_policy import Functions
from nki.options import Options
from nki.ranks.protocol import ALONE, Communicator
from nki.report import Executed
from nki.sim.machine import Machine, Meet
from nki.sim.memory import LiveStorage, Memory, address_in
from nki.sim.notes import Report
from nki.sim.walk import TRIP_LIMIT, bounds, check_trips
from nki.spec.program import ForLoop, Issued, WhileLoop
from nki.spec.rule import Finding
from nki.target.model import Target

Claim = Callable[[Buffer], LiveStorage]
_LENGTH = (1 << 32) - 1
_WORTH_THREADS = 3e-3
"""Seconds that NumPy would take, from which it is worth waking other threads."""


class NativeCore:
    """Memory and machine of one core, for one call at a time.

    Attributes:
        plan: what the next call executes.
        memory: where its tensors are.
        machine: executes what has no record.
    """

    def __init__(
        self, number: int, layout: Layout, plan: ExecutionPlan, target: Target, options: Options, functions: Functions
    ) -> None:
        threads = threads_of(options.threads)
        self.plan = plan
        self.memory = _NativeMemory(layout, target, options.uninitialized)
        self._layout = layout
        self._functions = functions
        self._contexts = [functions.context(plan.context) for _ in range(1 + (threads if threads > 1 else 0))]
        self._words = [context.words for context in self._contexts]
        self.machine = _RegisterMachine(functions, target, options, self.memory, _unheard, ALONE, number)
        self.machine.hold(plan.registers, self._contexts[0])
        self._team = Team(self._contexts[1:]) if threads > 1 else None
        self._kept: dict[int, LiveStorage] = {}
        self._claim: Claim = self.memory.allocate
        self._returned = {view.buffer.id for view in layout.outputs}
        self._explicit = [b for b in layout.buffers if layout.place(b).base in ON_CHIP.values()]
        self._device = [b for b in layout.buffers if not b.on_chip]
        self._outermost = layout.outermost
        self._inputs = [layout.place(buffer).base for buffer in layout.inputs]
        for (engine, path), base in REGISTERS.items():
            self._base(base, self.machine.register_address(path, engine))
        self._base(POOL, address_of(self.memory.pool))
        self._panels = reserved(plan.panels)
        self._base(PANELS, address_of(self._panels))
        self._counts = bool(plan.trips or plan.numbers)
        self._executed_once = Executed(plan.native, sum(plan.reasons.values()), dict(plan.reasons), trips=({},))

    def begin(
        self, inputs: Sequence[np.ndarray], report: Report, ranks: Communicator, meet: Meet | None, claim: Claim
    ) -> None:
        """Give every buffer its memory; `inputs` are the arrays of the arguments.

        `ranks` and `meet` are the ways to other ranks and to the other core, as those of `Machine`.
        `claim` gives storage for shared_hbm buffers, which the cores of a launch have in common.
        """
        self._claim = claim
        machine, memory, shared = self.machine, self.memory, MemoryRegion.shared_hbm
        machine.begin(report, ranks, meet)
        machine.trips.clear()
        for number in self.plan.trips.values():
            self._base(number, 0)
        self._refuel()
        memory.forget()
        memory.inputs = inputs
        for base, array in zip(self._inputs, inputs, strict=True):
            self._base(base, address_in(array))
        doubtful = self._layout.doubtful
        for buffer in self._explicit:
            if buffer.id not in self._kept or buffer.id in doubtful:
                self._put(self._known(memory.allocate(buffer)))
        for buffer in self._device:
            if buffer.region is shared:
                if buffer.id in self._outermost or buffer.id not in doubtful:
                    self._put(self._known(claim(buffer)))
            elif buffer.id in self._returned or buffer.id in doubtful or buffer.id not in self._kept:
                self._put(self._known(memory.allocate(buffer)))

    def run(self) -> list[LiveStorage]:
        """Execute the plan; returns the storages of the outputs."""
        if self.plan.reasons:
            with np.errstate(all="ignore"):
                self._steps(self.plan.steps)
        else:
            self._steps(self.plan.steps)
        kept, results = self._kept, []
        for view in self._layout.outputs:
            results.append(kept.get(view.buffer.id) or self.memory.storage(view))
        return results

    def executed(self) -> Executed:
        """Who executed the instructions of the last call; those of a loop count once."""
        if not self._counts:
            return self._executed_once
        return self._executed_once._replace(trips=(self.trips(),))

    def trips(self) -> dict[int, float]:
        """How often the bodies of loops whose bounds depend on data ran in the last call, by the number of the loop."""
        held = self._contexts[0].words
        found = {number: float(held[BASES + word]) for number, word in self.plan.trips.items()}
        for key, runs in self.machine.trips.items():
            if key in self.plan.numbers:
                found[self.plan.numbers[key]] += runs
        return found

    def end(self) -> None:
        """Let go of the caller's memory."""
        for key in self._returned:
            self._kept.pop(key, None)
        self._claim = self.memory.allocate
        self.memory.end()

    def _known(self, storage: LiveStorage) -> LiveStorage:
        """A storage whose reads are proven needs no notes; what is never written is poison all the same."""
        key, layout = storage.buffer.id, self._layout
        if key in layout.doubtful:
            return storage
        if storage.fresh and not storage.buffer.on_chip and key not in layout.complete:
            storage.settle()
        storage.fresh = False
        storage.written = None
        return storage

    def _put(self, storage: LiveStorage) -> None:
        key = storage.buffer.id
        base = self._layout.places[key].base
        self._kept[key] = storage
        self._base(base, storage.address + (storage.start if base >= FIRST_BUFFER else 0))

    def _base(self, number: int, address: int) -> None:
        number += BASES
        for words in self._words:
            words[number] = address

    def _steps(self, steps: BlockSteps) -> None:
        for buffer in steps.renewed:
            if buffer.region is not MemoryRegion.shared_hbm and buffer.id not in self._returned:
                self._put(self.memory.allocate(buffer))
            elif buffer.region is MemoryRegion.shared_hbm and buffer.id not in self._outermost:
                self._put(self._claim(buffer))
        for item in steps.items:
            if isinstance(item, Stretch):
                self._stretch(item)
            elif isinstance(item, Issued):
                self.machine.run(item)
            elif isinstance(item, Repeat):
                self._repeat(item)

    def _stretch(self, stretch: Stretch) -> None:
        """Execute records; where a function leaves one to NumPy, NumPy executes it, and the rest goes on."""
        at = stretch.start
        while (at := self._executed(stretch, at)) != stretch.end:
            item = stretch.issued[at]
            if isinstance(item, Issued):
                with np.errstate(all="ignore"):
                    Machine.run(self.machine, self._versions.get(id(item), item))
                at = stretch.after.get(at, at + (self.plan.words[at + 1] & _LENGTH))
            else:
                self._between_trips(item)
            if at == stretch.end:
                break

    @cached_property
    def _versions(self) -> dict[int, Issued]:
        return renamed(self._layout.renamed)

    def _executed(self, stretch: Stretch, start: int) -> int:
        """Execute records from a word on; returns where that ended."""
        words, end = self.plan.words.buffer_info()[0], stretch.end
        if self._team is not None and (stretch.work > _WORTH_THREADS or self._functions.always):
            registers = slice(BASES + self._layout.bases, BASES + self.plan.context)
            for context in self._contexts[1:]:
                context.words[registers] = self._contexts[0].words[registers]
            stopped = self._team.run(self._functions.run, words, start, end)
            if stopped is not None:
                self._contexts[0].words[registers] = self._contexts[1].words[registers]
                return stopped
        return self._functions.run(words, start, end, self._contexts[0].address)

    def _between_trips(self, loop: ForLoop | WhileLoop) -> None:
        """Native code asks whether a loop is to go on."""
        if self._contexts[0].words[BASES + self.plan.fuel] == 0:
            self._refuel()
        elif isinstance(loop, ForLoop):
            bounds(self.machine, loop)
        else:
            self.machine.read_register(loop.condition)
            check_trips(TRIP_LIMIT + 1, loop.location)

    def _refuel(self) -> None:
        self._base(self.plan.fuel, FUEL)

    def _repeat(self, repeat: Repeat) -> None:
        loop = repeat.loop
        if isinstance(loop, ForLoop):
            lower, upper = bounds(self.machine, loop)
            for value in range(lower, upper, loop.step):
                self.machine.write_register(loop.index, value)
                self.machine.trips[id(loop)] += 1
                self._steps(repeat.body)
            return
        trips = 0
        while self.machine.read_register(loop.condition) != 0:
            self.machine.trips[id(loop)] += 1
            self._steps(repeat.body)
            trips += 1
            check_trips(trips, loop.location)


class _RegisterMachine(NativeMachine):
    """A machine whose registers are words of a context, where native code has them."""

    def hold(self, numbers: Mapping[int, int], context: CallContext) -> None:
        """The word of each register, by its id."""
        self._numbers = numbers
        self._held = context

    def restart(self, report: Report) -> None:
        super().restart(report)
        for number in self._numbers.values():
            self._held.base(number, UNDEFINED)

    def read_register(self, register: VirtualRegister | int) -> int:
        number = None if isinstance(register, int) else self._numbers.get(register.id)
        value = UNDEFINED if number is None else self._held.words[BASES + number]
        return super().read_register(register) if value == UNDEFINED else value

    def write_register(self, register: VirtualRegister, value: int) -> None:
        super().write_register(register, value)
        number = self._numbers.get(register.id)
        if number is not None:
            self._held.base(number, super().read_register(register))


class _NativeMemory(Memory):
    """The memories of one core; arguments and tensors of the pool get a storage when somebody asks for it.

    Native code needs no more of them than an address.

    Attributes:
        pool: the bytes that on-chip tensors share.
        inputs: the arrays of the arguments of this call.
    """

    def __init__(self, layout: Layout, target: Target, uninitialized: str) -> None:
        super().__init__(target, placement=layout.placement, reach=layout.reach, uninitialized=uninitialized)
        self._layout = layout
        self.pool = reserved(layout.pool_bytes)
        self.inputs: Sequence[np.ndarray] = ()
        self._arguments = {buffer.id: (number, buffer) for number, buffer in enumerate(layout.inputs)}
        self._strong: dict[int, LiveStorage] = {}

    def end(self) -> None:
        """The next call has other arrays."""
        self.inputs = ()
        if self._strong:
            for key in self._strong:
                del self._live.references[key]
            self._strong.clear()

    def storage(self, view: View) -> LiveStorage:
        key = view.buffer.id
        found = self._live.get(key)
        if found is None:
            found = self._argument(key) if key in self._arguments else self._placed(view.buffer)
        return found

    def _argument(self, key: int) -> LiveStorage:
        """The storage of an array of the call."""
        number, buffer = self._arguments[key]
        storage = self._strong[key] = self.adopt(buffer, self.inputs[number])
        return storage

    def _placed(self, buffer: Buffer) -> LiveStorage:
        """The storage of a tensor in the pool, or of one that is part of device memory."""
        chunk, elsewhere = self._layout.chunks.get(buffer.id), self._layout.elsewhere.get(buffer.id)
        if elsewhere is not None:
            device = self._live.get(elsewhere.buffer) or self._argument(elsewhere.buffer)
            storage = LiveStorage(buffer, device.base, elsewhere.pitch, device.start + elsewhere.start, None)
        else:
            assert chunk is not None, "every other tensor got its storage when the call began"
            storage = LiveStorage(buffer, self.pool, chunk.pitch, chunk.start, None)
        self._strong[buffer.id] = self._live[buffer.id] = storage
        return storage


def _unheard(finding: Finding) -> None:
    raise AssertionError("the machine was restarted before it ran")
