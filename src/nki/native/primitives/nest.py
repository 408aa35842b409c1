"""Loops over the dimensions of several operands at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from nki.native.primitives.writer import FunctionBuilder

Walker = tuple[str, Sequence[str]]
"""A pointer, and its stride in each dimension."""


@contextmanager
def nest(w: FunctionBuilder, extents: Sequence[str], walkers: Sequence[Walker]) -> Iterator[tuple[str, ...]]:
    """One loop for each extent, the first outermost; yields the pointers at the current position."""
    with ExitStack() as loops:
        pointers = [pointer for pointer, _ in walkers]
        for axis, extent in enumerate(extents):
            index = loops.enter_context(w.loop(0, extent))
            strides = [walker[axis] for _, walker in walkers]
            pointers = [w.at(p, w.mul(index, s)) for p, s in zip(pointers, strides, strict=True)]
        yield tuple(pointers)
