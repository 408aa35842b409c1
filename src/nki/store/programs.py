"""Compiled programs as the disk keeps them: their instruction streams, so that reading them back needs no MLIR."""

from __future__ import annotations

from collections.abc import Sequence

from nki.asm.decode import decode
from nki.asm.encode import encode
from nki.asm.lower import lower
from nki.asm.raising import raise_
from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN
from nki.spec.program import Program
from nki.spec.verify_program import verify_program
from nki.store.archive import parts_by_core, write_tar
from nki.target.model import Target


def pack_programs(programs: Sequence[Program]) -> bytes:
    """The streams of compiled programs, one for each core."""
    return write_tar(
        {f"core{core}/{name}.bin": part for core, p in enumerate(programs) for name, part in encode(lower(p)).items()}
    )


def unpack_programs(
    data: bytes, target: Target, disabled_rules: frozenset[str], own: bool = False
) -> tuple[Program, ...]:
    """What `pack_programs` wrote, decoded and verified anew.

    `own` data is known to be byte for byte what it wrote; all other data is encoded again, to see that it is.

    Raises:
        ArtifactError: "artifact.*" or "asm.*" for anything else, and "artifact.program" for an instruction that breaks
            a rule or programs of another target.
    """
    programs = tuple([raise_(decode(parts, own), own) for parts in parts_by_core(data, _refused)])
    for core, program in enumerate(programs):
        if (program.target, program.core, program.cores) != (target.name, core, len(programs)):
            raise _refused(f"core {program.core} of {program.cores} for {program.target}, as number {core}")
        _verify(program, target, disabled_rules)
    return programs


def _verify(program: Program, target: Target, disabled_rules: frozenset[str]) -> None:
    for finding in verify_program(program, target, disabled_rules):
        if finding.severity == "error":
            raise _refused(finding.message)


def _refused(what: str) -> ArtifactError:
    return ArtifactError(
        "artifact.program",
        what[:300],
        rule="the cache holds programs that were verified, one for each core of a launch",
        fix="remove the file; the kernel is compiled anew",
        location=UNKNOWN,
    )
