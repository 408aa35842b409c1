"""The one way from the driver to passes, IR, streams and native code: loaded when they are needed, not before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nki.compiler import CompileConfig
from nki.core.visible import file_name, visible
from nki.options import Options
from nki.report import warn
from nki.sim.machine import Machine
from nki.spec.kept_load import KeptLoad
from nki.spec.program import Program
from nki.spec.rule import Finding, foretold
from nki.target.model import Target

if TYPE_CHECKING:
    from nki.native.run.kernel import NativeKernel
    from nki.passes.pipeline import Stage
    from nki.timing.core_time import CoreTime


class Built(NamedTuple):
    """A compiled kernel.

    Attributes:
        programs: one for each core, as read back from the IR.
        kernel_hash: of the IR; it depends on the instructions and not on where the source file lies, so that equal
            kernels have equal hashes in every process.
        notes: what the passes found.
        kept: loads that the passes left out, because what they bring was there.
    """

    programs: tuple[Program, ...]
    kernel_hash: str
    notes: tuple[Finding, ...]
    kept: tuple[KeptLoad, ...] = ()


def compile_kernel(programs: Sequence[Program], target: Target, options: Options, config: CompileConfig) -> Built:
    """Run the passes over traced programs, build IR, verify it, and read the programs back."""
    from nki.passes.context import Context
    from nki.passes.pipeline import compile_programs

    context = Context(target, options, config)
    compiled = compile_programs(programs, context, after=_stage_writer(options, programs[0].name))
    built = through_ir(compiled.programs, target, options.disabled_rules)
    return built._replace(notes=compiled.findings, kept=compiled.kept)


class Asked(NamedTuple):
    """Programs whose time is asked for, after the passes that decide which instructions run.

    Attributes:
        programs: one for each core.
        after: sees the program after every pass; None if nobody wants to.
    """

    programs: tuple[Program, ...]
    after: Callable[[Stage], None] | None


def asked(programs: Sequence[Program], target: Target, options: Options, config: CompileConfig) -> Asked:
    """Traced programs after the first passes, which cost little: enough for a bound of the time."""
    from nki.passes.context import Context
    from nki.passes.pipeline import WHAT_RUNS, compile_programs

    after = _stage_writer(options, programs[0].name)
    return Asked(compile_programs(programs, Context(target, options, config), WHAT_RUNS, after).programs, after)


def times_of(asked: Asked, target: Target, options: Options, config: CompileConfig) -> tuple[CoreTime, ...]:
    """What each core would take, compiled: the other passes, without proofs, IR and native code."""
    from nki.passes.context import Context
    from nki.passes.pipeline import time_programs

    return time_programs(asked.programs, Context(target, options, config), asked.after)


def capacity_findings(
    programs: Sequence[Program], target: Target, options: Options, config: CompileConfig
) -> list[Finding]:
    """A warning if a call would refuse traced programs because on-chip memory does not suffice, by the same rule."""
    from nki.passes.context import Context
    from nki.passes.lint.capacity import capacity_error

    error = capacity_error(programs, Context(target, options, config))
    return [] if error is None else [foretold(error)]


def mistakes(programs: Sequence[Program], target: Target, options: Options) -> list[Finding]:
    """What is probably not meant in traced programs, as `nki.passes.lint.mistakes` says."""
    from nki.passes.lint.mistakes import mistakes as found

    return found(programs, target, options.disabled_rules)


def through_ir(programs: Sequence[Program], target: Target, disabled_rules: frozenset[str] = frozenset()) -> Built:
    """Build IR, verify it, and read the programs back."""
    from nki.ir.build import build
    from nki.ir.text import fingerprint
    from nki.ir.verify import verify

    module = build(programs)
    read = verify(module, target, disabled_rules)
    return Built(tuple(read), fingerprint(module), ())


def digest_of(programs: Sequence[Program]) -> str:
    """SHA-256 of the IR of programs, source locations included: equal for equal traces in this process."""
    from nki.ir.build import build
    from nki.ir.text import to_bytecode

    return sha256(to_bytecode(build(programs))).hexdigest()


def pack_programs(programs: Sequence[Program]) -> bytes:
    """The instruction streams of compiled programs, as the disk keeps them."""
    from nki.store.programs import pack_programs as pack

    return pack(programs)


def unpack_programs(data: bytes, target: Target, disabled_rules: frozenset[str], own: bool) -> tuple[Program, ...]:
    """What `pack_programs` wrote, as `nki.store.programs` reads it: raises ArtifactError for anything else."""
    from nki.store.programs import unpack_programs as unpack

    return unpack(data, target, disabled_rules, own)


def _stage_writer(options: Options, kernel: str) -> Callable[[Stage], None] | None:
    """Writes the IR after every pass where NKI_DUMP_IR and NKI_PRINT_AFTER want it; None if nowhere."""
    if not options.dump_ir and not options.print_after:
        return None
    from nki.ir.build import build
    from nki.ir.text import save, to_text
    from nki.passes.names import renamed
    from nki.passes.pipeline import check_printed

    after = check_printed(options.print_after)
    for finding in renamed([options.print_after]):
        warn(finding)
    numbers = count()

    def write(stage: Stage) -> None:
        number = next(numbers)
        if options.dump_ir:
            directory = Path(options.dump_ir) / file_name(kernel)
            directory.mkdir(parents=True, exist_ok=True)
            save(build(stage.programs), directory / f"{number:02}-{stage.name}.mlir")
        if after in (stage.name, "all"):
            sys.stderr.write(visible(f"// {kernel} after {stage.name}\n{to_text(build(stage.programs))}\n"))

    return write


def native_machine(options: Options) -> Callable[..., Machine] | None:
    """What makes a machine that executes instructions natively, called as `nki.sim.machine.Machine` is.

    None if NumPy executes everything.
    """
    if not _may_be_native(options):
        return None
    from nki.native.run.machine import NativeMachine
    from nki.native.tiering.compilation_policy import functions

    found = functions(options)
    return None if found is None else partial(NativeMachine, found)


def native_kernel(
    programs: Sequence[Program], target: Target, options: Options, artifact: str = ""
) -> NativeKernel | None:
    """A compiled kernel as native code; None if NumPy executes everything.

    `artifact` is the key of its programs on disk, beside which their plans are kept; empty to keep none.
    """
    if not _may_be_native(options):
        return None
    from nki.native.run.kernel import NativeKernel
    from nki.native.tiering.compilation_policy import functions

    found = functions(options)
    return None if found is None else NativeKernel(programs, target, options, found, artifact)


def _may_be_native(options: Options) -> bool:
    return options.native != "0" or options.require_native
