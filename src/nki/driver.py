"""ONE call of a kernel, top to bottom. Read this first."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nki.compilation import Cache, Compiled, compile_kernel
from nki.core.tensor import Buffer, Storage
from nki.frontend.check import check_function, raise_errors
from nki.frontend.host import HostArray
from nki.frontend.results import check_writable, deliver, write_inputs
from nki.frontend.values import Arguments
from nki.launch import (
    Launch,
    bound_arguments,
    check_lnc,
    launch_options,
    paused_collector,
    trace_body,
    trace_only,
    tracer_of,
)
from nki.options import Options, from_environment
from nki.report import NkiWarning, Report
from nki.sim.cores import Cores
from nki.sim.machine import Machine
from nki.sim.memory import Memory, placed_memory
from nki.sim.walk import run_program
from nki.sim.watch import Watch, WatchedMachine
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.spec.schedule import add_named_edges
from nki.target.load import DEFAULT_TARGET, load_target
from nki.target.model import Target

__all__ = ["Cache", "Compiled", "Launch", "call", "compile_kernel", "paused_collector", "trace_only"]


def call(
    launch: Launch,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    cache: Cache,
    options: Options | None = None,
    watch: Watch | None = None,
) -> tuple[Any, Report]:
    """Run a kernel on host arrays; returns its results in the caller's kind, and a report of how they came about.

    `options` are those of the environment unless others are given; `watch` sees every instruction that is executed.
    """
    options = launch_options(launch, from_environment() if options is None else options)
    target = load_target(options.target or launch.target or DEFAULT_TARGET)
    check_lnc(launch, target)
    noted = raise_errors(check_function(launch.function), options.disabled_rules)
    arguments = bound_arguments(launch, args, kwargs)
    if launch.eager or options.simulator:
        result, report = _run_eager(replace(launch, eager=True), arguments, target, options, watch)
    else:
        compiled = compile_kernel(launch, arguments, target, options, cache)
        result, report = _run_compiled(launch, compiled, arguments, target, options, watch)
        report = replace(report, compiled=compiled.origin, doubt=compiled.doubt)
    return result, replace(report, findings=(*noted, *report.findings))


def _run_compiled(
    launch: Launch, compiled: Compiled, arguments: Arguments, target: Target, options: Options, watch: Watch | None
) -> tuple[Any, Report]:
    check_writable(compiled.programs, arguments.arrays)
    findings = list(compiled.findings)
    machines, cores = _machines(
        launch.cores, target, replace(options, precise_fp=True), findings, watch, compiled.programs
    )

    def run(core: int) -> list[Any]:
        program, machine = compiled.programs[core], machines[core]
        inputs = [machine.memory.adopt(b, h.array) for b, h in zip(program.inputs, arguments.arrays, strict=True)]
        with np.errstate(all="ignore"):
            return run_program(machine, program, inputs, lambda buffer: cores.claim(core, machine.memory, buffer))

    storages = _on_cores(cores, run, launch.cores)
    write_inputs(compiled.programs, arguments.arrays)
    result = deliver(compiled.result, compiled.programs[0], storages[0], arguments.arrays)
    return result, _report(launch, target, options, compiled.programs, findings, compiled.kernel_hash)


def _run_eager(
    launch: Launch, arguments: Arguments, target: Target, options: Options, watch: Watch | None
) -> tuple[Any, Report]:
    findings: list[Finding] = []
    machines, cores = _machines(launch.cores, target, options, findings, watch)
    tracers = [
        tracer_of(
            launch,
            target,
            options,
            core,
            machine=machines[core],
            claim=lambda buffer, core=core: cores.claim(core, machines[core].memory, buffer),
        )
        for core in range(launch.cores)
    ]
    planes: dict[int, Any] = {}

    def run(core: int) -> Any:
        def place(buffer: Buffer, host: HostArray) -> Storage:
            storage = machines[core].memory.adopt(buffer, host.array)
            storage.shadow = planes.setdefault(id(host), storage.shadow)
            return storage

        with np.errstate(all="ignore"):
            return trace_body(launch, tracers[core], arguments, place, keep=True)

    outcomes = _on_cores(cores, run, launch.cores)
    programs = [tracer.program for tracer in tracers]
    add_named_edges(programs, launch.schedule)
    check_writable(programs, arguments.arrays)
    write_inputs(programs, arguments.arrays, planes)
    findings += [finding for tracer in tracers for finding in tracer.findings]
    tree, storages = outcomes[0]
    result = deliver(tree, programs[0], storages, arguments.arrays)
    return result, _report(launch, target, options, programs, findings, "")


def _machines(
    count: int,
    target: Target,
    options: Options,
    findings: list[Finding],
    watch: Watch | None,
    programs: Sequence[Program] = (),
) -> tuple[list[Machine], Cores]:
    cores = Cores(count)
    kind: Callable[..., Machine] = Machine if watch is None else partial(WatchedMachine, watch)

    def machine(core: int) -> Machine:
        return kind(
            target,
            options,
            placed_memory(programs[core], target) if programs else Memory(target, precise_fp=options.precise_fp),
            findings.append,
            core,
            (lambda key, values, where: cores.meet(core, key, values, where)) if count > 1 else None,
        )

    return [machine(core) for core in range(count)], cores


def _on_cores(cores: Cores, run: Callable[[int], Any], count: int) -> list[Any]:
    """A single core runs in the caller's thread, so that a debugger needs nothing special."""
    if count == 1:
        return [run(0)]
    return cores.run([lambda core=core: run(core) for core in range(count)])  # type: ignore[misc]


def _report(
    launch: Launch, target: Target, options: Options, programs: Any, findings: list[Finding], kernel_hash: str
) -> Report:
    for finding in findings:
        warnings.warn(NkiWarning(finding), stacklevel=4)
    return Report(
        launch.name,
        target.name,
        "eager" if launch.eager else "compiled",
        launch.cores,
        options.matmul,
        options.precise_fp,
        kernel_hash,
        tuple(findings),
        tuple(programs),
        launch.compile_config.statements() if launch.compile_config else (),
    )
