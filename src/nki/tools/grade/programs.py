"""A candidate's program in the hands of the judge: verified, checked, compiled, executed and timed by this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nki.core.collector import paused_collector
from nki.core.errors import ExecutionError, NkiError
from nki.core.source import Location
from nki.core.tensor import View
from nki.driver.compiled import Compiled, Kept
from nki.driver.execute import run_compiled
from nki.frontend.host import take
from nki.frontend.results import (
    deliver,
    returns_nothing,
    unwritten_outputs,
    write_inputs,
    writes_of,
    written_inputs,
)
from nki.ir.build import build
from nki.ir.text import fingerprint
from nki.ir.verify import verify
from nki.options import Options
from nki.passes.lint.duplicated_work import undivided
from nki.passes.lint.mistakes import mistakes
from nki.profiling.gate import profile_programs
from nki.ranks.current import communicator
from nki.spec.program import Program
from nki.spec.rule import Finding, finding_of
from nki.store.payload import result_of
from nki.store.traced import read_traced
from nki.target.load import load_target
from nki.target.model import Target
from nki.target.own import base_of
from nki.tools.check.whole_program import check_whole, compiled
from nki.tools.grade.answers import Traced
from nki.tools.grade.sets import ArgumentSet
from nki.tools.grade.verdicts import fault, wrong_answer
from nki.tools.results import named_arrays

if TYPE_CHECKING:
    from nki.profiling.record import Profile

SURPRISES = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What rules, which expect operands that a trace has checked, do with operands that nobody has."""


@dataclass(frozen=True, slots=True)
class JudgedProgram:
    """A program that may run.

    Attributes:
        programs: compiled by this process, one for each core.
        result: the tree of results with the outputs in it.
        findings: warnings; nothing that `nki check --all` would refuse.
        written: positions of the arguments that it writes to.
        fingerprint: hash of the program as it was traced.
    """

    programs: tuple[Program, ...]
    result: Any
    findings: tuple[Finding, ...]
    written: frozenset[int]
    fingerprint: str

    @property
    def names(self) -> list[str]:
        """Arguments in the order of the program."""
        return [buffer.name for buffer in self.programs[0].inputs]

    def writer_of(self, position: int) -> Location:
        """The first line that writes to an argument."""
        for program in self.programs:
            number = program.inputs[position].id
            for issued in program.body.walk():
                if any(view.buffer.id == number for view in issued.written()):
                    return issued.location
        return self.programs[0].location


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run.

    Attributes:
        results: by their place in what the kernel returned.
        arguments: as they were afterwards.
        trips: for each core how often loops ran whose bounds depend on data, by the number of the loop.
    """

    results: dict[str, np.ndarray]
    arguments: dict[str, np.ndarray]
    trips: tuple[Mapping[int, float], ...] = ()


def read_program(traced: Traced, target: Target) -> list[Program]:
    """The program of a candidate, which is traced for a generation and never sees coefficients of somebody's own.

    Raises:
        ArtifactError, TensorError: see `nki.store.traced.read_traced`.
    """
    programs = read_traced(traced.data, load_target(base_of(target.name)))
    return [replace(program, target=target.name) for program in programs]


def judge_program(
    traced: Traced, chosen: ArgumentSet, target: Target, options: Options, cores: int, most_bytes: int
) -> JudgedProgram | list[Finding]:
    """Verify, check and compile a program; the findings if anything refuses it.

    Args:
        cores: that it is to run on.
        most_bytes: of its tensors in device memory.
    """
    try:
        read = read_program(traced, target)
        found = _other_arguments(read, chosen, cores) or _too_large(read, most_bytes)
        if found:
            return found
        module = build(read)
        programs = verify(module, target, options.disabled_rules)
        findings = _findings(programs, target, options)
        checked = compiled(programs, target, options, traced.config)
        findings += check_whole(programs, checked, target).findings
        findings = [finding for finding in findings if finding.code not in options.disabled_rules]
        if any(finding.severity == "error" for finding in findings):
            return findings
        tree = result_of(traced.result, checked.programs[0].outputs)
        if not _is_tree(tree):
            return [wrong_answer("the results are no tensors")]
        written = written_inputs(checked.programs)
        return JudgedProgram(checked.programs, tree, tuple(findings), written, fingerprint(module))
    except NkiError as error:
        return [*error.found, finding_of(error, "error")]
    except SURPRISES as error:
        return [wrong_answer(f"{type(error).__name__} in a check: {error}")]


def execute(judged: JudgedProgram, inputs: Mapping[str, np.ndarray], target: Target, options: Options) -> Outcome:
    """Run a program on copies of the arrays.

    Raises:
        NkiError: what is only known while a kernel runs, such as an index out of bounds; "grade.run" for what no
            kernel that was traced does.
    """
    try:
        return _executed(judged, inputs, target, options)
    except (*SURPRISES, MemoryError) as error:
        if isinstance(error, NkiError):
            raise
        raise ExecutionError(
            "grade.run",
            f"the program cannot be run: {type(error).__name__}: {error}"[:500],
            rule="a program that was traced and compiled runs",
            fix="trace the kernel as it is, and use smaller tensors",
            location=judged.programs[0].location,
        ) from error


def _executed(judged: JudgedProgram, inputs: Mapping[str, np.ndarray], target: Target, options: Options) -> Outcome:
    program = judged.programs[0]
    hosts = [take(inputs[buffer.name].copy(), "numpy", buffer.name) for buffer in program.inputs]
    made = Compiled(judged.programs, None, (), "", written=judged.written, kept=Kept())
    noted: list[Finding] = []
    with paused_collector(), np.errstate(all="ignore"):
        arrays = [host.array for host in hosts]
        storages, executed = run_compiled(made, arrays, target, options, noted.append, None, communicator())
        write_inputs(hosts, judged.written)
        results = dict(named_arrays(deliver(judged.result, program, storages, hosts)))
    after = {buffer.name: host.original for buffer, host in zip(program.inputs, hosts, strict=True)}
    return Outcome(results, after, executed.trips)


def profiled(judged: JudgedProgram, outcome: Outcome | None, target: Target) -> Profile:
    """The profile of a program; loops whose bounds depend on data have the trips of a run."""
    return profile_programs(judged.programs, target, (outcome.trips if outcome is not None else ()) or None)


def poisoned(options: Options, other: bool = False) -> Options:
    """Options in which memory that nobody wrote, and what random generators begin with, show one thing or another."""
    return replace(options, uninitialized="zero" if other else "sentinel", seed=options.seed + other, simulator=False)


def _is_tree(tree: Any) -> bool:
    """Whether there is nothing but tensors in a tree of results."""
    if tree is None or isinstance(tree, View):
        return True
    if isinstance(tree, dict):
        return all(_is_tree(item) for item in tree.values())
    return isinstance(tree, tuple | list) and all(_is_tree(item) for item in tree)


def _findings(programs: Sequence[Program], target: Target, options: Options) -> list[Finding]:
    """What `nki check` finds in traced programs."""
    writes = writes_of(programs)
    found = unwritten_outputs(programs, writes) + returns_nothing(programs, writes, "error")
    return found + mistakes(programs, target, options.disabled_rules) + undivided(programs)


def _other_arguments(programs: Sequence[Program], chosen: ArgumentSet, cores: int) -> list[Finding]:
    """What is wrong if the program is not one for the arguments and cores that were asked for."""
    wanted = {name: (spec.shape, spec.dtype.name) for name, spec in chosen.arrays.items()}
    found = {buffer.name: (buffer.shape, buffer.dtype.name) for buffer in programs[0].inputs}
    if found != wanted or len(programs[0].inputs) != len(found) or len(programs) != cores:
        return [
            fault(
                "grade.arguments",
                f"the program takes {_shown(found)} on {len(programs)} cores, and not {_shown(wanted)} on {cores}",
                "the program of a candidate is for the arguments that it is traced with",
                "launch the kernel as it is, and use its own arguments",
            )
        ]
    return []


def _too_large(programs: Sequence[Program], most: int) -> list[Finding]:
    size = sum(buffer.nbytes for program in programs for buffer in _in_memory(program))
    if size <= most:
        return []
    message = f"the tensors in device memory have {size:,} bytes together"
    return [fault("grade.size", message, f"they have at most {most:,}", "use smaller tensors, or raise --memory")]


def _in_memory(program: Program) -> Iterator[Any]:
    return (b for b in (*program.inputs, *program.body.all_buffers()) if not b.on_chip)


def _shown(arguments: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    return (
        ", ".join(f"{name}={'x'.join(map(str, shape))}:{dtype}" for name, (shape, dtype) in arguments.items()) or "none"
    )
