"""Who executes a kernel: compiled functions where there are any, else the NumPy machine; on as many cores as it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nki.driver import gate
from nki.driver.compiled import Kept
from nki.options import Options
from nki.ranks.protocol import Communicator
from nki.report import Executed
from nki.sim.cores import Cores
from nki.sim.machine import Machine, Meet
from nki.sim.memory import LiveStorage, Memory, placed_memory
from nki.sim.notes import Report
from nki.sim.walk import run_program
from nki.sim.watch import Watch, WatchedMachine
from nki.spec.program import Program
from nki.target.model import Target

if TYPE_CHECKING:
    from nki.native.run.core import NativeCore
    from nki.native.run.kernel import NativeKernel

Outcome = tuple[list[LiveStorage], Executed]
"""The storages of what the first core returns, and who executed what."""


class Runnable(Protocol):
    """What is executed again and again: a compiled kernel, or a model."""

    @property
    def programs(self) -> tuple[Program, ...]:
        """One for each core."""

    @property
    def kept(self) -> Kept:
        """What its runs have in common."""

    @property
    def artifact(self) -> str:
        """The key of its programs on disk; empty if they are not there."""


def on_cores(cores: Cores, run: Callable[[int], Any]) -> list[Any]:
    """A single core runs in the caller's thread, so that a debugger needs nothing special."""
    if cores.count == 1:
        return [run(0)]
    return cores.run([lambda core=core: run(core) for core in range(cores.count)])  # type: ignore[misc]


def eager_machines(
    cores: Cores, target: Target, options: Options, report: Report, watch: Watch | None, ranks: Communicator
) -> list[Machine]:
    """A machine for each core that executes what it is given; somebody who watches sees the NumPy machine work."""
    native = None if watch is not None else gate.native_machine(options)

    def machine(core: int) -> Machine:
        memory = Memory(target, precise_fp=options.precise_fp, uninitialized=options.uninitialized)
        arguments = (target, options, memory, report, ranks, core, _meeting(cores, core))
        if watch is not None:
            return WatchedMachine(watch, *arguments)
        return Machine(*arguments) if native is None else native(*arguments)

    return [machine(core) for core in range(cores.count)]


def executed_by(machines: Sequence[Machine]) -> Executed:
    """Who executed the instructions that these machines were given."""
    counts = [machine.executed() for machine in machines]
    known = [count for count in counts if count is not None]
    return Executed(sum(native for native, _ in known), sum(other for _, other in known)) if known else Executed()


def run_compiled(
    compiled: Runnable,
    inputs: Sequence[np.ndarray],
    target: Target,
    options: Options,
    report: Report,
    watch: Watch | None,
    ranks: Communicator,
) -> Outcome:
    """Execute compiled programs on the arrays of their arguments; `ranks` is the rank that it runs as."""
    kernel = None if watch is not None else compiled.kept.native(_native_kernel, compiled, target, options)
    natives = None if kernel is None else kernel.cores()
    if kernel is not None and natives is not None:
        storages = _run_natively(natives, inputs, report, ranks)
        executed = kernel.executed(natives)
        kernel.release(natives)
        return storages, executed
    return _interpret(compiled, inputs, target, options, report, watch, ranks)


def _native_kernel(compiled: Runnable, target: Target, options: Options) -> NativeKernel | None:
    return gate.native_kernel(compiled.programs, target, options, compiled.artifact)


def _run_natively(
    natives: Sequence[NativeCore], inputs: Sequence[np.ndarray], report: Report, ranks: Communicator
) -> list[LiveStorage]:
    if len(natives) == 1:
        alone = natives[0]
        alone.begin(inputs, report, ranks, None, alone.memory.allocate)
        return alone.run()
    cores = Cores(len(natives))

    def run(number: int) -> list[LiveStorage]:
        core = natives[number]
        core.begin(inputs, report, ranks, _meeting(cores, number), partial(cores.claim, number, core.memory))
        return core.run()

    first: list[LiveStorage] = on_cores(cores, run)[0]
    return first


def _interpret(
    compiled: Runnable,
    inputs: Sequence[np.ndarray],
    target: Target,
    options: Options,
    report: Report,
    watch: Watch | None,
    ranks: Communicator,
) -> Outcome:
    cores = Cores(len(compiled.programs)) if len(compiled.programs) > 1 else None

    def run(number: int) -> tuple[list[LiveStorage], dict[int, float]]:
        program = compiled.programs[number]
        lifetimes = compiled.kept.lifetimes(number, program)
        memory = placed_memory(program, target, options.uninitialized, options.precise_fp, lifetimes.reach)
        kind: Callable[..., Machine] = Machine if watch is None else partial(WatchedMachine, watch)
        meet = None if cores is None else _meeting(cores, number)
        claim = memory.allocate if cores is None else partial(cores.claim, number, memory)
        machine = kind(target, options, memory, report, ranks, number, meet)
        adopted = [memory.adopt(buffer, array) for buffer, array in zip(program.inputs, inputs, strict=True)]
        with np.errstate(all="ignore"):
            return run_program(machine, program, adopted, claim, lifetimes), lifetimes.runs(machine.trips)

    outcomes = [run(0)] if cores is None else on_cores(cores, run)
    return outcomes[0][0], Executed(trips=tuple(trips for _, trips in outcomes))


def _meeting(cores: Cores, number: int) -> Meet | None:
    if cores.count == 1:
        return None
    return lambda key, values, where: cores.meet(number, key, values, where)
