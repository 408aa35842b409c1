"""What a process gives up before it runs a candidate: files, network, other processes, time and memory."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nki.tools.grade.process.file_access import restrict_files
from nki.tools.grade.process.system_calls import restrict_system_calls

_NO_NEW_PRIVILEGES = 38  # of prctl
_NEW_USER, _NEW_NETWORK, _NEW_IPC = 0x10000000, 0x40000000, 0x08000000
_OPEN_FILES = 256
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/sys", "/proc/self")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/dev/urandom", "/dev/zero", "/proc/cpuinfo", "/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate's process may use: seconds of CPU and of wall time, bytes of memory, of files, of its answer."""

    seconds: float = 60.0
    memory: int = 4 << 30
    file: int = 64 << 20
    files: int = 1000
    answer: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Isolation:
    """What was in force; False and 0 where the operating system has it not, or does not permit it.

    Attributes:
        limits: of CPU time, memory, sizes of files and their number.
        network_namespace: a network of its own, without any device.
        landlock: version of Landlock by which files are limited.
        system_calls: whether sockets, processes and looks into others are refused by the kernel.
    """

    limits: bool
    network_namespace: bool
    landlock: int
    system_calls: bool

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "limits": self.limits,
            "network_namespace": self.network_namespace,
            "landlock": self.landlock,
            "system_calls": self.system_calls,
        }

    @property
    def complete(self) -> bool:
        """Whether the kernel keeps the process from other files, from the network and from other processes."""
        return self.limits and self.landlock > 0 and self.system_calls


def readable_places() -> list[Path]:
    """Where Python and this package are: all that a candidate may read beside its own folder."""
    package = Path(__file__).resolve().parents[4]
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    found = [Path(place).resolve() for place in (*prefixes, *filter(None, sys.path), *_SYSTEM, *_SYSTEM_FILES)]
    return [*dict.fromkeys([package, *found])]


def confine(folder: Path, limits: Limits) -> Isolation:
    """Give up everything that tracing does not need. To be called before anything starts a thread."""
    _limit(limits)
    if sys.platform != "linux":
        return Isolation(True, False, 0, False)
    libc = ctypes.CDLL(None, use_errno=True)
    network = int(libc.unshare(_NEW_USER | _NEW_NETWORK | _NEW_IPC)) == 0
    if int(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)) != 0:
        return Isolation(True, network, 0, False)
    landlock = restrict_files(libc, readable_places(), [folder, Path(os.devnull)])
    return Isolation(True, network, landlock, restrict_system_calls(libc))


def _limit(limits: Limits) -> None:
    seconds = max(1, int(limits.seconds))
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, seconds, seconds + 1),
        (resource.RLIMIT_AS, limits.memory, limits.memory),
        (resource.RLIMIT_FSIZE, limits.file, limits.file),
        (resource.RLIMIT_NOFILE, _OPEN_FILES, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))
