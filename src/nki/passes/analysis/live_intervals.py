"""Live intervals: from when to when something takes bytes of an on-chip memory, as allocators ask for them."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """An interval of time that needs `size` bytes at a multiple of `align`, in `partitions` from `start` on."""

    first: int
    last: int
    size: int
    partitions: int
    align: int
    start: int = 0


class Fixed(NamedTuple):
    """An interval of time whose bytes are given, in partitions `partition` to `partition_end`."""

    first: int
    last: int
    start: int
    end: int
    partition: int
    partition_end: int


class Room(NamedTuple):
    """Where items may lie: bytes 0 to `limit`, and none that fits between two multiples of `boundary` across one.

    Items that end before partition `half` and those that begin there may share bytes; it is 0 if all begin at 0.
    """

    limit: int
    boundary: int = 0
    half: int = 0
