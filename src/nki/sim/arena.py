"""The bytes of one on-chip memory that tensors with an address share, and the notes of which were written."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nki.sim.unwritten import fill_unwritten

_PADDING = 64
"""Bytes between partitions: rows that are a power of two apart share cache sets."""


class Arena(NamedTuple):
    """All partitions of SBUF or PSUM.

    Attributes:
        base: uint8; byte b of partition p is byte ``p * pitch + b``.
        written: bool per byte of `base`.
        reach: bytes of each partition that tensors may use.
    """

    base: np.ndarray
    written: np.ndarray
    pitch: int
    reach: int

    def grown(self, reach: int, uninitialized: str) -> Arena:
        """An arena with this one's bytes and notes, in longer partitions; what is new is unwritten."""
        partitions = len(self.base) // self.pitch
        wider = new_arena(partitions, reach, uninitialized)
        for old, new in ((self.base, wider.base), (self.written, wider.written)):
            rows = new.reshape(partitions, wider.pitch)
            rows[:, : self.reach] = old.reshape(partitions, self.pitch)[:, : self.reach]
        return wider


def new_arena(partitions: int, reach: int, uninitialized: str | None) -> Arena:
    """Unwritten memory that shows what `fill_unwritten` fills in; zeros if `uninitialized` is None."""
    pitch = -(-reach // _PADDING) * _PADDING + _PADDING
    base = np.zeros(partitions * pitch, np.uint8)
    if uninitialized is not None:
        fill_unwritten(base, None, uninitialized)
    return Arena(base, np.zeros(partitions * pitch, bool), pitch, reach)
