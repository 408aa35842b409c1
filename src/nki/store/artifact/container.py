"""Compiled kernels as files: a header and an archive of IR, streams, constants and metadata; docs/artifact.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nki.asm.decode import decode
from nki.asm.encode import encode
from nki.asm.lower import lower
from nki.asm.raising import raise_
from nki.asm.streams import Begin, Streams
from nki.core.errors import ArtifactError, NkiError
from nki.core.regular import read_regular
from nki.core.source import UNKNOWN
from nki.ir.build import build
from nki.ir.text import fingerprint, to_text
from nki.ir.verify import verify
from nki.spec.program import Program
from nki.store.archive import read_tar, write_tar
from nki.store.artifact import header as head
from nki.store.artifact.header import Header
from nki.store.artifact.metadata import Option, Provenance, debug_of, from_json, meta_of, origin_of, refused, to_json
from nki.store.artifact.model import MODEL, WEIGHTS, ModelPart, model_members, model_part
from nki.store.artifact.validate_hardware import check_hardware
from nki.store.files import write_whole
from nki.target.load import load_target
from nki.version import version

IR, META, DEBUG = "kernel.mlir", "meta.json", "debug.json"
MAX_BYTES = 1 << 30
_PART = re.compile(r"core(0|[1-9][0-9]{0,2})/([a-z0-9]+)\.bin")

# What rules, which expect operands that a trace has checked, do with operands that nobody has.
_SURPRISES = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled kernel, checked.

    Attributes:
        header: of the file.
        programs: one for each core, verified for their target.
        streams: one for each core, equal to what `lower` makes of the programs.
        origin: what nothing else in the file repeats.
        meta: ``meta.json``.
        sizes: bytes of the members by name.
        model: what makes a model of the programs; None for a kernel.
    """

    header: Header
    programs: tuple[Program, ...]
    streams: tuple[Streams, ...]
    origin: Provenance
    meta: Mapping[str, Any]
    sizes: Mapping[str, int]
    model: ModelPart | None = None


def pack(
    programs: Sequence[Program],
    *,
    kernel_hash: str = "",
    options: Mapping[str, Option] | None = None,
    disabled_rules: frozenset[str] = frozenset(),
    model: ModelPart | None = None,
) -> bytes:
    """The bytes of an artifact; equal programs have equal bytes.

    Args:
        programs: one for each core of a launch, compiled: scheduled and placed.
        kernel_hash: of the traced kernel; that of the IR if it is not given.
        options: settings of the compiler, to be kept.
        disabled_rules: codes of rules that are not checked, now and when the artifact is loaded.
        model: names and weights of a model, whose programs these are.

    Raises:
        ArtifactError: "artifact.cores" if the programs are not those of one launch.
        NkiError: what `verify` and `lower` raise.
    """
    if not programs:
        raise refused("artifact.cores", "no program", "there is one for each core")
    module, target = build(programs), load_target(programs[0].target)
    checked = verify(module, target, disabled_rules)
    streams = [lower(program) for program in checked]
    for program, one in zip(checked, streams, strict=True):
        check_hardware(program, one, target)
    ir_hash = fingerprint(module)
    origin = Provenance(version(), kernel_hash or ir_hash, dict(options or {}), tuple(sorted(disabled_rules)))
    _check_cores(streams)
    members = {f"core{core}/{name}.bin": part for core, s in enumerate(streams) for name, part in encode(s).items()}
    meta = meta_of(checked, ir_hash, origin)
    origin_of(meta)
    members |= {IR: to_text(module).encode(), META: to_json(meta), DEBUG: to_json(debug_of(streams))}
    members |= model_members(model, checked[0])
    return head.with_header(header_of(streams, origin, model is not None), write_tar(members))


def unpack(data: bytes) -> Artifact:
    """An artifact from its bytes, after everything in it was checked.

    The streams are decoded by code of this package, and the program is made from them; the IR is compared with what
    that program is printed as, so that MLIR's parser sees nothing that came from a file. Nothing of the file is run.

    Raises:
        ArtifactError: "artifact.*" or "asm.*" for a file that `pack` did not write.
        NkiError: "ir.*", the code of a rule that the program breaks, or "target.unknown".
    """
    if len(data) > MAX_BYTES:
        raise refused("artifact.size", f"{len(data)} bytes", f"an artifact has at most {MAX_BYTES}")
    header, archive = head.split(data)
    members = read_tar(archive)
    for name in (IR, META, DEBUG):
        if name not in members:
            raise refused("artifact.member", f"{name} is missing", "it is part of every artifact")
    origin = origin_of(from_json(META, members[META]))
    streams = _streams(members)
    _check_header(header, header_of(streams, origin, MODEL in members))
    programs, ir_hash = _programs(streams, members[IR], frozenset(origin.disabled_rules))
    meta = meta_of(programs, ir_hash, origin)
    _compare("artifact.meta", META, members[META], to_json(meta))
    _compare("artifact.debug", DEBUG, members[DEBUG], to_json(debug_of(streams)))
    sizes = MappingProxyType({name: len(member) for name, member in members.items()})
    model = model_part(members, programs[0])
    return Artifact(header, tuple(programs), tuple(streams), origin, MappingProxyType(meta), sizes, model)


def save(path: Path, data: bytes) -> None:
    """Write what `pack` made; the file appears complete or not at all.

    Raises:
        ArtifactError: "artifact.file" with the reason of the operating system.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        raise _file_error(path, error) from None


def load(path: Path) -> Artifact:
    """Read and check a file, see `unpack`.

    Raises:
        ArtifactError: "artifact.file" if it cannot be read.
    """
    try:
        data = read_regular(path, MAX_BYTES + 1)
    except OSError as error:
        raise _file_error(path, error) from None
    try:
        return unpack(data)
    except ArtifactError as error:
        if error.code == "artifact.magic":
            error.message = f"{path} is no compiled file: {error.message}"
            if path.suffix == ".py":
                error.fix = f"compile it first: nki compile {path} --emit neff -o {path.stem}.neff"
        raise


def _streams(members: Mapping[str, bytes]) -> list[Streams]:
    cores: dict[int, dict[str, bytes]] = {}
    for name in sorted(members.keys() - {IR, META, DEBUG, MODEL, WEIGHTS}):
        match = _PART.fullmatch(name)
        if match is None:
            raise refused("artifact.member", f"a member is called {name}", "streams are like core0/vector.bin")
        cores.setdefault(int(match[1]), {})[match[2]] = members[name]
    if sorted(cores) != list(range(len(cores))):
        raise refused("artifact.cores", f"cores {sorted(cores)}", "cores count from 0")
    streams = [decode(cores[core]) for core in range(len(cores))]
    _check_cores(streams)
    return streams


def _check_cores(streams: Sequence[Streams]) -> None:
    if not streams:
        raise refused("artifact.cores", "no core", "there is at least one")
    first = streams[0]
    for core, one in enumerate(streams):
        if (one.name, one.target, one.core, one.cores) != (first.name, first.target, core, len(streams)):
            raise refused(
                "artifact.cores",
                f"core {one.core} of {one.cores} of {one.name!r} for {one.target!r}, as number {core}"[:300],
                "all programs are of one kernel and target, one for each core",
            )
    target = load_target(first.target)
    if target.name != first.target or len(streams) not in target.lnc:
        raise refused(
            "artifact.cores",
            f"{len(streams)} cores of {first.target}",
            f"{target.name} runs a kernel on {' or '.join(map(str, target.lnc))}",
        )


def _programs(streams: Sequence[Streams], text: bytes, disabled: frozenset[str]) -> tuple[list[Program], str]:
    """The programs as they are read back from IR, which is the IR of the file."""
    try:
        module = build([raise_(one) for one in streams])
        _compare("artifact.ir", IR, text, to_text(module).encode())
        target = load_target(streams[0].target)
        programs = verify(module, target, disabled)
        if [lower(program) for program in programs] != list(streams):
            raise refused("artifact.ir", f"{IR} does not read back to the streams", "IR and streams say the same")
        for program, one in zip(programs, streams, strict=True):
            check_hardware(program, one, target)
    except NkiError:
        raise
    except _SURPRISES as error:
        raise refused(
            "artifact.program", f"{type(error).__name__} in a check: {error}"[:300], "a program can be checked"
        ) from error
    return programs, fingerprint(module)


def _compare(code: str, name: str, found: bytes, expected: bytes) -> None:
    if found != expected:
        at = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), 0)
        raise refused(code, f"{name} differs from the streams at byte {at}", "all members describe the same program")


def header_of(streams: Sequence[Streams], origin: Provenance, model: bool = False) -> Header:
    """The header of an artifact with these streams, without its digest."""
    features = head.CORES * (len(streams) > 1) | head.MODEL * model
    features |= head.CONSTANTS * any(buffer.data is not None for one in streams for buffer in one.buffers)
    features |= head.LOOPS * any(isinstance(e, Begin) for one in streams for s in one.streams for e in s.entries)
    return Header.of(origin.package_version, streams[0].name, len(streams), features)


def _check_header(found: Header, expected: Header) -> None:
    expected = replace(expected, digest=found.digest)
    if found != expected:
        raise refused("artifact.header", f"the header is {found}, for contents with {expected}"[:400], "they agree")


def _file_error(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(
        "artifact.file",
        f"{path}: {error.strerror}",
        rule="the file can be used",
        fix="check the path",
        location=UNKNOWN,
    )
