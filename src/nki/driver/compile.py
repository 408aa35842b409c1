"""From a launch to compiled programs: traced and compiled, or remembered from before, here or on disk."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from nki.core.collector import paused_collector
from nki.core.errors import NkiError
from nki.core.one_maker import OneMaker
from nki.core.tensor import Storage
from nki.driver import gate
from nki.driver.compiled import TRACED, Compiled, Kept, keep_traced, remember
from nki.driver.launch import trace_body, tracer_of
from nki.driver.prepare import Prepared
from nki.frontend.dependencies.arguments import Described, describe
from nki.frontend.dependencies.manifest import Manifest, manifest_of
from nki.frontend.results import returns_nothing, unwritten_outputs, writes_of, written_inputs
from nki.frontend.trace import Tracer
from nki.options import Options
from nki.spec.program import Program
from nki.spec.schedule import add_named_edges
from nki.store.keys import key_of
from nki.store.outline import outlined, outlines
from nki.store.payload import Traced, pack, result_of, unpack
from nki.store.settings import settings
from nki.target.model import Target


def compiled(prepared: Prepared) -> Compiled:
    """Trace once per core, verify, compile, build IR and read it back.

    Remembered by shapes, dtypes and constants, here and on disk, while everything that the kernel can read is the same.
    Where that cannot be told, the kernel is traced in every call, and compiled if it gives other programs. Of threads
    that call a new kernel, as ranks do, one compiles it.
    """
    _, setting, arguments, _, cache = prepared
    key = (setting, arguments.key())
    known = cache.get(key)
    if known is not None and arguments.plain and known[0].untouched(setting.language):
        known[1].kept.use()
        return known[1]
    return _COMPILING.make((id(cache), key), partial(_made, prepared, key), share_errors=arguments.plain)


_COMPILING = OneMaker()


def _made(prepared: Prepared, key: tuple[Any, ...]) -> Compiled:
    """A kernel of which it is not obvious that it is remembered."""
    launch, setting, arguments, _, cache = prepared
    language = setting.language
    known = cache.get(key)
    described = describe(arguments.bound)
    references = (*language, *described.references)
    if known is not None:
        now = known[0].renewed(references)
        if now.digest == known[0].digest:
            known[1].kept.use()
            cache[key] = (now, known[1])
            return known[1]
        del cache[key]
    else:
        now = manifest_of(launch.function, references)
    disk = _disk_key(prepared, described, now)
    made = _from_disk(disk, prepared.target, prepared.options) or _compile(prepared, now, disk)
    if not made.doubt:
        remember(cache, key, (now, replace(made, origin="memory")))
    return made


def traced(prepared: Prepared) -> tuple[list[Tracer], list[Any]]:
    """Run the kernel's Python once per core without computing anything: the tracers, and the results of each core.

    Raises:
        NkiError: what the kernel's author did wrong.
    """
    launch, target, options = prepared.launch, prepared.target, prepared.options
    tracers = [tracer_of(launch, target, options, core) for core in range(launch.cores)]
    with paused_collector():
        results = [
            trace_body(launch, tracer, prepared.arguments, lambda buffer, _: Storage(buffer)) for tracer in tracers
        ]
        add_named_edges([tracer.program for tracer in tracers], launch.schedule)
    return tracers, results


def _compile(prepared: Prepared, manifest: Manifest, disk: str) -> Compiled:
    launch, target, options, cache = prepared.launch, prepared.target, prepared.options, prepared.cache
    tracers, results = traced(prepared)
    with paused_collector():
        doubt = _doubt(manifest, tracers)
        programs = [tracer.program for tracer in tracers]
        config = launch.config
        key = (TRACED, target.name, launch.schedule, options, config, gate.digest_of(programs)) if doubt else None
        known = cache.get(key)
        if known is not None and not (options.dump_ir or options.print_after):
            return replace(known[1], result=results[0], origin="memory")
        built = gate.compile_kernel(programs, target, options, config)
    writes = writes_of(built.programs)
    findings = (
        *(finding for tracer in tracers for finding in tracer.findings),
        *unwritten_outputs(built.programs, writes, options.disabled_rules),
        *returns_nothing(built.programs, writes, "warning", options.disabled_rules),
        *built.notes,
        *gate.mistakes(programs, target, options),
    )
    written = written_inputs(built.programs, writes)
    made = Compiled(
        programs=built.programs,
        result=results[0],
        findings=findings,
        kernel_hash=built.kernel_hash,
        written=written,
        kept=Kept(),
        doubt=doubt,
        kept_loads=built.kept,
    )
    if disk and not doubt:
        made = replace(made, artifact=_keep_on_disk(made, disk))
    if key is not None:
        keep_traced(cache, key, (manifest, made))
    return made


def _doubt(manifest: Manifest, tracers: list[Tracer]) -> str:
    """Why these traces must not be remembered; empty if they may."""
    reasons = [reason for tracer in tracers for reason in tracer.doubts]
    return (
        reasons[0] if reasons else manifest.doubt_after(code for tracer in tracers for code in tracer.locator.codes())
    )


def _keep_on_disk(made: Compiled, key: str) -> str:
    """Have other processes find a compiled kernel; returns the key of its programs, empty if they are not kept."""
    store = settings().cache()
    if store is None:
        return ""
    streams = gate.pack_programs(made.programs)
    artifact = key_of("artifact", streams=streams)
    entry = pack(
        Traced(
            artifact,
            made.kernel_hash,
            made.result,
            made.findings,
            made.written,
            outlines(made.programs),
            made.kept_loads,
        )
    )
    if entry is None or not store.put(artifact, streams):
        return ""
    store.put(key, entry)
    return artifact


def _disk_key(prepared: Prepared, described: Described, manifest: Manifest) -> str:
    """The key on disk; empty if something has no value to compare, or if the passes are to be watched."""
    launch, options = prepared.launch, prepared.options
    if not manifest.digest or options.dump_ir or options.print_after:
        return ""
    return key_of(
        "trace",
        kernel=manifest.digest,
        name=launch.name,
        arguments=described.outline,
        arrays=[(array.array.shape, str(array.dtype)) for array in prepared.arguments.arrays],
        target=prepared.target.name,
        lnc=launch.lnc,
        schedule=launch.schedule,
        config=launch.config,
        specialization=launch.specialization_config,
        options=options,
    )


def _from_disk(key: str, target: Target, options: Options) -> Compiled | None:
    """What was compiled before, perhaps by another process; None if there is none or it is damaged."""
    store = settings().cache()
    entry = store.get(key) if store is not None and key else None
    found = unpack(entry) if entry is not None else None
    streams = store.get(found.artifact) if store is not None and found is not None else None
    if found is None or streams is None:
        return None
    own = key_of("artifact", streams=streams) == found.artifact  # kept under the digest of what was written

    def load() -> tuple[Program, ...]:
        with paused_collector():
            return gate.unpack_programs(streams, target, options.disabled_rules, own)

    try:
        programs = outlined(found.outlines, load) if own and found.outlines else load()
        result = result_of(found.result, programs[0].outputs)
    except (NkiError, ValueError, KeyError, TypeError, IndexError):
        return None
    artifact = found.artifact if own else ""
    return Compiled(
        programs=programs,
        result=result,
        findings=found.findings,
        kernel_hash=found.kernel_hash,
        written=found.written,
        kept=Kept(),
        origin="disk",
        artifact=artifact,
        kept_loads=found.kept_loads,
    )
