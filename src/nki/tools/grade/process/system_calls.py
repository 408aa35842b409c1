"""A filter of system calls: no sockets, no other processes, no modes of files (Linux on x86-64 and AArch64)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_SECCOMP, _FILTER = 22, 2  # of prctl
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in what a filter sees
_THREAD = 0x10000  # the flag of clone for a thread of the same process

_DENIED = """
socket 41 198, connect 42 203, bind 49 200, sendto 44 206, fork 57 -, vfork 58 -, execve 59 221,
execveat 322 281, kill 62 129, tkill 200 130, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240,
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, unshare 272 97, setns 308 268,
mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, bpf 321 280, perf_event_open 298 241,
userfaultfd 323 282, io_uring_setup 425 425, open_by_handle_at 304 265, keyctl 250 219, add_key 248 217,
request_key 249 218, pidfd_open 434 434, pidfd_getfd 438 438, pidfd_send_signal 424 424, chmod 90 -,
fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54,
setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7
"""
"""System calls that are refused: name, number on x86-64, number on AArch64, which has not all of them."""


@dataclass(frozen=True, slots=True)
class _Architecture:
    """What the kernel calls it, its column in `_DENIED`, and the calls whose first argument decides."""

    token: int
    column: int
    clone: int
    tgkill: int
    prlimit: int

    def denied(self) -> list[int]:
        """Numbers of the calls that are refused."""
        rows = [row.split() for row in _DENIED.split(",")]
        return sorted(int(row[self.column]) for row in rows if row[self.column] != "-")


_ARCHITECTURES: Mapping[str, _Architecture] = MappingProxyType(
    {
        "x86_64": _Architecture(0xC000003E, 1, 56, 234, 302),
        "aarch64": _Architecture(0xC00000B7, 2, 220, 131, 261),
    }
)
_CLONE3 = 435  # whose flags are in memory, which no filter sees: "not there", so that clone is called
_MOST = 1 << 30  # x86-64 has a second table of numbers above


def restrict_system_calls(libc: ctypes.CDLL) -> bool:
    """Refuse the calls of `_DENIED` from now on, in this thread and what it starts; False where that cannot be."""
    found = _ARCHITECTURES.get(platform.machine())
    if found is None:
        return False
    code = b"".join(_program(found, os.getpid()))
    instructions = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(instructions))
    return int(libc.prctl(_SECCOMP, _FILTER, ctypes.c_char_p(program), 0, 0)) == 0


def _program(found: _Architecture, own: int) -> list[bytes]:
    """The filter, in the instructions of the kernel's packet filter; each jump is over what follows it at once."""
    refuse, allow = _step(_RETURN, _ERROR | errno.EPERM), _step(_RETURN, _ALLOW)
    steps = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, found.token, 1, 0), refuse, _step(_LOAD, _NUMBER)]
    steps += [_step(0x35, _MOST, 0, 1), refuse]  # at least
    for number in found.denied():
        steps += [_step(_EQUAL, number, 0, 1), refuse]
    steps += [_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _ERROR | errno.ENOSYS)]
    first = _step(_LOAD, _FIRST_ARGUMENT)
    steps += [_step(_EQUAL, found.clone, 0, 4), first, _step(_ANY_BIT, _THREAD, 1, 0), refuse, allow]
    steps += [_step(_EQUAL, found.tgkill, 0, 4), first, _step(_EQUAL, own, 1, 0), refuse, allow]
    steps += [_step(_EQUAL, found.prlimit, 0, 5), first, _step(_EQUAL, own, 2, 0), _step(_EQUAL, 0, 1, 0), refuse]
    return [*steps, allow, allow]


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("HBBI", code, then, otherwise, value)
