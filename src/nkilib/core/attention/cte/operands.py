"""Queries, keys and values of prefill attention in SBUF, as both of its products want them.

Scores are computed transposed, with keys on partitions, so that their exponentials are the stationary operand of the
second product as they are. Values carry a column of ones: the same product then sums the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming as st

TILE = 128
"""Keys of a tile, on partitions, and queries of a tile of the result."""

CHUNK = 512
"""Keys that are loaded at once."""

PRODUCTS = nl.bfloat16
"""dtype of what is multiplied; sums are float32."""

FIXED = nisa.dge_mode.none
"""Addresses are known, so that descriptors are written before the kernel starts."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Keys and values in HBM that follow each other: the prefix, or those of the call.

    Attributes:
        k: ``(heads, length, d)`` if `rows`, else ``(heads, d, length)``.
        v: ``(heads, length, d)``.
        length: keys.
        rows: whether a key is a row of `k`.
        prior: whether it is the prefix.
        before: keys of the segment before it, in the columns of a bias.
        place: position of its first key, as queries count; None: 0, or not known of a prefix.
    """

    k: Any
    v: Any
    length: int
    rows: bool
    prior: bool
    before: int
    place: int | None = None

    @property
    def first(self) -> int | None:
        """Position of its first key, as queries count; None if it is not known."""
        return 0 if self.place is None and not self.prior else self.place


@dataclass(frozen=True, eq=False)
class KeyTile:
    """At most 128 keys in SBUF.

    Attributes:
        segment, start, size: which keys.
        keys: ``(d, size)``.
        values: ``(size, d + 1)``, the last column ones.
    """

    segment: Segment
    start: int
    size: int
    keys: Any
    values: Any

    @property
    def stop(self) -> int:
        """The key after the last one."""
        return self.start + self.size


@dataclass
class Head:
    """Keys and values of one head in SBUF, loaded when they are first asked for.

    Attributes:
        index: of the head, among those of keys; a number, or a scalar of the device.
    """

    index: int
    loaded: dict[tuple[bool, int], tuple[Any, Any]] = field(default_factory=dict)

    def tiles(self, segment: Segment, keys: slice) -> list[KeyTile]:
        """Tiles that cover some keys of a segment; they start at multiples of 128."""
        first = keys.start // TILE * TILE
        return [self._tile(segment, at) for at in range(first, keys.stop, TILE)] if st.size(keys) else []

    def keys(self, segment: Segment, keys: slice) -> list[tuple[slice, Any]]:
        """Keys as ``(d, at most 512)`` each, and which they are."""
        found: list[tuple[slice, Any]] = []
        for at in range(keys.start // CHUNK * CHUNK, keys.stop, CHUNK) if st.size(keys) else ():
            part = slice(max(at, keys.start), min(at + CHUNK, keys.stop))
            found.append((part, self._chunk(segment, at)[0][:, part.start - at : part.stop - at]))
        return found

    def _tile(self, segment: Segment, start: int) -> KeyTile:
        keys, values = self._chunk(segment, start // CHUNK * CHUNK)
        size, inside = min(TILE, segment.length - start), start % CHUNK
        return KeyTile(
            segment, start, size, keys[:, inside : inside + size], values[0:size, inside // TILE, 0 : values.shape[2]]
        )

    def _chunk(self, segment: Segment, start: int) -> tuple[Any, Any]:
        place = segment.prior, start
        if place not in self.loaded:
            span = slice(start, min(start + CHUNK, segment.length))
            source = segment.k.select(0, self.index)
            keys = load_columns(source[span, :] if segment.rows else source[:, span], segment.rows)
            self.loaded[place] = keys, load_values(segment.v.select(0, self.index)[span, :])
        return self.loaded[place]


def load_columns(source: Any, rows: bool) -> Any:
    """Queries or keys with the head's dimension on partitions, ``(d, count)``, in the products' dtype.

    Args:
        rows: whether each of them is a row of the source.
    """
    if not rows:
        tile = st.sbuf(source.shape, PRODUCTS)
        nisa.dma_copy(dst=tile, src=source, dge_mode=FIXED)
        return tile
    return converted(load_turned(source))


def load_turned(source: Any) -> Any:
    """Rows as columns, ``(d, count)``, in their own dtype."""
    tile = st.sbuf((source.shape[1], source.shape[0]), source.dtype)
    nisa.dma_transpose(dst=tile, src=source, dge_mode=FIXED)
    return tile


def converted(tile: Any) -> Any:
    """A tile in the products' dtype."""
    if tile.dtype == PRODUCTS:
        return tile
    result = st.sbuf(tile.shape, PRODUCTS)
    nisa.tensor_copy(dst=result, src=tile)
    return result


def load_values(source: Any) -> Any:
    """Values ``(keys, d)`` as ``(128, tiles, d + 1)``, tile by tile, with ones in the last column."""
    count, width = source.shape
    whole, rest = divmod(count, TILE)
    values = st.sbuf((TILE, st.ceil_div(count, TILE), width + 1), PRODUCTS)
    nisa.memset(dst=values[:, :, width : width + 1], value=1.0)
    if whole:
        tiles = source[0 : whole * TILE, :].reshape((whole, TILE, width))
        nisa.dma_copy(dst=values[:, 0:whole, 0:width], src=tiles.permute((1, 0, 2)), dge_mode=FIXED)
    if rest:
        nisa.dma_copy(dst=values[0:rest, whole, 0:width], src=source[whole * TILE : count, :], dge_mode=FIXED)
    return values
