"""One kernel for each distinct group: traced, compiled, verified, and remembered by what the group says."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nki.compiler import CompileConfig
from nki.core.collector import paused_collector
from nki.core.dtypes import DType, bool_, uint8
from nki.core.errors import (
    ArgumentError,
    DtypeError,
    FrontendError,
    NkiError,
    TensorError,
    VerificationError,
)
from nki.core.locks import lock
from nki.core.source import UNKNOWN, Location, is_own
from nki.core.tensor import Storage
from nki.driver import gate
from nki.frontend.trace import Tracer
from nki.graph.errors import GraphError, guarded, internal
from nki.graph.ir import Group, TensorType
from nki.graph.passes.fingerprint import group_name
from nki.graph.sharing import may_share
from nki.options import Options
from nki.spec.program import Program
from nki.store.keys import key_of
from nki.store.programs import pack_programs, unpack_programs
from nki.store.settings import settings
from nki.target.model import Target

KernelFunction = Callable[..., None]
"""Takes the tensors of a group's inputs, then those of its outputs, which it writes."""

Emitter = Callable[[Group, Target], KernelFunction]


@dataclass(frozen=True, slots=True)
class GroupKernel:
    """A compiled kernel, which all groups that say the same share.

    Attributes:
        key: of what the group says, the target and the options.
        name: for people.
        program: its arguments are the group's inputs, then its outputs.
        origin: "compiled", or from "memory" or "disk".
    """

    key: str
    name: str
    program: Program
    origin: str = "compiled"


class Kernels:
    """Kernels of groups for one target, `target`, in memory and on disk; used by several threads."""

    def __init__(self, emitters: Mapping[str, Emitter], target: Target, options: Options) -> None:
        self._emitters = emitters
        self.target = target
        self._options = options

    def of(self, group: Group) -> GroupKernel:
        """The kernel of a group.

        Raises:
            GraphError: "graph.unsupported" from the emitter, or "graph.internal", at the model's line.
            NkiError: what the trace and the passes raise, at the model's line where they know no other.
        """
        key = key_of("group", name=group_name(group), target=self.target.name, options=self._options)
        with _LOCK:
            known = _KNOWN.get(key)
        if known is not None:
            return GroupKernel(key, known.name, known, "memory")
        program, origin = self._from_disk(key), "disk"
        if program is None:
            program, origin = self._compile(group, key), "compiled"
        with _LOCK:
            while len(_KNOWN) >= _MOST_KNOWN:
                del _KNOWN[next(iter(_KNOWN))]
            program = _KNOWN.setdefault(key, program)
        return GroupKernel(key, program.name, program, origin)

    def made(self, name: str, function: KernelFunction, types: Sequence[TensorType], where: Location) -> Program:
        """A kernel from its function, compiled; it is not remembered.

        Args:
            types: of its arguments.
            where: the model's line, for errors.
        """
        return compile_function(name, function, types, where, self.target, self._options)[0]

    def made_for(
        self, cores: int, name: str, function: KernelFunction, types: Sequence[TensorType]
    ) -> tuple[Program, ...]:
        """A kernel for several cores, compiled."""
        return compile_function(name, function, types, UNKNOWN, self.target, self._options, cores)

    def may_share(self, program: Program, inputs: int) -> tuple[tuple[int, int], ...]:
        """Pairs (result, operand) that may be one tensor, see `nki.graph.sharing.may_share`."""
        return may_share(program, inputs, self.target)

    def _compile(self, group: Group, key: str) -> Program:
        names = ", ".join(dict.fromkeys(op.name for op in group.ops))
        types = [value.type for value in (*group.inputs, *group.outputs)]
        try:
            with guarded(f"the kernel for {names}", group.location):
                function = self._emitters[group.kind](group, self.target)
                program = self.made(f"{group.kind}_{key[:8]}", function, types, group.location)
        except _OF_KERNELS as error:
            raise _refused(error, names, group) from error
        store = settings().cache()
        if store is not None:
            store.put(key, pack_programs([program]))
        return program

    def _from_disk(self, key: str) -> Program | None:
        store = settings().cache()
        data = store.get(key) if store is not None else None
        if data is None:
            return None
        try:
            return unpack_programs(data, self.target, self._options.disabled_rules)[0]
        except NkiError:  # another process wrote it, or the disk lost a part: it is compiled again
            return None


_OF_KERNELS = (ArgumentError, DtypeError, FrontendError, TensorError, VerificationError)
"""What is wrong with a kernel; that of a group has no other author than this package."""


def _refused(error: NkiError, names: str, group: Group) -> GraphError:
    """The error for a group whose kernel is not valid, or has no room on the chip, at the model's line."""
    where = error.location if set(group.location.frames) <= set(error.location.frames) else group.location
    if error.code not in ("tensor.capacity", "memory.capacity"):
        return internal(error, f"the kernel for {names}", where)
    return GraphError(
        "graph.unsupported",
        f"the kernel for {names} has no room on the chip: {error.message}",
        rule="what a kernel works on at a time fits on the chip",
        fix='make the tensors smaller, or compute this with fallback="host"',
        location=where,
    )


_EMITTERS = str(Path(__file__).absolute().parent / "emit") + os.sep
_LOCK = lock()
_KNOWN: dict[str, Program] = {}
"""Compiled groups by what they are compiled from, for all models of the process; the oldest goes at `_MOST_KNOWN`."""

_MOST_KNOWN = 4096


def compile_function(
    name: str,
    function: KernelFunction,
    types: Sequence[TensorType],
    where: Location,
    target: Target,
    options: Options,
    cores: int = 1,
) -> tuple[Program, ...]:
    """Trace a function of HBM tensors for shapes and dtypes alone, and compile it; a program for each core."""
    tracers = [Tracer(name, target, options, core=core, cores=cores, grid=cores > 1) for core in range(cores)]
    try:
        with paused_collector():
            for tracer in tracers:
                tracer.locator.show(_EMITTERS)
                tracer.program.location = Location(where.frames)
                arguments = [
                    tracer.input(*tensor_of(kind), f"{name}_{number}", Storage) for number, kind in enumerate(types)
                ]
                tracer.run(function, arguments, {})
                tracer.finish(None)
            traced = [tracer.program for tracer in tracers]
            return gate.compile_kernel(traced, target, options, CompileConfig()).programs
    except NkiError as error:
        if not set(where.frames) <= set(error.location.frames):
            error.location = joined(error.location, where)
        raise


def joined(inner: Location, outer: Location) -> Location:
    """A kernel's line and the model's line that needs it: the model's comes first if the kernel is of this package."""
    own = tuple([frame for frame in inner.frames if is_own(frame)])
    return Location((*[frame for frame in inner.frames if not is_own(frame)], *outer.frames, *own))


def tensor_of(kind: TensorType) -> tuple[tuple[int, ...], DType]:
    """Shape and dtype of the device tensor of a value: scalars have one element, truth values are bytes of 0 or 1."""
    return kind.shape or (1,), uint8 if kind.dtype == bool_ else kind.dtype
