"""Compiled kernels as files: a header and an archive of IR, streams, constants and metadata; docs/artifact.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nki.asm.encode import encode
from nki.asm.lower import lower
from nki.core.errors import ArtifactError
from nki.core.regular import read_regular
from nki.core.source import UNKNOWN
from nki.ir.build import build
from nki.ir.text import fingerprint, to_text
from nki.ir.verify import verify
from nki.spec.program import Program
from nki.store.archive import write_tar
from nki.store.artifact import header as head
from nki.store.artifact.contents import DEBUG, IR, MAX_BYTES, META, Artifact, header_of
from nki.store.artifact.metadata import Option, Provenance, debug_of, meta_of, origin_of, refused, to_json
from nki.store.artifact.model import ModelPart, model_members
from nki.store.artifact.validate import check_cores, unpack
from nki.store.artifact.validate_hardware import check_hardware
from nki.store.files import write_whole
from nki.target.load import load_target
from nki.version import version


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
    check_cores(streams)
    members = {f"core{core}/{name}.bin": part for core, s in enumerate(streams) for name, part in encode(s).items()}
    meta = meta_of(checked, ir_hash, origin)
    origin_of(meta)
    members |= {IR: to_text(module).encode(), META: to_json(meta), DEBUG: to_json(debug_of(streams))}
    members |= model_members(model, checked)
    return head.with_header(header_of(streams, origin, model is not None), write_tar(members))


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
    """Read and check a file, see `validate.unpack`.

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


def _file_error(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(
        "artifact.file",
        f"{path}: {error.strerror}",
        rule="the file can be used",
        fix="check the path",
        location=UNKNOWN,
    )
