"""Memory on large pages: rows of tiles are far apart, and each small page that they touch needs an entry of the TLB."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

LARGE = 2 << 20
"""Bytes of a large page: x86-64, and AArch64 with pages of 4 KiB."""
_WORTH = 1 << 20
"""Less than this is left on small pages, so that a small kernel does not occupy a large one."""


def reserved(size: int) -> np.ndarray:
    """`size` bytes, uint8, of any content; on large pages where the system has them and there are enough bytes.

    NumPy itself asks for large pages for arrays from 4 MiB on, but does not place an array at the beginning of one.
    """
    if size < _WORTH or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, np.uint8)
    memory = mmap.mmap(-1, -(-size // LARGE) * LARGE + LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without them: the pages stay small
        memory.madvise(mmap.MADV_HUGEPAGE)
    found = np.frombuffer(memory, np.uint8)
    start = -found.__array_interface__["data"][0] % LARGE
    return found[start : start + size]
