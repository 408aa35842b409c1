"""ONE call of a kernel, top to bottom. Read this first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nki.compiler import CompileConfig
from nki.core.collector import paused_collector
from nki.core.tensor import Buffer, Storage
from nki.driver import gate
from nki.driver.compile import Cache, Compiled, compile_kernel
from nki.driver.execute import eager_machines, executed_by, on_cores, run_compiled
from nki.driver.launch import (
    Launch,
    bound_arguments,
    check_lnc,
    launch_options,
    trace_body,
    trace_only,
    tracer_of,
)
from nki.frontend.check.language_check import check_function, raise_errors
from nki.frontend.host import HostArray
from nki.frontend.results import (
    check_writable,
    deliver,
    returns_nothing,
    unwritten_outputs,
    write_inputs,
    writes_of,
    written_inputs,
)
from nki.frontend.values import Arguments
from nki.options import Options, from_environment
from nki.ranks.current import communicator
from nki.ranks.protocol import Communicator
from nki.report import Executed, Report, warn
from nki.sim.cores import Cores
from nki.sim.watch import Watch
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
        return _run_eager(replace(launch, eager=True), arguments, target, options, watch, communicator(), noted)
    compiled = compile_kernel(launch, arguments, target, options, cache)
    return _run_compiled(launch, compiled, arguments, target, options, watch, communicator(), noted)


def _run_compiled(
    launch: Launch,
    compiled: Compiled,
    arguments: Arguments,
    target: Target,
    options: Options,
    watch: Watch | None,
    ranks: Communicator,
    noted: list[Finding],
) -> tuple[Any, Report]:
    check_writable(compiled.programs, arguments.arrays, compiled.written)
    findings = list(compiled.findings)
    inputs = [host.array for host in arguments.arrays]
    storages, executed = run_compiled(compiled, inputs, target, options, findings.append, watch, ranks)
    write_inputs(arguments.arrays, compiled.written)
    result = deliver(compiled.result, compiled.programs[0], storages, arguments.arrays)
    return result, _report(launch, target, options, compiled.programs, noted, findings, compiled, executed)


def _run_eager(
    launch: Launch,
    arguments: Arguments,
    target: Target,
    options: Options,
    watch: Watch | None,
    ranks: Communicator,
    noted: list[Finding],
) -> tuple[Any, Report]:
    findings: list[Finding] = []
    cores = Cores(launch.cores)
    machines = eager_machines(cores, target, options, findings.append, watch, ranks)
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

    with paused_collector():
        outcomes = on_cores(cores, run)
    programs = [tracer.program for tracer in tracers]
    add_named_edges(programs, launch.schedule)
    writes = writes_of(programs)
    written = written_inputs(programs, writes)
    check_writable(programs, arguments.arrays, written)
    write_inputs(arguments.arrays, written, planes)
    findings += [finding for tracer in tracers for finding in tracer.findings]
    findings += unwritten_outputs(programs, writes, options.disabled_rules)
    findings += returns_nothing(programs, writes, "warning", options.disabled_rules)
    findings += _capacity(launch, programs, target, options, findings)
    findings += gate.mistakes(programs, target, options)
    tree, storages = outcomes[0]
    result = deliver(tree, programs[0], storages, arguments.arrays)
    return result, _report(launch, target, options, programs, noted, findings, None, executed_by(machines))


def _capacity(
    launch: Launch, programs: Sequence[Program], target: Target, options: Options, findings: Sequence[Finding]
) -> list[Finding]:
    """What a call of the same kernel is refused for; one tensor that has no place at all was told before."""
    if {"memory.capacity", "tensor.capacity"} & {*options.disabled_rules, *(finding.code for finding in findings)}:
        return []
    return gate.capacity_findings(programs, target, options, launch.compile_config or CompileConfig())


def _report(
    launch: Launch,
    target: Target,
    options: Options,
    programs: Sequence[Program],
    noted: list[Finding],
    findings: list[Finding],
    compiled: Compiled | None,
    executed: Executed,
) -> Report:
    for finding in findings:
        warn(finding)
    return Report(
        launch.name,
        target.name,
        "eager" if launch.eager else "compiled",
        launch.cores,
        options.matmul,
        options.precise_fp,
        compiled.kernel_hash if compiled else "",
        (*noted, *findings),
        tuple(programs),
        launch.compile_config.statements() if launch.compile_config else (),
        compiled.origin if compiled else "",
        compiled.doubt if compiled else "",
        executed,
    )
