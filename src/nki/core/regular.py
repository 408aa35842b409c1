"""Reading files that somebody names: whole, and only if they are files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_regular(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file; devices and pipes, which may never end, are none.

    Args:
        path: the file.
        most: more bytes are not read; None for all.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(-1 if most is None else most)
