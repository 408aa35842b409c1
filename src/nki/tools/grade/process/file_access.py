"""Landlock: which files a process may read and write from now on (Linux 5.13 and later)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE = 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_RIGHTS = ((1, (1 << 13) - 1), (2, 1 << 13), (3, _TRUNCATE), (5, 1 << 15))
"""Version of Landlock, and the rights to files that it added."""
_TCP, _SIGNALS_AND_SOCKETS = 3, 3


def restrict_files(libc: ctypes.CDLL, readable: Iterable[Path], writable: Iterable[Path]) -> int:
    """Allow reading beneath some paths, everything beneath others, and nothing else; the version, 0 if there is none.

    TCP, signals to other processes and abstract sockets are refused as well where the kernel can do that.
    """
    version = int(libc.syscall(_CREATE_RULESET, None, 0, _VERSION))
    if version < 1:
        return 0
    rights = sum(bits for since, bits in _RIGHTS if version >= since)
    fields = [rights, *([_TCP] if version >= 4 else []), *([_SIGNALS_AND_SOCKETS] if version >= 6 else [])]
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = int(libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    if ruleset < 0:
        return 0
    try:
        for path in readable:
            _allow(libc, ruleset, path, _READ)
        for path in writable:
            _allow(libc, ruleset, path, rights)
        return version if int(libc.syscall(_RESTRICT_SELF, ruleset, 0)) == 0 else 0
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    """What is not there needs no rule."""
    try:
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = rights if path.is_dir() else rights & _OF_FILES
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, found), 0)
    finally:
        os.close(found)
