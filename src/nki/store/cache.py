"""A bounded store of bytes by key, for all processes of a user at once; whatever goes wrong is a miss."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from nki.core.errors import UsageError
from nki.core.source import UNKNOWN
from nki.report import warn
from nki.spec.rule import Finding
from nki.store import files
from nki.store.keys import changed_since_import

T = TypeVar("T")

FORMAT = "v1"
"""Name of the directory below the one that the user names: another format gets another directory."""

_KEY = re.compile(r"[0-9a-f]{64}")
_AFTER_EVICTION = 0.9
_ABANDONED_NS = 3600 * 10**9
"""A file that was not finished for so long belongs to a process that ended in the middle."""


@dataclass(frozen=True, slots=True)
class Info:
    """What a cache holds.

    Attributes:
        directory: where.
        entries: how many.
        nbytes: their size, with that of unfinished files.
        limit_bytes: what `nbytes` is kept below.
        oldest_ns, newest_ns: when the least and the most recently used one was used, in nanoseconds of the system's
            clock; 0 if there is none.
    """

    directory: Path
    entries: int
    nbytes: int
    limit_bytes: int
    oldest_ns: int
    newest_ns: int

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "directory": str(self.directory),
            "entries": self.entries,
            "bytes": self.nbytes,
            "limit_bytes": self.limit_bytes,
            "oldest_ns": self.oldest_ns,
            "newest_ns": self.newest_ns,
        }


class Cache:
    """Payloads by key in one directory, the least recently used ones removed first.

    Writing is atomic and needs no lock: equal keys mean equal payloads, so it does not matter who comes last. A
    directory that cannot be used is a warning, once, and then every `get` is a miss and every `put` does nothing.

    Args:
        directory: the user's; entries are in a directory of their own below it.
        limit_bytes: bound of the size of all files together.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory / FORMAT
        self.limit_bytes = limit_bytes
        self._usable = True

    def get(self, key: str) -> bytes | None:
        """The payload, or None; an entry that is damaged is removed.

        Args:
            key: 64 hexadecimal digits.
        """
        name = _name(key)
        return self._use(lambda directory: files.read(directory, name), None)

    def put(self, key: str, payload: bytes) -> bool:
        """Keep a payload, and make room.

        Returns False if it was not kept: it is too large, the directory is unusable, or files of this package were
        changed after this process imported it, so that nobody knows what made the payload.

        Args:
            key: 64 hexadecimal digits.
        """
        name = _name(key)
        if len(payload) >= self.limit_bytes * _AFTER_EVICTION or changed_since_import():
            return False

        def keep(directory: int) -> bool:
            kept = files.write(directory, name, payload)
            self._make_room(directory)
            return kept

        return self._use(keep, False)

    def info(self) -> Info:
        """What there is now."""
        found: list[files.Entry] = self._use(files.listed, []) if self.directory.exists() else []
        used = [entry.used_ns for entry in found if entry.name.endswith(files.ENTRY)]
        nbytes = sum(entry.nbytes for entry in found)
        oldest, newest = min(used, default=0), max(used, default=0)
        return Info(self.directory, len(used), nbytes, self.limit_bytes, oldest, newest)

    def clear(self) -> Info:
        """Remove every entry; returns what there was."""
        before = self.info()
        if before.nbytes:
            self._use(_remove_all, None)
        return before

    def _make_room(self, directory: int) -> None:
        """Without what dead processes left; then down to nine tenths of the limit, so that not every `put` has to."""
        abandoned = time.time_ns() - _ABANDONED_NS
        listed = files.listed(directory)
        for entry in listed:
            if entry.name.endswith(files.PART) and entry.used_ns < abandoned:
                files.remove(directory, entry.name)
        if sum(entry.nbytes for entry in listed) <= self.limit_bytes:
            return
        with files.locked(directory):
            found = sorted(files.listed(directory), key=lambda entry: entry.used_ns)
            total = sum(entry.nbytes for entry in found)
            for entry in found if total > self.limit_bytes else ():
                if total > self.limit_bytes * _AFTER_EVICTION and entry.name.endswith(files.ENTRY):
                    files.remove(directory, entry.name)
                    total -= entry.nbytes

    def _use(self, use: Callable[[int], T], otherwise: T) -> T:
        """Do something in the directory; an error of the system ends the use of this cache, with a warning."""
        if not self._usable:
            return otherwise
        try:
            with files.private_directory(self.directory) as directory:
                return use(directory)
        except OSError as error:
            self._usable = False
            warn(_unusable(self.directory, error))
            return otherwise


def _remove_all(directory: int) -> None:
    with files.locked(directory):
        for entry in files.listed(directory):
            files.remove(directory, entry.name)


def _name(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise UsageError(
            "cache.key",
            f"{key!r} is no key of the cache",
            rule="a key is a SHA-256 in hexadecimal digits",
            fix="make keys with nki.store.keys.key_of",
        )
    return key + files.ENTRY


def _unusable(directory: Path, error: OSError) -> Finding:
    return Finding(
        "cache.unusable",
        "warning",
        f"kernels are not kept on disk: {error}",
        "the cache is a directory that its user alone can write",
        "",
        f"remove {directory}, set NKI_CACHE_DIR to another directory, or set NKI_CACHE=0",
        UNKNOWN,
        MappingProxyType({}),
    )
