"""Opening a file that somebody else wrote: a regular file, no link, not larger than it may be."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, most: int) -> BinaryIO:
    """A regular file of at most so many bytes. Raises OSError; its errno is EFBIG if the file is larger."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    if found.st_size > most:
        os.close(descriptor)
        raise OSError(errno.EFBIG, f"it has {found.st_size} bytes, at most {most} are read")
    return os.fdopen(descriptor, "rb")
