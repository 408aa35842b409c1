"""From a launch to compiled programs: traced and compiled, or remembered from before, here or on disk."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nki.compiler import CompileConfig
from nki.core.collector import paused_collector
from nki.core.errors import NkiError
from nki.core.locks import lock
from nki.core.tensor import Storage
from nki.driver import gate
from nki.driver.launch import Launch, trace_body, tracer_of
from nki.frontend.dependencies.arguments import Described, describe
from nki.frontend.dependencies.manifest import Manifest, manifest_of
from nki.frontend.results import returns_nothing, unwritten_outputs, writes_of, written_inputs
from nki.frontend.trace import Tracer
from nki.frontend.values import Arguments
from nki.options import Options
from nki.spec.program import Program
from nki.spec.rule import Finding
from nki.spec.schedule import add_named_edges
from nki.store.keys import key_of
from nki.store.outline import outlined, outlines
from nki.store.payload import Traced, pack, result_of, unpack
from nki.store.settings import settings
from nki.target.model import Target

if TYPE_CHECKING:
    from nki.native.run.kernel import NativeKernel


_USES = itertools.count()


class Kept:
    """Native code of a kernel, made when it is first run.

    Attributes:
        used: grows with every use in the process; the least one was not used for longest.
    """

    __slots__ = ("_lock", "_made", "_native", "used")

    def __init__(self) -> None:
        self.used = next(_USES)
        self._lock = lock()
        self._made = False
        self._native: NativeKernel | None = None

    def native(self, make: Callable[[], NativeKernel | None]) -> NativeKernel | None:
        """The native code, if there is any; `make` is called once."""
        with self._lock:
            if not self._made:
                self._native, self._made = make(), True
            return self._native


@dataclass(frozen=True, slots=True)
class Compiled:
    """Verified programs, one per core, read back from IR, with the tree of results and what was found.

    Attributes:
        written: positions of the inputs that some core writes to.
        kept: what its calls have in common.
        origin: "compiled" in this call, from "memory" or from "disk".
        doubt: why the next call has to trace the kernel anew; empty if it need not.
        artifact: the key of its programs on disk; empty if they are not there.
    """

    programs: tuple[Program, ...]
    result: Any
    findings: tuple[Finding, ...]
    kernel_hash: str
    written: frozenset[int]
    kept: Kept
    origin: str = "compiled"
    doubt: str = ""
    artifact: str = ""


Cache = dict[Any, tuple[Manifest, Compiled]]
"""By target, options and arguments; kernels that are traced in every call by what the trace gives."""
_TRACED = "traced"
_MOST_KEPT = 256
"""Programs of a kernel that are kept in memory, with their native code, the least recently used ones removed first."""
_MOST_TRACED = 8


def compile_kernel(launch: Launch, arguments: Arguments, target: Target, options: Options, cache: Cache) -> Compiled:
    """Trace once per core, verify, compile, build IR and read it back.

    Remembered by shapes, dtypes and constants, here and on disk, while everything that the kernel can read is the same.
    Where that cannot be told, the kernel is traced in every call, and compiled if it gives other programs.
    """
    key = (target.name, launch.lnc, launch.schedule, options, arguments.key())
    kept = cache.get(key)
    if kept is not None and arguments.plain and kept[0].untouched():
        kept[1].kept.used = next(_USES)
        return kept[1]
    described = describe(arguments.bound)
    if kept is not None:
        now = kept[0].renewed(described.references)
        if now.digest == kept[0].digest:
            kept[1].kept.used = next(_USES)
            cache[key] = (now, kept[1])
            return kept[1]
        del cache[key]
    else:
        now = manifest_of(launch.function, described.references)
    disk = _disk_key(launch, arguments, described, now, target, options)
    compiled = _from_disk(disk, target, options) or _compile(launch, arguments, target, options, now, disk, cache)
    if not compiled.doubt:
        _remember(cache, key, (now, replace(compiled, origin="memory")))
    return compiled


def _remember(cache: Cache, key: Any, entry: tuple[Manifest, Compiled]) -> None:
    """Keep a program in memory; a number that is another one in every call must not fill it."""
    cache[key] = entry
    over = len(cache) - _MOST_KEPT
    for oldest in sorted(list(cache), key=lambda each: _use_of(cache, each))[:over] if over > 0 else ():
        cache.pop(oldest, None)


def _use_of(cache: Cache, key: Any) -> int:
    found = cache.get(key)  # another thread may have removed it
    return -1 if found is None else found[1].kept.used


def _compile(
    launch: Launch, arguments: Arguments, target: Target, options: Options, manifest: Manifest, disk: str, cache: Cache
) -> Compiled:
    tracers = [tracer_of(launch, target, options, core) for core in range(launch.cores)]
    with paused_collector():
        results = [trace_body(launch, tracer, arguments, lambda buffer, _: Storage(buffer)) for tracer in tracers]
        add_named_edges([tracer.program for tracer in tracers], launch.schedule)
        doubt = _doubt(manifest, tracers)
        programs = [tracer.program for tracer in tracers]
        config = launch.compile_config or CompileConfig()
        traced = (_TRACED, target.name, launch.schedule, options, config, gate.digest_of(programs)) if doubt else None
        known = cache.get(traced)
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
    compiled = Compiled(built.programs, results[0], findings, built.kernel_hash, written, Kept(), doubt=doubt)
    if disk and not doubt:
        compiled = replace(compiled, artifact=_keep_on_disk(compiled, disk))
    if traced is not None:
        _keep_traced(cache, traced, (manifest, compiled))
    return compiled


def _doubt(manifest: Manifest, tracers: list[Tracer]) -> str:
    """Why these traces must not be remembered; empty if they may."""
    reasons = [reason for tracer in tracers for reason in tracer.doubts]
    return (
        reasons[0] if reasons else manifest.doubt_after(code for tracer in tracers for code in tracer.locator.codes())
    )


def _keep_on_disk(compiled: Compiled, key: str) -> str:
    """Have other processes find a compiled kernel; returns the key of its programs, empty if they are not kept."""
    store = settings().cache()
    if store is None:
        return ""
    streams = gate.pack_programs(compiled.programs)
    artifact = key_of("artifact", streams=streams)
    entry = pack(
        Traced(
            artifact,
            compiled.kernel_hash,
            compiled.result,
            compiled.findings,
            compiled.written,
            outlines(compiled.programs),
        )
    )
    if entry is None or not store.put(artifact, streams):
        return ""
    store.put(key, entry)
    return artifact


def _keep_traced(cache: Cache, key: Any, entry: tuple[Manifest, Compiled]) -> None:
    """Keep a kernel that is traced in every call under what the trace gave, and few of those that differ.

    Other threads may call the kernel meanwhile.
    """
    others = [known for known in list(cache) if known[0] == _TRACED]
    for oldest in others[: max(0, len(others) + 1 - _MOST_TRACED)]:
        cache.pop(oldest, None)
    cache[key] = entry


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
    streams = store.get(traced.artifact) if store is not None and traced is not None else None
    if traced is None or streams is None:
        return None
    own = key_of("artifact", streams=streams) == traced.artifact  # kept under the digest of what was written

    def load() -> tuple[Program, ...]:
        with paused_collector():
            return gate.unpack_programs(streams, target, options.disabled_rules, own)

    try:
        programs = outlined(traced.outlines, load) if own and traced.outlines else load()
        result = result_of(traced.result, programs[0].outputs)
    except (NkiError, ValueError, KeyError, TypeError, IndexError):
        return None
    artifact = traced.artifact if own else ""
    return Compiled(
        programs,
        result,
        traced.findings,
        traced.kernel_hash,
        traced.written,
        Kept(),
        "disk",
        artifact=artifact,
    )
