"""An artifact is validated: everything in a file is decoded, made anew from the streams, and compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from nki.asm.decode import decode
from nki.asm.lower import lower
from nki.asm.raising import raise_
from nki.asm.streams import Streams
from nki.core.errors import NkiError
from nki.ir.build import build
from nki.ir.text import fingerprint, to_text
from nki.ir.verify import verify
from nki.spec.program import Program
from nki.store.archive import read_tar
from nki.store.artifact import header as head
from nki.store.artifact.contents import DEBUG, IR, MAX_BYTES, META, Artifact, header_of
from nki.store.artifact.header import Header
from nki.store.artifact.metadata import debug_of, from_json, meta_of, origin_of, refused, to_json
from nki.store.artifact.model import MODEL, WEIGHTS, model_part
from nki.store.artifact.validate_hardware import check_hardware
from nki.target.load import load_target

_PART = re.compile(r"core(0|[1-9][0-9]{0,2})/([a-z0-9]+)\.bin")

# What rules, which expect operands that a trace has checked, do with operands that nobody has.
_SURPRISES = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


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
    model = model_part(members, programs)
    return Artifact(header, tuple(programs), tuple(streams), origin, MappingProxyType(meta), sizes, model)


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
    check_cores(streams)
    return streams


def check_cores(streams: Sequence[Streams]) -> None:
    """Raise ArtifactError "artifact.cores" unless these are all programs of one launch."""
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


def _check_header(found: Header, expected: Header) -> None:
    expected = replace(expected, digest=found.digest)
    if found != expected:
        raise refused("artifact.header", f"the header is {found}, for contents with {expected}"[:400], "they agree")
