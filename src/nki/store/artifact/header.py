"""The 1024 bytes before the archive of an artifact."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from struct import Struct

from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN

SIZE = 1024
MAGIC = b"NKIOPEN1"
"""At the start of the padding: it tells these files from those of the vendor's compiler, whose fields they share."""
PKG_VERSION, MAJOR, MINOR = 1, 1, 0

LOOPS, CONSTANTS, CORES, MODEL = 1, 2, 4, 8
"""Feature bits: device loops, constant tensors, several cores, names and weights of a model."""

_LAYOUT = Struct("<QQQQQ128sI32s16s256sI64sQI4x8s456x")
_BUILD, _NAME = 127, 255
_HASH = slice(172, 204)
_UUID = slice(204, 220)
assert _LAYOUT.size == SIZE, "the header has its documented size"


@dataclass(frozen=True, slots=True)
class Header:
    """What the header says beside sizes and versions of the format.

    Attributes:
        build_version: version of the package that wrote the file, see `fitted`.
        name: of the kernel, as much of it as fits.
        cores: that one launch runs on (LNC).
        features: `LOOPS`, `CONSTANTS` and `CORES`, added up.
        digest: SHA-256 of header and archive, without itself; the uuid is its first half.
    """

    build_version: str
    name: str
    cores: int
    features: int
    digest: bytes = bytes(32)

    @classmethod
    def of(cls, build_version: str, name: str, cores: int, features: int) -> Header:
        """A header without a digest, and with texts that fit."""
        return cls(fitted(build_version, _BUILD), fitted(name, _NAME), cores, features)

    @property
    def uuid(self) -> bytes:
        """Equal files have equal ones."""
        return self.digest[:16]


def with_header(header: Header, archive: bytes) -> bytes:
    """The file: the header with its digest, and the archive."""
    blank = _packed(header, bytes(32), bytes(16), len(archive))
    digest = _digest(blank, archive)
    return _packed(header, digest, digest[:16], len(archive)) + archive


def split(data: bytes) -> tuple[Header, bytes]:
    """Header and archive of a file.

    Raises:
        ArtifactError: "artifact.magic" for another kind of file, "artifact.version", "artifact.size", "artifact.hash",
            "artifact.header" for fields that contradict each other.
    """
    if len(data) < SIZE or data[560:568] != MAGIC:
        raise _refused("artifact.magic", f"{len(data)} bytes that are no artifact", f"{MAGIC!r} is at byte 560")
    fields = _LAYOUT.unpack(data[:SIZE])
    pkg, header_size, data_size, major, minor, build, cores, digest, uuid, name, asked, nodes, features, lnc, _ = fields
    if (pkg, major, minor) != (PKG_VERSION, MAJOR, MINOR):
        rule = f"this toolchain reads version {PKG_VERSION} {MAJOR}.{MINOR}"
        raise _refused("artifact.version", f"version {pkg} {major}.{minor} of the format", rule)
    archive = data[SIZE:]
    if (header_size, data_size) != (SIZE, len(archive)):
        raise _refused(
            "artifact.size", f"sizes {header_size} and {data_size}", f"the file has {SIZE} and {len(archive)} bytes"
        )
    blank = bytearray(data[:SIZE])
    blank[_HASH], blank[_UUID] = bytes(32), bytes(16)
    if digest != _digest(bytes(blank), archive) or uuid != digest[:16]:
        raise _refused(
            "artifact.hash", "the contents do not have the hash of the header", "a file is as it was written"
        )
    texts = [text.rstrip(b"\0").decode("utf-8", "replace") for text in (build, name)]
    header = Header(texts[0], texts[1], cores, features, digest)
    if _packed(header, digest, uuid, data_size) != data[:SIZE]:
        raise _refused(
            "artifact.header",
            f"{cores} cores, {asked} requested, {nodes[:4].hex()} per node, {lnc} in a logical core",
            "they are equal, strings are UTF-8, and the rest is zeros",
        )
    return header, archive


def _packed(header: Header, digest: bytes, uuid: bytes, size: int) -> bytes:
    cores = header.cores
    return _LAYOUT.pack(
        PKG_VERSION,
        SIZE,
        size,
        MAJOR,
        MINOR,
        fitted(header.build_version, _BUILD).encode(),
        cores,
        digest,
        uuid,
        fitted(header.name, _NAME).encode(),
        cores,
        bytes([min(cores, _NAME)]),
        header.features,
        cores,
        MAGIC,
    )


def fitted(text: str, size: int) -> str:
    """The first characters, as many as fit as UTF-8; zeros at the end are not seen."""
    return text.encode()[:size].decode("utf-8", "ignore").rstrip("\0")


def _digest(blank: bytes, archive: bytes) -> bytes:
    made = hashlib.sha256(blank)
    made.update(archive)
    return made.digest()


def _refused(code: str, message: str, rule: str) -> ArtifactError:
    return ArtifactError(code, message, rule=rule, fix="compile the kernel again", location=UNKNOWN)
