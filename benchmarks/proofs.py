"""What the compiler owes to one launch, whatever its kernel is: legal order, equal bytes, also after every pass.

``proof(kernel, arguments, {...})`` runs a kernel eagerly and compiled, has the compiled program's order proven,
executes it under hostile schedules and, if asked, the program that each pass leaves, and compares the bytes of all
results and of the arguments that the kernel changes.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import Any

import numpy as np

import nki
from nki.compiler import CompileConfig
from nki.core.errors import NkiError
from nki.driver import gate
from nki.driver.launch import bound_arguments, launch_options, trace_only
from nki.frontend.host import kind_of, take
from nki.kernel import Kernel
from nki.options import Options, from_environment
from nki.passes.analysis.dependences import dependences, segments_of
from nki.passes.context import Context
from nki.passes.pipeline import Stage, compile_programs
from nki.passes.proof.faults import CODES
from nki.passes.proof.happens_before import check
from nki.passes.scheduling.semaphores import synchronize
from nki.sim.machine import Machine
from nki.spec.program import Block, Issued, Program
from nki.target.load import DEFAULT_TARGET, load_target
from nki.target.model import Target
from nki.testing.adversary import Policy, run_adversely

Values = list[tuple[str, tuple[int, ...], bytes]]
"""Dtype, shape and a digest of the bytes of arrays, which may be gigabytes."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What became of one launch.

    Attributes:
        kernel: its name.
        cores, instructions, loops: of the compiled programs; a loop's body counts once.
        crossing, waits: dependences between queues, and the waits that enforce them.
        refused: code and message of the error with which the compiled call was refused; "" if it was not.
        core_races: conflicts between the cores that the kernel itself leaves open.
        stages: passes after which the program was executed.
        schedules: hostile schedules under which the compiled program was executed.
        faults: what is wrong, each beginning with its kind: "compiled", "order", "after PASS", "schedule".
        seconds: CPU time of compiling, checking and executing.
    """

    kernel: str
    cores: int = 0
    instructions: int = 0
    loops: int = 0
    crossing: int = 0
    waits: int = 0
    refused: str = ""
    core_races: int = 0
    stages: tuple[str, ...] = ()
    schedules: int = 0
    faults: tuple[str, ...] = ()
    seconds: float = 0.0


def proof(
    kernel: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    stages: bool = False,
    schedules: int = 0,
    seed: int = 0,
    eager: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None,
) -> Proof:
    """Prove what can be proven about a launch.

    Args:
        kernel: a `Kernel`, with its grid, or a plain function; it is called with copies of the arguments.
        stages: execute the program after every pass as well.
        schedules: how many hostile schedules to execute.
        eager: results of an eager run and the arguments that it left, if there was one.

    Raises:
        NkiError: the eager run is refused.
    """
    launched = kernel if isinstance(kernel, Kernel) else nki.jit(kernel)
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = _Work(launched, tuple(args), dict(kwargs), eager)
        found = work.compiled()
        if not found.refused and stages:
            found = work.after_every_pass(found)
        if not found.refused and schedules:
            found = work.under_schedules(found, schedules, Random(f"{found.kernel} {seed}"))
    return replace(found, seconds=time.process_time() - started)


class _Work:
    """One launch, and what an eager run makes of it."""

    def __init__(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        eager: tuple[Any, tuple[Any, ...], dict[str, Any]] | None,
    ) -> None:
        self._kernel, self._args, self._kwargs = kernel, args, kwargs
        self._launch = replace(kernel.launch(), eager=False)
        self._options = launch_options(self._launch, from_environment())
        self._target = load_target(self._options.target or self._launch.target or DEFAULT_TARGET)
        if eager is None:
            a, k = copy.deepcopy((args, kwargs))
            eager = nki.simulate(kernel)(*a, **k), a, k
        result, a, k = eager
        self._results = values(leaves(result))
        self._changed = self._inputs(a, k)

    def compiled(self) -> Proof:
        """Compile, compare, and have the order proven."""
        args, kwargs = copy.deepcopy((self._args, self._kwargs))
        found = Proof(self._launch.name)
        try:
            result = self._kernel(*args, **kwargs)
        except NkiError as error:
            return replace(found, refused=f"{error.code}: {error.message}")
        assert self._kernel.report is not None
        programs = self._kernel.report.programs
        faults = self._compared("compiled", values(leaves(result)), self._inputs(args, kwargs))
        races = check(programs, self._target)
        own = [race for race in races if race.code != CODES["cores"]]
        crossing, waits = _sums(programs, self._target)
        return replace(
            found,
            cores=len(programs),
            instructions=sum(1 for program in programs for _ in program.body.walk()),
            loops=sum(_loops(program.body) for program in programs),
            crossing=crossing,
            waits=waits,
            core_races=len(races) - len(own),
            faults=(*faults, *(f"order: {race.message}" for race in own)),
        )

    def after_every_pass(self, found: Proof) -> Proof:
        """Execute what each pass leaves, in the order of the program."""
        faults: list[str] = []
        stages: list[str] = []

        def execute(stage: Stage) -> None:
            stages.append(stage.name)
            faults.extend(self._executed(f"after {stage.name}", stage.programs, Policy()))

        args, kwargs = copy.deepcopy((self._args, self._kwargs))
        tracers = trace_only(self._launch, args, kwargs, self._target, self._options, collect=False)
        context = Context(self._target, self._options, self._launch.compile_config or CompileConfig())
        compile_programs([tracer.program for tracer in tracers], context, after=execute)
        return replace(found, stages=tuple(stages), faults=(*found.faults, *faults))

    def under_schedules(self, found: Proof, count: int, random: Random) -> Proof:
        """Execute the compiled program in other legal orders, with transfers in flight."""
        assert self._kernel.report is not None
        programs = self._kernel.report.programs
        faults: list[str] = []
        chosen = policies(programs, count, random)
        for policy in chosen:
            faults += self._executed(f"schedule {policy}", programs, policy)
        return replace(found, schedules=len(chosen), faults=(*found.faults, *faults))

    def _executed(self, what: str, programs: Sequence[Program], policy: Policy) -> list[str]:
        args, kwargs = copy.deepcopy((self._args, self._kwargs))
        arrays = [host.array for host in bound_arguments(self._launch, args, kwargs).arrays]
        try:
            machine = machine_of(self._options)
            results = run_adversely(programs, arrays, self._target, policy, self._options, machine)
        except NkiError as error:
            return [f"{what}: {error.code}: {error.message}"]
        return self._compared(what, values(results), values(arrays))

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Values:
        return values([host.array for host in bound_arguments(self._launch, args, kwargs).arrays])

    def _compared(self, what: str, results: Values, inputs: Values) -> list[str]:
        pairs = ("results", self._results, results), ("arguments", self._changed, inputs)
        return [f"{what}: {kind} {_differing(a, b)}" for kind, a, b in pairs if a != b]


def machine_of(options: Options) -> Callable[..., Machine]:
    """What executes instructions: native code if there is any, which gives NumPy's bits."""
    return gate.native_machine(options) or Machine


def policies(programs: Sequence[Program], count: int, random: Random) -> list[Policy]:
    """Hostile schedules: all transfers late, then random ones and ones that hold a queue back or prefer it."""
    queues = sorted({sync.queue for program in programs for sync in _syncs(program.body)}) or ["vector"]
    found = [Policy(in_flight=True)]
    while len(found) < count:
        seed, flies = random.getrandbits(16), random.random() < 0.7
        found += [
            Policy("random", seed=seed, in_flight=flies),
            Policy("late", random.choice(queues), in_flight=flies),
            Policy("random", seed=seed + 1, in_flight=not flies),
            Policy("early", random.choice(queues), in_flight=flies),
        ]
    return found[:count]


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree of results, in order."""
    if isinstance(tree, Mapping):
        tree = tuple(tree.values())
    if isinstance(tree, tuple | list):
        return [leaf for item in tree for leaf in leaves(item)]
    return [] if tree is None else [tree]


def values(arrays: Sequence[Any]) -> Values:
    """What is compared of arrays."""
    found = []
    for array in arrays:
        a = bytes_of(array)
        found.append((str(a.dtype), a.shape, blake2b(np.ascontiguousarray(a).reshape(-1).view(np.uint8)).digest()))
    return found


def bytes_of(array: Any) -> np.ndarray:
    """A NumPy array of any framework's array, also where NumPy does not know its dtype."""
    kind = kind_of(array)
    return np.asarray(array) if kind in (None, "numpy") else take(array, kind, "result").array


def _differing(wanted: Values, got: Values) -> str:
    if len(wanted) != len(got):
        return f"are {len(got)} in place of {len(wanted)}"
    return "differ: " + ", ".join(str(n) for n, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b)


def _sums(programs: Sequence[Program], target: Target) -> tuple[int, int]:
    """Dependences between queues in all segments, and the waits that enforce them."""
    crossing = waits = 0
    for program in programs:
        for segment in segments_of(program):
            needs = dependences(segment.items, program, target, segment.edges, segment.fences)
            syncs = (segment.block.sync or [])[segment.first : segment.after]
            crossing += synchronize([sync.queue for sync in syncs if sync is not None], needs).crossing
            waits += sum(len(sync.waits) for sync in syncs if sync is not None)
    return crossing, waits


def _syncs(block: Block) -> Iterator[Any]:
    yield from (sync for sync in block.sync or () if sync is not None)
    for item in block.items:
        if not isinstance(item, Issued):
            yield from _syncs(item.body)


def _loops(block: Block) -> int:
    return sum(1 + _loops(item.body) for item in block.items if not isinstance(item, Issued))
