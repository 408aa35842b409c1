"""A transfer to the chip of which only a part is needed: it moves that part, in the dimensions in which it is one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from nki.core.tensor import View
from nki.spec.program import Issued
from nki.spec.verify import verify
from nki.target.model import Target

_PARTS = 16
"""Parts of a dimension that are looked at."""

IsNeeded = Callable[[View], bool]


def narrowed(issued: Issued, is_needed: IsNeeded, target: Target) -> Issued:
    """The transfer of what is needed of its destination; the same one if that is all of it, or no box.

    Args:
        is_needed: whether somebody reads some byte of a part of the destination.
    """
    pairs = _pairs(issued)
    dst, src = (dict(issued.views()).get(name) for name in ("dst", "src"))
    if pairs is None or dst is None or src is None or not dst.on_chip:
        return issued
    whole = dst.shape
    for dim, other in pairs:
        low, high = _range(dst, dim, is_needed)
        dst, src = part(dst, dim, low, high), part(src, other, low, high)
    if dst.shape == whole:
        return issued
    made = issued._replace(arguments=issued.arguments._replace(dst=dst, src=src))
    return issued if verify(made, target) else made


def in_two(issued: Issued, target: Target) -> list[tuple[Issued, Issued]]:
    """A transfer as two, in the outermost dimension of its destination, and in that of its source, if it has some."""
    pairs = _pairs(issued)
    if pairs is None:
        return []
    dst, src = issued.arguments.dst, issued.arguments.src
    long = [(dim, other) for dim, other in pairs if dst.shape[dim] > 1]
    if not long:
        return []
    chosen = [max(long, key=lambda pair: dst.strides[pair[0]]), max(long, key=lambda pair: src.strides[pair[1]])]
    found = []
    for dim, other in dict.fromkeys(chosen):
        ends = 0, dst.shape[dim] // 2, dst.shape[dim]
        made = [
            issued._replace(
                arguments=issued.arguments._replace(dst=part(dst, dim, low, high), src=part(src, other, low, high))
            )
            for low, high in pairwise(ends)
        ]
        if not any(verify(each, target) for each in made):
            found.append((made[0], made[1]))
    return found


def _pairs(issued: Issued) -> list[tuple[int, int]] | None:
    """Which dimension of the destination is which of the source; None if that is not known."""
    if issued.instruction.name not in ("dma_copy", "dma_transpose"):
        return None
    dst, src = issued.arguments.dst, issued.arguments.src
    dims = list(range(len(src.shape)))
    if issued.instruction.name == "dma_transpose":
        dims[0], dims[-1] = dims[-1], dims[0]
    if dst.dynamic is not None or src.dynamic is not None or dst.shape != tuple(src.shape[dim] for dim in dims):
        return None
    return list(enumerate(dims))


def _range(view: View, dim: int, is_needed: IsNeeded) -> tuple[int, int]:
    """The first index of a dimension that is needed, and the one after the last; to some step."""
    size = view.shape[dim]
    step = -(-size // _PARTS)
    low, high = 0, size
    while low + step < high and not is_needed(part(view, dim, low, low + step)):
        low += step
    while high - step > low and not is_needed(part(view, dim, high - step, high)):
        high -= step
    return low, high


def part(view: View, dim: int, start: int, stop: int) -> View:
    """A range of one dimension of a view."""
    shape = (*view.shape[:dim], stop - start, *view.shape[dim + 1 :])
    return view._replace(shape=shape, offset=view.offset + start * view.strides[dim])
