"""ONE call of a kernel, top to bottom. Read this first."""

from __future__ import annotations

import gc
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nki import gate
from nki.compiler import CompileConfig, SpecializationConfig
from nki.core.errors import LaunchError, NkiError
from nki.core.source import of_function
from nki.core.tensor import Buffer, Storage
from nki.frontend.check import check_function, raise_errors
from nki.frontend.host import HostArray
from nki.frontend.manifest import Manifest, manifest_of
from nki.frontend.manifest_arguments import Described, describe
from nki.frontend.results import check_writable, deliver, write_inputs
from nki.frontend.trace import Tracer, attach
from nki.frontend.values import Arguments, bind
from nki.options import Options, from_environment
from nki.report import NkiWarning, Report
from nki.sim.cores import Cores
from nki.sim.machine import Machine
from nki.sim.memory import Memory
from nki.sim.walk import run_program
from nki.sim.watch import Watch, WatchedMachine
from nki.spec.program import Placement, Program
from nki.spec.rule import Finding
from nki.spec.schedule import NamedEdge, add_named_edges
from nki.store.keys import key_of
from nki.store.payload import Traced, pack, result_of, unpack
from nki.store.settings import settings
from nki.target.load import DEFAULT_TARGET, load_target
from nki.target.model import Target


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and how to run it.

    Attributes:
        function: the undecorated Python function.
        lnc: logical core count of ``kernel[lnc]``; None if no grid was given.
        eager: run instruction by instruction while the Python body runs.
        target: target of the decorator; the environment overrides it.
        api: NKI version of the decorator, which overrides the environment.
        compile_config, specialization_config: settings of the decorator; None if it has none.
        schedule: edges of ``kernel.with_schedule``, by name: (producer, consumer).
    """

    function: Callable[..., Any]
    lnc: int | None = None
    eager: bool = False
    target: str = ""
    api: str = ""
    compile_config: CompileConfig | None = None
    specialization_config: SpecializationConfig | None = None
    schedule: tuple[NamedEdge, ...] = ()

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def cores(self) -> int:
        return self.lnc or 1


@dataclass(frozen=True, slots=True)
class Compiled:
    """Verified programs, one per core, read back from IR, with the tree of results and what was found.

    Attributes:
        origin: "compiled" in this call, from "memory" or from "disk".
        doubt: why the next call must not use it again; empty if it may.
    """

    programs: tuple[Program, ...]
    result: Any
    findings: tuple[Finding, ...]
    kernel_hash: str
    origin: str = "compiled"
    doubt: str = ""


Cache = dict[Any, tuple[Manifest, Compiled]]


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
    _check_lnc(launch, target)
    noted = raise_errors(check_function(launch.function), options.disabled_rules)
    arguments = _arguments(launch, args, kwargs)
    if launch.eager or options.simulator:
        result, report = _run_eager(replace(launch, eager=True), arguments, target, options, watch)
    else:
        compiled = compile_kernel(launch, arguments, target, options, cache)
        result, report = _run_compiled(launch, compiled, arguments, target, options, watch)
        report = replace(report, compiled=compiled.origin, doubt=compiled.doubt)
    return result, replace(report, findings=(*noted, *report.findings))


def launch_options(launch: Launch, options: Options) -> Options:
    """The options of a call: what the kernel says about itself comes before what the environment says about all."""
    return replace(options, api=launch.api) if launch.api else options


def compile_kernel(launch: Launch, arguments: Arguments, target: Target, options: Options, cache: Cache) -> Compiled:
    """Trace once per core, verify, compile, build IR and read it back.

    Remembered by shapes, dtypes and constants, here and on disk, while everything that the kernel can read is the same.
    """
    key = (target.name, launch.lnc, launch.schedule, options, arguments.key())
    described = describe(arguments.bound)
    kept = cache.get(key)
    if kept is not None:
        now = kept[0].renewed(described.references)
        if now.digest == kept[0].digest:
            cache[key] = (now, kept[1])
            return replace(kept[1], origin="memory")
        del cache[key]
    else:
        now = manifest_of(launch.function, described.references)
    disk = _disk_key(launch, arguments, described, now, target, options)
    compiled = _from_disk(disk, target, options) or _compile(launch, arguments, target, options, now, disk)
    if not compiled.doubt:
        cache[key] = (now, compiled)
    return compiled


def _compile(
    launch: Launch, arguments: Arguments, target: Target, options: Options, manifest: Manifest, disk: str
) -> Compiled:
    tracers = [_tracer(launch, target, options, core) for core in range(launch.cores)]
    with paused_collector():
        results = [_trace(launch, tracer, arguments, lambda buffer, _: Storage(buffer)) for tracer in tracers]
        add_named_edges([tracer.program for tracer in tracers], launch.schedule)
        doubt = manifest.doubt_after(code for tracer in tracers for code in tracer.locator.codes())
        built = gate.compile_kernel(
            [tracer.program for tracer in tracers], target, options, launch.compile_config or CompileConfig()
        )
    findings = (*(finding for tracer in tracers for finding in tracer.findings), *built.notes)
    store = settings().cache()
    if store is not None and disk and not doubt:
        artifact = key_of("artifact", ir=built.ir)
        entry = pack(Traced(artifact, built.kernel_hash, results[0], findings))
        if entry is not None and store.put(artifact, built.ir):
            store.put(disk, entry)
    return Compiled(built.programs, results[0], findings, built.kernel_hash, doubt=doubt)


def _disk_key(
    launch: Launch, arguments: Arguments, described: Described, manifest: Manifest, target: Target, options: Options
) -> str:
    """The key on disk; empty if something has no value to compare, or if the passes are to be watched."""
    if not manifest.digest or options.dump_ir or options.print_after:
        return ""
    return key_of(
        "trace",
        kernel=manifest.digest,
        name=launch.name,
        arguments=described.outline,
        arrays=[(array.array.shape, str(array.dtype)) for array in arguments.arrays],
        target=target.name,
        lnc=launch.lnc,
        schedule=launch.schedule,
        config=launch.compile_config,
        specialization=launch.specialization_config,
        options=options,
    )


def _from_disk(key: str, target: Target, options: Options) -> Compiled | None:
    """What was compiled before, perhaps by another process; None if there is none or it is damaged."""
    store = settings().cache()
    entry = store.get(key) if store is not None and key else None
    traced = unpack(entry) if entry is not None else None
    ir = store.get(traced.artifact) if store is not None and traced is not None else None
    if traced is None or ir is None:
        return None
    try:
        programs = gate.load_kernel(ir, target, options)
    except NkiError:
        return None
    result = result_of(traced.result, programs[0].outputs)
    return Compiled(programs, result, traced.findings, traced.kernel_hash, "disk")


def trace_only(
    launch: Launch,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    target: Target,
    options: Options,
    *,
    collect: bool = True,
) -> list[Tracer]:
    """Trace and verify every core without running; with `collect`, broken rules are kept instead of raised."""
    _check_lnc(launch, target)
    options = launch_options(launch, options)
    arguments = _arguments(launch, args, kwargs)
    tracers = [_tracer(launch, target, options, core, collect=collect) for core in range(launch.cores)]
    with paused_collector():
        try:
            for tracer in tracers:
                _trace(launch, tracer, arguments, lambda buffer, _: Storage(buffer))
            add_named_edges([tracer.program for tracer in tracers], launch.schedule)
        except NkiError as error:
            error.found = tuple(finding for tracer in tracers for finding in tracer.findings)
            raise
    return tracers


def _run_compiled(
    launch: Launch, compiled: Compiled, arguments: Arguments, target: Target, options: Options, watch: Watch | None
) -> tuple[Any, Report]:
    check_writable(compiled.programs, arguments.arrays)
    findings = list(compiled.findings)
    placements = [program.placement for program in compiled.programs]
    machines, cores = _machines(launch.cores, target, replace(options, precise_fp=True), findings, watch, placements)

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
        _tracer(
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
            return _trace(launch, tracers[core], arguments, place, keep=True)

    outcomes = _on_cores(cores, run, launch.cores)
    programs = [tracer.program for tracer in tracers]
    add_named_edges(programs, launch.schedule)
    check_writable(programs, arguments.arrays)
    write_inputs(programs, arguments.arrays, planes)
    findings += [finding for tracer in tracers for finding in tracer.findings]
    tree, storages = outcomes[0]
    result = deliver(tree, programs[0], storages, arguments.arrays)
    return result, _report(launch, target, options, programs, findings, "")


def _trace(
    launch: Launch,
    tracer: Tracer,
    arguments: Arguments,
    place: Callable[[Buffer, HostArray], Storage],
    keep: bool = False,
) -> Any:
    """Run the body with tensors for the arrays; returns the tree of output views (and, kept, their storages)."""

    def make(host: HostArray, name: str) -> Any:
        return tracer.input(host.array.shape, host.dtype, name, lambda buffer: place(buffer, host))

    tracer.program.location = of_function(launch.function.__code__)
    args, kwargs = arguments.build(make)
    try:
        result = tracer.run(launch.function, args, kwargs)
        tree = tracer.finish(result)
    except NkiError as error:
        attach(error, of_function(launch.function.__code__))
        raise
    return (tree, tracer.output_storages(result)) if keep else tree


def _tracer(launch: Launch, target: Target, options: Options, core: int, **more: Any) -> Tracer:
    tracer = Tracer(launch.name, target, options, core=core, cores=launch.cores, grid=launch.lnc is not None, **more)
    tracer.config = launch.compile_config or CompileConfig()
    tracer.config_override = bool(
        launch.specialization_config and launch.specialization_config.allow_nested_config_override
    )
    return tracer


def _machines(
    count: int,
    target: Target,
    options: Options,
    findings: list[Finding],
    watch: Watch | None,
    placements: Sequence[Placement | None] = (None, None),
) -> tuple[list[Machine], Cores]:
    cores = Cores(count)
    kind: Callable[..., Machine] = Machine if watch is None else partial(WatchedMachine, watch)

    def machine(core: int) -> Machine:
        return kind(
            target,
            options,
            Memory(target, precise_fp=options.precise_fp, placement=placements[core]),
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


def _arguments(launch: Launch, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    try:
        bound = bind(launch.function, args, kwargs, launch.name)
        return Arguments(bound, inspect.signature(launch.function).parameters)
    except NkiError as error:
        attach(error, of_function(launch.function.__code__))
        raise


@contextmanager
def paused_collector() -> Iterator[None]:
    """A trace makes many small objects that all stay: looking for garbage among them only costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_lnc(launch: Launch, target: Target) -> None:
    if launch.cores not in target.lnc:
        raise LaunchError(
            "launch.lnc",
            f"{launch.name}[{launch.lnc}] asks for {launch.cores} cores",
            rule=f"{target.name} runs a kernel on {' or '.join(str(n) for n in target.lnc)} "
            f"core{'' if target.lnc == (1,) else 's'}",
            source="nki/get-started/about/lnc.rst",
            fix=f"launch it as {launch.name}[{target.lnc[-1]}](...)",
        )


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
