"""Compiled files: their layout, what they hold, and that every damage is refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.asm.decode import decode
from nki.core.errors import ArtifactError, IRError, NkiError, VerificationError
from nki.ir.read import read
from nki.ir.text import from_text
from nki.spec.program import Sync, Wait
from nki.store.artifact.container import load, pack, save
from nki.store.artifact.validate import unpack
from nki.testing.equality import differences
from nki.version import version
from tests.asm.compiled import compiled, loops, summed
from tests.ir.kernels import array, traced
from tests.store.artifact.cases import constant_and_product, originals, programs
from tests.store.artifact.damage import DAMAGES, archive_head, outcome, rehashed, with_members


def both_cores(a: Any) -> Any:
    """Each of two cores copies its half."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm, name="out")
    half = nl.program_id(0) * 64
    tile = nl.ndarray((64, 64), a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[half : half + 64, :])
    nisa.dma_copy(dst=out[half : half + 64, :], src=tile)
    return out


@pytest.mark.parametrize("number", range(3))
def test_a_program_survives(number: int) -> None:
    program = programs()[number]
    artifact = unpack(originals()[number])
    assert differences(program, artifact.programs[0]) == []
    assert artifact.origin.options == {"schedule": True, "level": 2}
    assert artifact.meta["passes"] == ["allocate_and_schedule", "schedule"]


def test_two_cores() -> None:
    made = [compiled(program) for program in traced(both_cores, array(), lnc=2)]
    artifact = unpack(pack(made))
    assert [differences(a, b) for a, b in zip(made, artifact.programs, strict=True)] == [[], []]
    assert (artifact.header.cores, artifact.header.features) == (2, 4)


def test_the_header_has_the_documented_layout() -> None:
    """Read field by field at the offsets of docs/artifact.md."""
    data = originals()[2]
    assert struct.unpack_from("<5Q", data, 0) == (1, 1024, len(data) - 1024, 1, 0)
    assert data[40:168].rstrip(b"\0") == version().encode()
    assert struct.unpack_from("<I", data, 168) == (1,)
    blank = data[:172] + bytes(48) + data[220:]
    assert data[172:204] == hashlib.sha256(blank).digest()
    assert data[204:220] == data[172:188]
    assert data[220:476].rstrip(b"\0") == b"constant_and_product"
    assert struct.unpack_from("<I", data, 476) == (1,)
    assert data[480:544] == b"\1" + bytes(63)
    assert struct.unpack_from("<QI", data, 544) == (2, 1)
    assert data[556:560] == bytes(4)
    assert data[560:568] == b"NKIOPEN1"
    assert data[568:1024] == bytes(456)


def test_the_rest_is_a_tar() -> None:
    with tarfile.open(fileobj=io.BytesIO(originals()[2][1024:])) as archive:
        members = archive.getmembers()
        files = {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    assert [member.name for member in members] == sorted(files)
    assert {(member.mtime, member.mode, member.uid, member.uname) for member in members} == {(0, 0o644, 0, "")}
    assert {"kernel.mlir", "meta.json", "debug.json", "core0/tensor.bin", "core0/constants.bin"} <= files.keys()
    (program,) = read(from_text(files["kernel.mlir"].decode()))
    assert differences(program, programs()[2]) == []
    streams = decode({name[6:-4]: data for name, data in files.items() if name.startswith("core0/")})
    assert streams == unpack(originals()[2]).streams[0]
    assert files["core0/constants.bin"][16:] == np.eye(64, dtype=np.float32).tobytes()


def test_what_is_described() -> None:
    artifact = unpack(originals()[2])
    meta = artifact.meta
    assert meta["arguments"] == [{"name": "a", "shape": [128, 64], "dtype": "float32"}]
    assert meta["outputs"] == [{"name": "out", "shape": [64, 64], "dtype": "float32"}]
    assert (meta["name"], meta["target"], meta["cores"]) == ("constant_and_product", "trn2", 1)


def test_the_source_map_and_the_graph() -> None:
    with tarfile.open(fileobj=io.BytesIO(originals()[1][1024:])) as archive:
        (core,) = json.load(archive.extractfile("debug.json"))["cores"]  # type: ignore[arg-type]
    assert [each["opcode"] for each in core["instructions"]] == [
        "dma_copy",
        "dma_copy",
        "tensor_scalar",
        "tensor_tensor",
        "dma_copy",
    ]
    assert core["dependencies"] == [[0, 1], [1, 2], [3, 4]]
    place = core["locations"][core["instructions"][2]["location"]][0]
    line = Path(place["file"]).read_text().splitlines()[place["line"] - 1]
    assert line.strip().startswith("nisa.tensor_scalar(")


def test_names_of_instructions_are_kept() -> None:
    with tarfile.open(fileobj=io.BytesIO(originals()[2][1024:])) as archive:
        (core,) = json.load(archive.extractfile("debug.json"))["cores"]  # type: ignore[arg-type]
    names = {each["name"] for each in core["instructions"]}
    assert names == {None, "weights"}


def test_equal_programs_have_equal_bytes() -> None:
    assert pack([compiled(loops())], options={"schedule": True, "level": 2}) == originals()[0]
    assert pack([compiled(loops())], options={"schedule": True, "level": 3}) != originals()[0]


def test_files_appear_complete_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernel.neff"
    save(path, originals()[0])
    assert load(path).header.digest == unpack(originals()[0]).header.digest

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match="No space left") as caught:
        save(path, originals()[1])
    assert caught.value.code == "artifact.file"
    monkeypatch.undo()
    assert path.read_bytes() == originals()[0]
    assert [each.name for each in tmp_path.iterdir()] == ["kernel.neff"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "no.neff", tmp_path, tmp_path / "no" / "x.neff"):
        with pytest.raises(ArtifactError) as caught:
            load(path)
        assert caught.value.code == "artifact.file"
    with pytest.raises(ArtifactError):
        save(tmp_path / "no" / "x.neff", originals()[0])


@pytest.mark.parametrize(
    ("at", "new", "code"),
    [
        (0, 2, "artifact.version"),
        (8, 7, "artifact.size"),
        (16, 1, "artifact.size"),
        (24, 9, "artifact.version"),
        (40, 88, "artifact.header"),
        (168, 3, "artifact.header"),
        (220, 88, "artifact.header"),
        (476, 2, "artifact.header"),
        (481, 1, "artifact.header"),
        (544, 7, "artifact.header"),
        (552, 2, "artifact.header"),
        (556, 1, "artifact.header"),
        (560, 0, "artifact.magic"),
        (1023, 1, "artifact.header"),
    ],
)
def test_a_header_that_lies(at: int, new: int, code: str) -> None:
    data = bytearray(originals()[0])
    data[at] = new
    assert outcome(rehashed(bytes(data)), b"") == code
    assert outcome(bytes(data), b"") in (code, "artifact.hash")


def test_members_of_other_kinds() -> None:
    """Links, paths that lead elsewhere, other sizes, modes and times."""
    codes = {outcome(archive_head(originals()[0], Random(seed)), b"") for seed in range(60)}
    assert codes <= {"artifact.member", "artifact.tar", "asm.encoding", "identical"}


def test_members_that_disagree() -> None:
    members = _members(originals()[0])
    other = _members(originals()[1])
    for name, code in (
        ("kernel.mlir", "artifact.ir"),
        ("meta.json", "artifact.meta"),
        ("debug.json", "artifact.debug"),
        ("core0/vector.bin", "asm.order"),
    ):
        assert outcome(with_members(originals()[0], {**members, name: other[name]}), b"") == code


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel_hash", "x"),
        ("kernel_hash", None),
        ("package_version", 1),
        ("options", []),
        ("options", {"a": {}}),
        ("disabled_rules", [1]),
        ("name", "other"),
        ("cores", 2),
        ("cores", True),
        ("ir_hash", "0" * 64),
        ("arguments", []),
        ("surplus", 1),
    ],
)
def test_a_description_that_lies(name: str, value: Any) -> None:
    members = _members(originals()[0])
    meta = {**json.loads(members["meta.json"]), name: value}
    text = json.dumps(meta, separators=(",", ":")).encode()
    assert outcome(with_members(originals()[0], {**members, "meta.json": text}), b"") == "artifact.meta"


@pytest.mark.parametrize("text", [b"", b"[" * 100_000, b"{} ", b"[]", b"NaN", b'{"a":1,"a":2}', b"\xff", b"1" * 5000])
def test_json_that_is_none(text: bytes) -> None:
    members = _members(originals()[0])
    assert outcome(with_members(originals()[0], {**members, "meta.json": text}), b"") == "artifact.json"


def _members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data[1024:])) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def test_programs_that_no_file_can_hold() -> None:
    with pytest.raises(ArtifactError, match="no program"):
        pack([])
    with pytest.raises(ArtifactError, match="core 0 of 1"):
        pack([compiled(loops()), compiled(summed())])
    (program,) = traced(constant_and_product, array())
    with pytest.raises(IRError, match="has no address"):
        pack([program])
    with pytest.raises(ArtifactError, match="options"):
        pack([compiled(loops())], options={"a": [1]})  # type: ignore[dict-item]


def test_programs_that_the_target_cannot_run() -> None:
    for code, sync in (
        ("artifact.queue", Sync("gpsimd")),
        ("artifact.queue", Sync("dma99")),
        ("artifact.wait", Sync("dma0", (Wait("scalar", 1),))),
        ("artifact.wait", Sync("dma0", (Wait("dma1", 1),))),
    ):
        program = compiled(summed())
        assert program.body.sync is not None
        program.body.sync[0] = sync
        with pytest.raises(ArtifactError) as caught:
            pack([program])
        assert caught.value.code == code
    program = compiled(summed())
    program.placement = {key: (0, 1 << 20) for key in program.placement or {}}
    with pytest.raises(NkiError) as refused:
        pack([program])
    assert refused.value.code == "tensor.capacity"


def test_rules_are_checked_when_a_file_is_loaded() -> None:
    """Unless the file says which were not, when it was written."""
    program = compiled(loops())
    loop: Any = program.body.items[0]
    move = nisa.register_move
    arguments = move.arguments._make([loop.index if name == "dst" else 1 for name in move.operands])
    copy = program.body.items[2]
    program.body.items.insert(2, copy._replace(instruction=move, arguments=arguments, engine=nisa.engine.sync))  # type: ignore[union-attr]
    assert program.body.sync is not None
    program.body.sync.insert(2, Sync("sync"))
    with pytest.raises(VerificationError, match="index of a device loop"):
        pack([program])
    data = pack([program], disabled_rules=frozenset({"register_move.frozen"}))
    assert unpack(data).origin.disabled_rules == ("register_move.frozen",)
    members = _members(data)
    meta = members["meta.json"].replace(b'"register_move.frozen"', b"")
    assert outcome(with_members(data, {**members, "meta.json": meta}), b"") == "register_move.frozen"


def test_four_hundred_damaged_files() -> None:
    """Only our own errors come out, and what is accepted is the file itself, or one that could have been written."""
    seen: dict[str, int] = {}
    for number in range(400):
        random = Random(number)
        original = random.choice(originals())
        data = DAMAGES[number % len(DAMAGES)](original, random)
        found = outcome(data, original)
        seen[found] = seen.get(found, 0) + 1
    assert len(seen) >= 12
    assert sum(seen.values()) == 400
