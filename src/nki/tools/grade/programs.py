"""A candidate's program in the hands of the judge: verified, checked, compiled, executed and timed by this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki.core.collector import paused_collector
from nki.core.errors import NkiError
from nki.core.source import Location
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
from nki.ranks.current import communicator
from nki.spec.program import Program
from nki.spec.rule import Finding, finding_of
from nki.store.payload import result_of
from nki.store.traced import read_traced
from nki.target.model import Target
from nki.tools.check.whole_program import check_whole, compiled
from nki.tools.grade.answers import Traced
from nki.tools.grade.sets import ArgumentSet
from nki.tools.grade.verdicts import fault, wrong_answer
from nki.tools.results import named_arrays

# What rules, which expect operands that a trace has checked, do with operands that nobody has.
_SURPRISES = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_MOST_BYTES = 8 << 30


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
    """One run: results by their place in what the kernel returned, and arguments as they were afterwards."""

    results: dict[str, np.ndarray]
    arguments: dict[str, np.ndarray]


def judge_program(
    traced: Traced, chosen: ArgumentSet, target: Target, options: Options, cores: int
) -> JudgedProgram | list[Finding]:
    """Verify, check and compile a program; the findings if anything refuses it."""
    try:
        read = read_traced(traced.data, target)
        found = _other_arguments(read, chosen, cores)
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
        written = written_inputs(checked.programs)
        return JudgedProgram(checked.programs, tree, tuple(findings), written, fingerprint(module))
    except NkiError as error:
        return [*error.found, finding_of(error, "error")]
    except _SURPRISES as error:
        return [wrong_answer(f"{type(error).__name__} in a check: {error}")]


def execute(judged: JudgedProgram, inputs: Mapping[str, np.ndarray], target: Target, options: Options) -> Outcome:
    """Run a program on copies of the arrays.

    Raises:
        NkiError: what is only known while a kernel runs, such as an index out of bounds.
    """
    program = judged.programs[0]
    hosts = [take(inputs[buffer.name].copy(), "numpy", buffer.name) for buffer in program.inputs]
    made = Compiled(judged.programs, None, (), "", written=judged.written, kept=Kept())
    noted: list[Finding] = []
    with paused_collector(), np.errstate(all="ignore"):
        arrays = [host.array for host in hosts]
        storages, _ = run_compiled(made, arrays, target, options, noted.append, None, communicator())
        write_inputs(hosts, judged.written)
        results = dict(named_arrays(deliver(judged.result, program, storages, hosts)))
    return Outcome(results, {buffer.name: host.original for buffer, host in zip(program.inputs, hosts, strict=True)})


def poisoned(options: Options, other: bool = False) -> Options:
    """Options in which memory that nobody wrote, and what random generators begin with, show one thing or another."""
    return replace(options, uninitialized="zero" if other else "sentinel", seed=options.seed + other, simulator=False)


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
    size = sum(buffer.nbytes for program in programs for buffer in _in_memory(program))
    if size > _MOST_BYTES:
        message = f"the tensors in device memory have {size:,} bytes together"
        return [fault("grade.size", message, f"they have at most {_MOST_BYTES:,}", "use smaller tensors")]
    return []


def _in_memory(program: Program) -> Iterator[Any]:
    return (b for b in (*program.inputs, *program.body.all_buffers()) if not b.on_chip)


def _shown(arguments: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    return (
        ", ".join(f"{name}={'x'.join(map(str, shape))}:{dtype}" for name, (shape, dtype) in arguments.items()) or "none"
    )
