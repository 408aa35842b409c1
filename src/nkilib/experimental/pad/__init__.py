"""Padding (nki/library/api/pad.rst)."""

from nkilib.experimental.pad.pad import pad

__all__ = ["pad"]
