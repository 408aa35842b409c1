"""Files in a private directory that appear complete or not at all, and are checked when they are read."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"NKIC\x01"
_DIGEST = hashlib.sha256().digest_size
_HEADER = len(_MAGIC) + _DIGEST

ENTRY = ".nkic"
PART = ".part"
_LOCK = "lock"


class UnsafeDirectoryError(OSError):
    """A directory that somebody else could have written to."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as the directory lists it.

    Attributes:
        name: file name.
        nbytes: size.
        used_ns: when it was last read or written, in nanoseconds of the system's clock.
    """

    name: str
    nbytes: int
    used_ns: int


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that appears complete or not at all, also if the machine stops. Raises OSError."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        _sync_directory(path.parent)
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def private_directory(path: Path) -> Iterator[int]:
    """Open a directory that only this user can write; made, with mode 0700, if it is not there.

    Everything else goes through the descriptor, so that nobody can put another directory in its place meanwhile.

    Raises:
        UnsafeDirectoryError: it is a link, no directory, another user's, or others may write to it.
        OSError: it cannot be made or opened.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if path.is_symlink() or not path.is_dir():
            raise UnsafeDirectoryError(f"{path} is a link or a file, not a directory") from None
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(directory)
        if status.st_uid != os.geteuid():
            raise UnsafeDirectoryError(f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnsafeDirectoryError(f"others may write to {path} (mode {stat.S_IMODE(status.st_mode):04o})")
        yield directory
    finally:
        os.close(directory)


def write(directory: int, name: str, payload: bytes) -> bool:
    """Put a file in place at once, checksummed; whoever reads meanwhile sees the old one, the new one, or none.

    False if somebody removed the unfinished file meanwhile.
    """
    temporary = f"{secrets.token_hex(8)}{PART}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + _checksum(name, payload) + payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except FileNotFoundError:
        return False
    except BaseException:
        remove(directory, temporary)
        raise
    return True


def read(directory: int, name: str) -> bytes | None:
    """The payload, and note that it was used; None if there is none, or if it is damaged: then it is removed."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError:  # a link, for one
        remove(directory, name)
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        regular = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        data = file.read() if regular else b""
        payload = data[_HEADER:]
        if not data.startswith(_MAGIC) or data[len(_MAGIC) : _HEADER] != _checksum(name, payload):
            remove(directory, name)
            return None
        os.utime(file.fileno())
    return payload


def remove(directory: int, name: str) -> None:
    """Remove a file that may be gone already; one that cannot be removed stays."""
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:
        return


def listed(directory: int) -> list[Entry]:
    """The cache's own files, complete and unfinished ones, in no order."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.endswith((ENTRY, PART)):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found.append(Entry(entry.name, status.st_size, status.st_mtime_ns))
    return found


@contextmanager
def locked(directory: int) -> Iterator[None]:
    """Only one process at a time; the system ends the lock with the process."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(_LOCK, flags, 0o600, dir_fd=directory)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # a process that was forked meanwhile has the handle too, and would keep it
        os.close(handle)


def _checksum(name: str, payload: bytes) -> bytes:
    """SHA-256 of name and contents, so that a file under another name counts as damaged."""
    return hashlib.sha256(name.encode() + b"\0" + payload).digest()
