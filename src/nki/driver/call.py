"""ONE call of a kernel, top to bottom. Read this first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from nki.core.collector import paused_collector
from nki.core.tensor import Buffer, Storage
from nki.driver import gate
from nki.driver.compile import compiled
from nki.driver.compiled import Cache, Compiled
from nki.driver.execute import eager_machines, executed_by, on_cores, run_compiled
from nki.driver.launch import Launch, trace_body, tracer_of
from nki.driver.prepare import Prepared, prepare
from nki.frontend.host import HostArray
from nki.frontend.results import (
    Delivery,
    Writes,
    check_writable,
    deliver,
    returns_nothing,
    unwritten_outputs,
    write_inputs,
    writes_of,
    written_inputs,
)
from nki.options import Options
from nki.ranks.current import communicator
from nki.report import Executed, Report, warn
from nki.sim.cores import Cores
from nki.sim.watch import Watch
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.spec.schedule import add_named_edges
from nki.target.model import Target

_ARRAY = attrgetter("array")
"""The array of an argument, for `map`: a comprehension would be one more call."""


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
    prepared = prepare(launch, args, kwargs, options, cache=cache)
    if prepared.mode == "eager":
        return _run_eager(prepared, watch)
    return _run_compiled(prepared, compiled(prepared), watch)


def _run_compiled(prepared: Prepared, kernel: Compiled, watch: Watch | None) -> tuple[Any, Report]:
    arrays, setting, again = prepared.arguments.arrays, prepared.setting, kernel.again
    if kernel.written:
        check_writable(kernel.programs, arrays, kernel.written)
    findings = list(kernel.findings)
    inputs = list(map(_ARRAY, arrays))
    storages, executed = run_compiled(
        kernel, inputs, setting.target, setting.options, findings.append, watch, communicator()
    )
    if kernel.written:
        write_inputs(arrays, kernel.written)
    if again.delivery is None:
        again.delivery = Delivery(kernel.result, kernel.programs[0])
    result = again.delivery(storages, arrays)
    return result, _report_again(prepared, findings, kernel, executed)


def _report_again(prepared: Prepared, findings: list[Finding], kernel: Compiled, executed: Executed) -> Report:
    """The report of a call, which is that of the call before if nothing is said of this one alone."""
    again = kernel.again
    known = again.report
    if known is not None and again.setting is prepared.setting and known.executed is executed and not findings:
        return known
    made = _report(prepared, kernel.programs, findings, kernel, executed)
    if not findings:
        again.report, again.setting = made, prepared.setting
    return made


def _run_eager(prepared: Prepared, watch: Watch | None) -> tuple[Any, Report]:
    launch, target, options = prepared.launch, prepared.target, prepared.options
    arrays = prepared.arguments.arrays
    findings: list[Finding] = []
    cores = Cores(launch.cores)
    machines = eager_machines(cores, target, options, findings.append, watch, communicator())
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
            return trace_body(launch, tracers[core], prepared.arguments, place, keep=True)

    with paused_collector():
        outcomes = on_cores(cores, run)
    programs = [tracer.program for tracer in tracers]
    add_named_edges(programs, launch.schedule)
    writes = writes_of(programs)
    written = written_inputs(programs, writes)
    check_writable(programs, arrays, written)
    write_inputs(arrays, written, planes)
    findings += [finding for tracer in tracers for finding in tracer.findings]
    _look_through(prepared, programs, writes, findings)
    tree, storages = outcomes[0]
    result = deliver(tree, programs[0], storages, arrays)
    return result, _report(prepared, programs, findings, None, executed_by(machines))


def _look_through(prepared: Prepared, programs: list[Program], writes: Writes, findings: list[Finding]) -> None:
    """Add what programs as a whole do wrong, which no instruction by itself shows."""
    launch, target, options = prepared.launch, prepared.target, prepared.options
    findings += unwritten_outputs(programs, writes, options.disabled_rules)
    findings += returns_nothing(programs, writes, "warning", options.disabled_rules)
    findings += _capacity(launch, programs, target, options, findings)
    findings += gate.mistakes(programs, target, options)


def _capacity(
    launch: Launch, programs: Sequence[Program], target: Target, options: Options, findings: Sequence[Finding]
) -> list[Finding]:
    """What a call of the same kernel is refused for; one tensor that has no place at all was told before."""
    if {"memory.capacity", "tensor.capacity"} & {*options.disabled_rules, *(finding.code for finding in findings)}:
        return []
    return gate.capacity_findings(programs, target, options, launch.config)


def _report(
    prepared: Prepared,
    programs: Sequence[Program],
    findings: list[Finding],
    kernel: Compiled | None,
    executed: Executed,
) -> Report:
    for finding in findings:
        warn(finding)
    launch, setting = prepared.launch, prepared.setting
    return Report(
        kernel=launch.name,
        target=setting.target.name,
        mode=prepared.mode,
        cores=launch.cores,
        matmul=setting.options.matmul,
        precise_fp=setting.options.precise_fp,
        kernel_hash=kernel.kernel_hash if kernel else "",
        findings=(*setting.findings, *findings),
        programs=tuple(programs),
        statements=launch.compile_config.statements() if launch.compile_config else (),
        compiled=kernel.origin if kernel else "",
        doubt=kernel.doubt if kernel else "",
        executed=executed,
        imitate=setting.options.imitate,
        kept_loads=kernel.kept_loads if kernel else (),
    )
