"""The record of one instruction: its form's words with the addresses filled in."""

from __future__ import annotations

from collections.abc import Sequence

from nki.core.tensor import View
from nki.native.operand_layout import SLOT, STREAMED, UNIT, Place
from nki.native.records.extents import Overlap, overlap
from nki.native.records.forms import Native
from nki.native.records.move_records import with_mode
from nki.native.records.moves import Multiplied, Product, Transposed

_INNER = SLOT - 2
"""Word of a slot that holds the count of its fastest dimension; behind it is the stride."""
STREAMED_BYTES = 256
"""Rows from which streaming pays: of some whole lines."""


def record(
    native: Native, function: int, views: Sequence[View | None], places: Sequence[Place], adds: bool
) -> list[int] | None:
    """The words for operands at these places; a view is None for registers.

    `adds` says whether a matmul adds to what is there. None if the operands share bytes in a way that the function does
    not allow.
    """
    words = native.template.filled(function, views, places)
    for at, source in enumerate(native.sources):
        if source.writes and views[at] is not None and not _apart(native, words, views, places, at):
            return None
        if source.writes and places[at].large:
            _stream(native, words, at, views[at])
    return with_mode(words, adds) if isinstance(native.move, Product) else words


def _apart(native: Native, words: list[int], views: Sequence[View | None], places: Sequence[Place], at: int) -> bool:
    """Make the record right where operands are read in the bytes that this one writes; False if it cannot be."""
    written = views[at]
    assert written is not None, "asked by the caller"
    for i, (source, view) in enumerate(zip(native.sources, views, strict=True)):
        if view is None or i == at or places[i].memory != places[at].memory or places[i].base != places[at].base:
            continue
        how = overlap(view, places[i], written, places[at])
        if how is Overlap.none or (how is Overlap.same and (native.streaming or source.writes)):
            continue
        if how is Overlap.across or native.move is not None or source.writes:
            return False
        words[native.template.patches[i].at + UNIT] = 0  # has them copied first
    return True


def _stream(native: Native, words: list[int], at: int, view: View | None) -> None:
    """Have a destination written past the caches if its rows are contiguous and long enough."""
    if view is None or isinstance(native.move, Multiplied | Product | Transposed):
        return
    size, patches = view.dtype.itemsize, native.template.patches
    count, stride = words[patches[at].at + _INNER :][:2]
    if native.move is None:
        fits = words[patches[at].at + UNIT] != 0
    else:  # a copy, which streams from rows that are contiguous as well
        fits = stride == words[patches[1].at + _INNER + 1] == size
    if fits and count * size >= STREAMED_BYTES:
        words[patches[at].at + UNIT] = STREAMED
