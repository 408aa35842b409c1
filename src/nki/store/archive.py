"""The archive in an artifact: a tar with one possible encoding, so that reading it is comparing."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Mapping

from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN

BLOCK = 512
_END = bytes(2 * BLOCK)
_NAME = re.compile(r"(?:core[0-9]{1,3}/)?[a-z][a-z0-9]{0,15}\.(?:bin|json|mlir)")
_PART = re.compile(r"core(0|[1-9][0-9]{0,2})/([a-z0-9]+)\.bin")
_SIZE = re.compile(rb"[0-7]{11}\0")
_MAX_MEMBERS = 4096


def write_tar(members: Mapping[str, bytes]) -> bytes:
    """Members sorted by name, as plain files of nobody, of 1970, with mode 0644."""
    blocks = []
    for name, data in sorted(members.items()):
        blocks += [_head(name, len(data)), data, bytes(-len(data) % BLOCK)]
    return b"".join([*blocks, _END])


def read_tar(data: bytes) -> dict[str, bytes]:
    """The members of what `write_tar` wrote.

    Links, directories, paths that lead elsewhere and extensions of the format are refused, because no such header is
    what `write_tar` writes for a name and a size.

    Raises:
        ArtifactError: "artifact.member" for a name or kind of member, "artifact.tar" for everything else.
    """
    members: dict[str, bytes] = {}
    at, last = 0, ""
    while data[at : at + len(_END)] != _END:
        head = data[at : at + BLOCK]
        name, size = _name(head, at), _size(head, at)
        if head != _head(name, size):
            raise _refused("artifact.member", f"the header of {name}", "members are plain files of nobody and of 1970")
        if name <= last or len(members) == _MAX_MEMBERS:
            raise _refused(
                "artifact.member", f"{name} after {last}", f"up to {_MAX_MEMBERS} members are sorted, each once"
            )
        at, last = at + BLOCK, name
        members[name] = data[at : at + size]
        at += size
        padding = data[at : at + -size % BLOCK]
        if len(members[name]) != size or padding != bytes(-size % BLOCK):
            raise _refused("artifact.tar", f"{name} is to have {size} bytes", "members are complete, and zeros follow")
        at += len(padding)
    if at + len(_END) != len(data):
        raise _refused("artifact.tar", f"{len(data) - at - len(_END)} bytes after the end", "nothing follows the end")
    return members


def parts_by_core(data: bytes, refused: Callable[[str], ArtifactError]) -> list[dict[str, bytes]]:
    """The parts of each core by name, in an archive of nothing but such; `refused` makes the error for another one."""
    cores: dict[int, dict[str, bytes]] = {}
    for name, part in read_tar(data).items():
        match = _PART.fullmatch(name)
        if match is None:
            raise refused(f"a member is called {name}")
        cores.setdefault(int(match[1]), {})[match[2]] = part
    if not cores or sorted(cores) != list(range(len(cores))):
        raise refused(f"cores {sorted(cores)}")
    return [cores[core] for core in range(len(cores))]


def _head(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


def _name(head: bytes, at: int) -> str:
    if len(head) < BLOCK:
        raise _refused("artifact.tar", f"the archive ends at byte {at}", "two blocks of zeros end it")
    name = head[:100].rstrip(b"\0").decode("ascii", "replace")
    if not _NAME.fullmatch(name):
        raise _refused(
            "artifact.member", f"a member is called {name!r}", "names are like meta.json and core0/vector.bin"
        )
    return name


def _size(head: bytes, at: int) -> int:
    field = head[124:136]
    if not _SIZE.fullmatch(field):
        raise _refused("artifact.tar", f"size {field!r} of the member at byte {at}", "a size is 11 octal digits")
    return int(field[:11], 8)


def _refused(code: str, message: str, rule: str) -> ArtifactError:
    return ArtifactError(code, message, rule=rule, fix="compile the kernel again", location=UNKNOWN)
