"""Damage for artifacts: from single bits to files that are consistent and yet of no kernel."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any

from nki.asm.decode import decode
from nki.asm.encode import encode
from nki.asm.raising import raise_
from nki.asm.streams import Streams
from nki.core.errors import NkiError
from nki.ir.build import build
from nki.ir.text import fingerprint, to_text
from nki.store.archive import BLOCK, read_tar, write_tar
from nki.store.artifact import header as head
from nki.store.artifact.contents import DEBUG, IR, META, header_of
from nki.store.artifact.metadata import debug_of, meta_of, origin_of, to_json
from nki.store.artifact.validate import unpack

Damage = Callable[[bytes, Random], bytes]

_NUMBERS = (0, 1, 2, 3, 5, 127, 128, 255, 256, 4096, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**47, 2**63 - 1)
_TEXTS = (
    "",
    "vector",
    "dma0",
    "float32",
    "sbuf",
    "tensor_copy",
    "nc_matmul",
    "trn1",
    "\0",
    "ü",
    "a" * 5000,
    "../x",
    "}{",
)
_FIELDS = {0: "<Q", 8: "<Q", 16: "<Q", 24: "<Q", 32: "<Q", 168: "<I", 476: "<I", 544: "<Q", 552: "<I"}


def rehashed(data: bytes) -> bytes:
    """With the hash of what is there now, so that later checks are reached."""
    blank = bytearray(data[: head.SIZE].ljust(head.SIZE, b"\0"))
    blank[172:220] = bytes(48)
    digest = head._digest(bytes(blank), data[head.SIZE :])
    blank[172:204], blank[204:220] = digest, digest[:16]
    return bytes(blank) + data[head.SIZE :]


def with_members(data: bytes, members: dict[str, bytes]) -> bytes:
    """The header with another archive."""
    archive = write_tar(members)
    return rehashed(data[:16] + len(archive).to_bytes(8, "little") + data[24 : head.SIZE] + archive)


def bits(data: bytes, random: Random) -> bytes:
    """Some bits, mostly found by the hash."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def cut(data: bytes, random: Random) -> bytes:
    """Shorter or longer; half of the time with sizes and hash that fit."""
    out = (
        data[: random.randrange(len(data))]
        if random.random() < 0.7
        else data + random.randbytes(random.randrange(1, 2000))
    )
    if random.random() < 0.5 or len(out) < head.SIZE:
        return out
    return rehashed(out[:16] + (len(out) - head.SIZE).to_bytes(8, "little") + out[24:])


def header(data: bytes, random: Random) -> bytes:
    """A field or a byte of the header, with the hash that fits."""
    out = bytearray(data)
    if random.random() < 0.5:
        at = random.choice(list(_FIELDS))
        size = 8 if _FIELDS[at] == "<Q" else 4
        out[at : at + size] = (random.choice(_NUMBERS) % (1 << 8 * size)).to_bytes(size, "little")
    else:
        out[random.choice((random.randrange(40, 168), random.randrange(220, head.SIZE)))] = random.randrange(256)
    return rehashed(bytes(out))


def archive_head(data: bytes, random: Random) -> bytes:
    """The header of a member in the archive: another name, kind, size or mode."""
    members = read_tar(data[head.SIZE :])
    starts, at = [], head.SIZE
    for _, member in sorted(members.items()):
        starts.append(at)
        at += BLOCK + -(-len(member) // BLOCK) * BLOCK
    at = random.choice(starts)
    info = tarfile.TarInfo.frombuf(data[at : at + BLOCK], "ascii", "strict")
    match random.randrange(6):
        case 0:
            info.name = random.choice(
                ("../x.bin", "/etc/passwd", "meta.json", "core0/" + "a" * 60, "core1/vector.bin", "x")
            )
        case 1:
            info.type = random.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE))
            info.linkname = "/etc/passwd"
        case 2:
            info.size = random.choice((0, 1, 511, 513, 8**10, random.randrange(8**8)))
        case 3:
            info.mode = 0o777
        case 4:
            info.mtime = 1
        case 5:
            out = bytearray(data)
            out[at + random.randrange(BLOCK)] = random.randrange(256)
            return rehashed(bytes(out))
    return rehashed(data[:at] + info.tobuf(tarfile.USTAR_FORMAT)[:BLOCK] + data[at + BLOCK :])


def member(data: bytes, random: Random) -> bytes:
    """Bytes of one member."""
    members = read_tar(data[head.SIZE :])
    name = random.choice(list(members))
    out = bytearray(members[name])
    match random.randrange(4):
        case 0:
            out[random.randrange(len(out))] ^= 1 << random.randrange(8)
        case 1:
            at = random.randrange(max(1, len(out) - 4))
            out[at : at + 4] = (random.choice(_NUMBERS) % (1 << 32)).to_bytes(4, "little")
        case 2:
            del out[random.randrange(len(out)) :]
        case 3:
            at = random.randrange(len(out))
            out[at:at] = random.randbytes(random.randrange(1, 40))
    if name.endswith(".bin") and len(out) >= 16 and random.random() < 0.8:
        out[8:16] = len(out).to_bytes(8, "little")
    return with_members(data, {**members, name: bytes(out)})


def swap(data: bytes, random: Random) -> bytes:
    """Members exchanged, left out, added or renamed."""
    members = read_tar(data[head.SIZE :])
    first, second = random.sample(list(members), 2)
    match random.randrange(4):
        case 0:
            members[first], members[second] = members[second], members[first]
        case 1:
            del members[first]
        case 2:
            members[random.choice(("core0/gpsimd.bin", "core1/tables.bin", "extra.json", "core0/x.bin"))] = members[
                first
            ]
        case 3:
            members[second] = members.pop(first)
    return with_members(data, members)


def jsons(data: bytes, random: Random) -> bytes:
    """A value in the JSON becomes another, or the text is not JSON any more."""
    members = read_tar(data[head.SIZE :])
    name = random.choice((META, META, DEBUG))
    value = json.loads(members[name])
    odd = (None, True, -1, 2**70, 1.5, "", "x" * 5000, [], {}, [[]], {"a": {}}, "0" * 64)
    if random.random() < 0.1:
        text = random.choice(
            (b"[" * 100_000, b"{", b"NaN", b'{"a":1,"a":1}', b"\xff", b"1" * 5000, b'{"a":Infinity}', b"[]")
        )
        return with_members(data, {**members, name: text})
    at: Any = value
    while True:
        key = random.choice(list(at) if isinstance(at, dict) else range(len(at)))
        if not isinstance(at[key], dict | list) or not at[key] or random.random() < 0.3:
            break
        at = at[key]
    at[key] = random.choice(odd)
    text = json.dumps(value, separators=(",", ":")).encode() if random.random() < 0.9 else json.dumps(value).encode()
    return with_members(data, {**members, name: text})


def records(data: bytes, random: Random) -> bytes:
    """A field of the streams, encoded as if nothing had happened; the rest stays."""
    members = read_tar(data[head.SIZE :])
    rest = {name: part for name, part in members.items() if not name.startswith("core0/")}
    while True:
        streams = changed(_streams(members), random)
        try:
            parts = encode(streams)
            return with_members(data, rest | {f"core0/{name}.bin": part for name, part in parts.items()})
        except (NkiError, ValueError, KeyError):  # names and kinds that not even the encoder takes
            continue


def forged(data: bytes, random: Random) -> bytes:
    """Fields of the streams, and all else made to fit them: only the rules can tell."""
    members = read_tar(data[head.SIZE :])
    origin = origin_of(json.loads(members[META]))
    for _ in range(30):
        streams = changed(_streams(members), random)
        if random.random() < 0.3:
            streams = changed(streams, random)
        try:
            program = raise_(streams)
            module = build([program])
            parts = encode(streams)
        except NkiError:  # not a program at all
            continue
        rest = {
            IR: to_text(module).encode(),
            META: to_json(meta_of([program], fingerprint(module), origin)),
            DEBUG: to_json(debug_of([streams])),
        }
        all_members = rest | {f"core0/{name}.bin": part for name, part in parts.items()}
        return head.with_header(header_of([streams], origin), write_tar(all_members))
    return records(data, random)


DAMAGES: tuple[Damage, ...] = (bits, cut, header, archive_head, member, swap, jsons, records, forged)


def outcome(data: bytes, original: bytes) -> str:
    """The code of the error, or "identical" or "another valid kernel" if the file was accepted."""
    try:
        unpack(data)
    except NkiError as error:
        return error.code
    return "identical" if data == original else "another valid file"


def changed(value: Any, random: Random) -> Any:
    """One number, text or order in a record changed."""
    while (made := _changed(value, random)) == value:
        continue
    return made


def _changed(value: Any, random: Random) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        name = random.choice(fields(value)).name
        return replace(value, **{name: _changed(getattr(value, name), random)})
    match value:
        case bool():
            return not value
        case int():
            near = value + random.choice((-1, 1, 2, 16, 64))
            return random.choice((near, near, random.choice(_NUMBERS), -random.choice(_NUMBERS)))
        case str():
            return random.choice((*_TEXTS, value + "0", value[:-1]))
        case bytes():
            return value[:-1]
        case tuple() if value:
            return _other_order(value, random)
    return value


def _other_order(value: tuple[Any, ...], random: Random) -> tuple[Any, ...]:
    at = random.randrange(len(value))
    is_pair = len(value) == 2 and not is_dataclass(value[0])
    match 3 if is_pair else random.randrange(12):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return (*value[:at], value[at], *value[at:])
        case 2:
            return (*value[1:], value[0])
    return (*value[:at], _changed(value[at], random), *value[at + 1 :])


def _streams(members: dict[str, bytes]) -> Streams:
    return decode({name[6:-4]: part for name, part in members.items() if name.startswith("core0/")})
