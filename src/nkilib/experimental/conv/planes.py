"""Planes of a volume in SBUF, with zeros around them."""

from __future__ import annotations

from typing import Any

from nkilib import streaming
from nkilib.streaming import size


def padded_plane(x: Any, batch: int, plane: int, channels: slice, rows: slice, columns: slice) -> Any:
    """A part of a plane of ``(B, C, D, H, W)`` in HBM: ``(channels, rows, columns)`` in SBUF.

    Args:
        rows, columns: positions, outside of the plane too, where there are zeros.
    """
    down, across = _within(rows, x.shape[3]), _within(columns, x.shape[4])
    shape = (size(channels), size(rows), size(columns))
    whole = shape[1:] == (size(down), size(across))
    tile = streaming.sbuf(shape, x.dtype) if whole else streaming.filled(shape, x.dtype, 0.0)
    if size(down) > 0 and size(across) > 0:
        place = tile[:, back_to(down, rows), back_to(across, columns)]
        streaming.copy(place, x[batch, channels, plane, down, across])
    return tile


def back_to(positions: slice, origin: slice) -> slice:
    """Positions counted from the first of others."""
    return slice(positions.start - origin.start, positions.stop - origin.start)


def _within(positions: slice, length: int) -> slice:
    start = min(max(positions.start, 0), length)
    return slice(start, max(start, min(positions.stop, length)))
