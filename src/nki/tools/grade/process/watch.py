"""Tells what a candidate does beside being traced: files, sockets, processes, sleeping.

The operating system refuses most of it; this gives it a name. Python's audit events cannot be switched off by Python
code, and what is told has left the process at once. Sleeping is no such event in all versions, and is replaced: whoever
gets around that gains nothing, as no clock counts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Tell = Callable[[str, str], None]
"""Called with the kind of what happened, one of `KINDS`, and what it was."""

KINDS = ("reads", "writes", "network", "process", "sleep", "memory")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PROCESS = (
    "subprocess.Popen",
    "os.system",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.exec",
    "pty.spawn",
    "os.kill",
)
_CHANGES = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"),
    *("os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr"),
)
_LOOKS = ("os.listdir", "os.scandir")
_MEMORY = ("gc.get_objects", "gc.get_referrers")
_TWO_PATHS = ("os.rename", "os.link")


def watch(folder: Path, readable: Sequence[Path], tell: Tell) -> None:
    """From now on tell, and refuse, what leaves the folder of the process; for as long as the process lives."""
    watcher = _Watcher(folder, readable)

    def refuse(kind: str, what: str) -> None:
        tell(kind, what)
        raise PermissionError(f"a kernel is traced without this: {kind} {what}"[:300])

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        found = watcher.seen(event, arguments)
        if found is not None:
            refuse(*found)

    sys.addaudithook(hook)
    time.sleep = lambda seconds: refuse("sleep", f"{seconds} s")


class _Watcher:
    """Knows the folder of the process and what it may read."""

    def __init__(self, folder: Path, readable: Sequence[Path]) -> None:
        self._own = (f"{folder}{os.sep}",)
        self._places = tuple(f"{place}{os.sep}" for place in (folder, *readable))

    def seen(self, event: str, arguments: tuple[Any, ...]) -> tuple[str, str] | None:
        """What an audit event is that must not be, and of what; None if it may."""
        if event == "open":
            return self._opened(arguments[0], arguments[2] or 0)
        if event in _LOOKS:
            return None if self._is_inside(arguments[0], self._places) else ("reads", os.fsdecode(arguments[0]))
        if event in _CHANGES:
            changed = arguments[: 2 if event in _TWO_PATHS else 1]
            return next((("writes", os.fsdecode(p)) for p in changed if not self._is_inside(p, self._own)), None)
        if event in _PROCESS:
            return "process", event
        if event in _MEMORY:
            return "memory", event
        return ("network", event) if event.startswith("socket.") and event != "socket.gethostname" else None

    def _opened(self, path: Any, flags: int) -> tuple[str, str] | None:
        writes = bool(flags & _WRITING)
        if self._is_inside(path, self._own if writes else self._places) or os.fsdecode(path) == os.devnull:
            return None
        if writes:
            return "writes", os.fsdecode(path)
        return ("reads", os.fsdecode(path)) if os.path.lexists(path) else None

    def _is_inside(self, path: Any, roots: tuple[str, ...]) -> bool:
        """Whether a path leads into one of some folders; descriptors were opened before."""
        if path is None or isinstance(path, int):
            return True
        return f"{os.path.realpath(os.fsdecode(path))}{os.sep}".startswith(roots)
