"""Records of integers: how the operands of an instruction lie in memory, as compiled functions read it.

A record is a sequence of int64 words: the address of the function, the number of words, the partitions P, the elements
per partition F, then 14 words for each operand (a slot), then immediates. A slot holds the number of a base address,
the byte offset from there, the stride of the partitions in bytes, whether the elements of a partition are contiguous,
and five pairs (count, stride in bytes), the fastest last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nki.core.tensor import Buffer, View

HEADER = 4
SLOT = 14
DIMENSIONS = 5
BASES = 16
"""The first base address in the words of the context."""

PANELS = 8
"""The base address of packed operands that several products share."""

UNIT = 3
"""Word of a slot that says whether the elements of a partition are contiguous."""
STREAMED = 2
"""Value of the word `UNIT` for a destination whose rows are contiguous, and are written past the caches."""

_LARGE = 12 << 20
"""Bytes from which a tensor of device memory is written past the caches: with an operand or two of its size it is too
large for the last-level cache of a current processor. On Zen 4 with 32 MiB of that, sums of two tensors of 16 MiB take
1.0 ms in place of 1.45; what reads and writes 8 MiB takes as long or longer."""

Dimension = tuple[int, int]


class Place(NamedTuple):
    """Where the bytes of a buffer are: byte b of partition p is at ``base + start + p * pitch + b``.

    Attributes:
        base: number of the base address.
        memory: what tells memories apart that have the same base; buffers in one memory have one pitch.
        large: whether the caches keep little of the buffer anyway, so that it is written past them.
    """

    base: int
    start: int
    pitch: int
    memory: int = 0
    large: bool = False


def is_large(buffer: Buffer) -> bool:
    """Whether a buffer is device memory of which the caches keep little."""
    return not buffer.on_chip and buffer.nbytes >= _LARGE


def start_of(view: View, place: Place) -> tuple[int, int]:
    """Byte offset of the first element of a static view from its base, and the stride of its first dimension."""
    size = view.dtype.itemsize
    if not view.buffer.on_chip:
        return place.start + view.offset * size, view.strides[0] * size if view.strides else 0
    partition, free = divmod(view.offset, view.row)
    return place.start + partition * place.pitch + free * size, place.pitch


def row_dims(view: View) -> list[Dimension]:
    """The dimensions but the first, in bytes; neighbours that one stride steps through are one."""
    size = view.dtype.itemsize
    return merged([(n, s * size) for n, s in zip(view.shape[1:], view.strides[1:], strict=True)])


def merged(dims: Sequence[Dimension]) -> list[Dimension]:
    """Fewest dimensions that visit the same bytes in the same order."""
    result: list[Dimension] = []
    for count, stride in dims:
        if count == 1:
            continue
        if result and result[-1][1] == stride * count:
            result[-1] = (result[-1][0] * count, stride)
        else:
            result.append((count, stride))
    return result


def padded(dims: Sequence[Dimension]) -> list[int]:
    """Five pairs, missing ones in front."""
    words = [1, 0] * (DIMENSIONS - len(dims))
    for count, stride in dims:
        words += (count, stride)
    return words


def refined(first: Sequence[Dimension], second: Sequence[Dimension]) -> tuple[list[Dimension], list[Dimension]] | None:
    """Both sequences of dimensions with the same counts, which visit the same elements in the same order.

    A dimension is split where the other one has a boundary; None where that does not divide it.
    """
    left, right = [d for d in reversed(first) if d[0] != 1], [d for d in reversed(second) if d[0] != 1]
    one: list[Dimension] = []
    two: list[Dimension] = []
    while left and right:
        (a, s), (b, t) = left.pop(0), right.pop(0)
        count = min(a, b)
        if a % count or b % count:
            return None
        one.append((count, s))
        two.append((count, t))
        if a > count:
            left.insert(0, (a // count, s * count))
        if b > count:
            right.insert(0, (b // count, t * count))
    if left or right:
        return None
    return _merged_together(one[::-1], two[::-1])


def _merged_together(
    first: Sequence[Dimension], second: Sequence[Dimension]
) -> tuple[list[Dimension], list[Dimension]]:
    one: list[Dimension] = []
    two: list[Dimension] = []
    for (count, s), (_, t) in zip(first, second, strict=True):
        if one and one[-1][1] == s * count and two[-1][1] == t * count:
            one[-1], two[-1] = (one[-1][0] * count, s), (two[-1][0] * count, t)
        else:
            one.append((count, s))
            two.append((count, t))
    return one, two
