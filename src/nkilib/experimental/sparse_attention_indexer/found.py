"""The largest scores of each query: where they are, in one of three forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.topk.topk_plan import TopkPlan
from nkilib.core.topk.topk_ring import constants
from nkilib.experimental.mla.deepseek.packed import BLOCK
from nkilib.experimental.topk.gpsimd_topk import positions, snakes
from nkilib.streaming import ceil_div, filled, load, result, sbuf, size, spans, store

EIGHT = 8
"""Rows that GpSimd searches at once."""
_SEGMENTS = 16


@dataclass(frozen=True)
class Found:
    """Results.

    Attributes:
        scores: (rows, positions) in float32, in HBM.
        places: of the largest of each row: (rows, k) if flat, else (tiles, 16, 128, k or k / 16).
        k: how many.
        plan: how rows lie on partitions.
        lengths: (128, 1), elements of each partition's segment.
    """

    scores: Any
    places: Any
    k: int
    plan: TopkPlan
    lengths: Any

    @classmethod
    def new(cls, tiles: int, rows: int, columns: int, k: int, flat: bool, tiled: bool) -> Found:
        """Empty ones.

        Raises:
            KernelLimit: k is no multiple of 16, and the form wants it.
        """
        if flat or tiled:
            limits.multiple("index_topk", k, _SEGMENTS, "16 partitions have as many positions each")
        parts, plan = BLOCK // EIGHT, TopkPlan(_SEGMENTS, ceil_div(columns, _SEGMENTS), EIGHT)
        if flat:
            places = result((rows, k), nl.int32)
        elif tiled:
            places = result((tiles, parts, BLOCK, k // _SEGMENTS), nl.int32)
        else:
            places = result((tiles, parts, BLOCK, k), nl.uint32)
        lengths = load(nl.shared_constant(constants(plan, EIGHT, columns)))[:, -1:]
        return cls(result((rows, columns), nl.float32), places, k, plan, lengths)

    def search(self, rows: slice, tile: int) -> None:
        """Find the largest of some rows, whose scores are in HBM.

        Args:
            rows: at most 128, of `scores`.
            tile: which tile of `places` they are.
        """
        columns, written = ceil_div(self.k, _SEGMENTS), self.scores[0 : rows.stop]
        for number, eight in enumerate(spans(size(rows), EIGHT)):
            here = slice(rows.start + eight.start, rows.start + eight.stop)
            _, found = snakes(written, here, self.plan, self.lengths, self.k)
            indices = positions(found[:, 0:columns], self.plan.length)
            kept = indices
            if self.places.dtype != indices.dtype:
                kept = sbuf(indices.shape, self.places.dtype)
                nisa.tensor_copy(dst=kept, src=indices)
            if len(self.places.shape) == 2:
                store(self.places[here].reshape_dim(1, (_SEGMENTS, columns)), kept)
            else:
                store(self.places[tile, number, 0 : kept.shape[0], 0:columns], kept)
        if len(self.places.shape) > 2:
            self._clear(self.places[tile], _SEGMENTS * size(rows), columns)

    def _clear(self, places: Any, rows: int, columns: int) -> None:
        """Zeros where a tile (16, 128, k or k / 16) has no position: in rows and columns behind these."""
        parts, _, width = places.shape
        zeros = filled((BLOCK, width), places.dtype, 0)
        for number in range(parts):
            have = min(BLOCK, max(0, rows - number * BLOCK))
            if have < BLOCK:
                store(places[number, have:, 0:columns], zeros[have:, 0:columns])
            if columns < width:
                store(places[number, :, columns:], zeros[:, columns:])
