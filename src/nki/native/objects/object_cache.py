"""Machine code on disk: a private directory beside the compiled kernels, from which nothing is used in doubt."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from nki.core.source import UNKNOWN
from nki.native import cpu_features
from nki.report import warn
from nki.spec.rule import Finding
from nki.store import files
from nki.store.cache import Cache
from nki.store.keys import key_of

T = TypeVar("T")

DIRECTORY = "native"
"""Below the directory of the compiled kernels."""

SHARE = 8
"""Objects may take the eighth part of what kernels may take, besides it."""


def object_key(name: str) -> str:
    """The key of a module's object, 64 hexadecimal digits.

    It covers the versions of this package and of MLIR, the source of a checkout (whose version stays the same while
    somebody edits it), and the processor.

    Args:
        name: of the module, with a digest of everything else that its text depends on.
    """
    return key_of("object", name=name, processor=cpu_features.digest())


class Objects:
    """Object files by key.

    Directories and files are used if they are this user's alone (modes 0700 and 0600), are no links, and hold what
    their checksums say. Others are ignored, and written anew where that is possible.

    Args:
        directory: that of the compiled kernels.
        limit_bytes: what those may take.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._cache = Cache(directory / DIRECTORY, limit_bytes // SHARE)
        self._usable = True

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return self._cache.directory

    def __contains__(self, key: str) -> bool:
        """Whether there is a file that `get` would read."""
        name = key + files.ENTRY
        return self._there() and self._use(lambda directory: _private_file(directory, name), False)

    def get(self, key: str) -> bytes | None:
        """The object, or None if there is none that can be trusted.

        Args:
            key: from `object_key`.
        """
        if not self._there():
            return None
        name = key + files.ENTRY
        return self._use(lambda at: files.read(at, name) if _private_file(at, name) else None, None)

    def put(self, key: str, data: bytes) -> bool:
        """Keep an object; False if it was not kept: it is too large, or the directory is unusable.

        Args:
            key: from `object_key`.
        """
        return self._use(lambda _: True, False) and self._cache.put(key, data)

    def _there(self) -> bool:
        """Whether there is a directory at all, which reading does not make, or something else in its place."""
        above = self.directory.parent
        if os.path.lexists(self.directory):
            return True
        return os.path.lexists(above) and (above.is_symlink() or not above.is_dir())

    def _use(self, use: Callable[[int], T], otherwise: T) -> T:
        """Do something in the directory; a doubt about it ends the use of these files, with a warning."""
        if not self._usable:
            return otherwise
        try:
            with _private(self.directory.parent), _private(self.directory) as directory:
                return use(directory)
        except OSError as error:
            self._usable = False
            warn(_unusable(self.directory, error))
            return otherwise


@contextmanager
def _private(path: Path) -> Iterator[int]:
    """A directory that others cannot even look into: stricter than for kernels, because these files are executed."""
    with files.private_directory(path) as directory:
        mode = stat.S_IMODE(os.fstat(directory).st_mode)
        if mode & 0o077:
            raise files.UnsafeDirectoryError(f"others have access to {path} (mode {mode:04o} instead of 0700)")
        yield directory


def _private_file(directory: int, name: str) -> bool:
    """Whether a regular file is there, and is this user's alone and under this name alone."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1
    return own and not status.st_mode & 0o077


def _unusable(directory: Path, error: OSError) -> Finding:
    return Finding(
        "cache.unusable",
        "warning",
        f"native code is not kept on disk: {error}",
        "it is kept in a directory to which its user alone has access",
        "",
        f"remove {directory.parent}, set NKI_CACHE_DIR to another directory, or set NKI_CACHE=0",
        UNKNOWN,
        MappingProxyType({}),
    )
