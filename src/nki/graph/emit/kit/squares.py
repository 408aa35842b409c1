"""Transposes on chip that move bits: infinities, NaN and integers of all targets stay what and where they are."""

from __future__ import annotations

import nki.isa as nisa
from nki.core.nki_tensor import NkiTensor

SQUARE = 32
"""What Vector transposes at a time."""


def padded(size: int) -> int:
    """The size in whole squares."""
    return -(-size // SQUARE) * SQUARE


def transpose(dst: NkiTensor, src: NkiTensor) -> None:
    """``dst = src.T`` in SBUF, (partitions, elements) in whole squares, on Vector."""
    for row in range(0, src.shape[0], SQUARE):
        for column in range(0, src.shape[1], SQUARE):
            nisa.nc_transpose(
                dst=dst[column : column + SQUARE, row : row + SQUARE],
                data=src[row : row + SQUARE, column : column + SQUARE],
                engine=nisa.engine.vector,
            )
