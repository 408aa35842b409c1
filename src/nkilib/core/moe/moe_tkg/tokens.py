"""Hidden states of few tokens as a stack, and their results back into the layout that they came in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import stacks, streaming
from nkilib.stacks import Slab, Stack
from nkilib.streaming import sbuf, size


@dataclass(frozen=True)
class Tokens:
    """Hidden states, in HBM (T, H), or in SBUF (128, T, H / 128).

    Attributes:
        tensor: the hidden states.
        parts: of H in SBUF: partition p holds, for each part of H / parts numbers, those from ``p * n`` on, where n is
            H / 128 / parts.
    """

    tensor: Any
    parts: int

    @property
    def in_sbuf(self) -> bool:
        """Whether the hidden states lie in SBUF."""
        return bool(self.tensor.buffer == nl.sbuf)

    @property
    def count(self) -> int:
        """Number of tokens."""
        return int(self.tensor.shape[1 if self.in_sbuf else 0])

    @property
    def hidden(self) -> int:
        """Size of a hidden state."""
        return int(self.tensor.shape[2] * 128 if self.in_sbuf else self.tensor.shape[1])

    def stack(self, rows: slice) -> Stack:
        """Some tokens as a stack (H, tokens)."""
        if self.in_sbuf:
            each = self.tensor.shape[2] // self.parts
            turned = self.tensor[:, rows, :].permute((0, 2, 1))
            return [
                Slab(turned[:, part * each : (part + 1) * each, :], 0, each, part * each * 128)
                for part in range(self.parts)
            ]
        source, hidden = self.tensor[rows, :], self.hidden
        if source.dtype.itemsize == 2 and hidden % 128 == 0 and nisa.get_nc_version() >= nisa.nc_version.gen3:
            turned = sbuf((128, hidden // 128, size(rows)), source.dtype)
            pieces = source.reshape((size(rows), hidden // 128, 128))
            nisa.dma_transpose(dst=turned, src=pieces, dge_mode=nisa.dge_mode.none)
            return [Slab(turned, 0)]
        tiles = (streaming.load(source[part, :]) for part in streaming.spans(size(rows), nl.tile_size.pmax))
        return stacks.turned(tiles, size(rows), hidden, source.dtype)

    def put(self, target: Any, tile: Any, rows: slice) -> None:
        """Results (tokens, H) of some tokens into a tensor in the layout of the hidden states in SBUF."""
        each = self.tensor.shape[2] // self.parts
        for part in range(self.parts):
            for place in range(each):
                first = part * each * 128 + place
                columns = tile[:, first : first + 127 * each + 1 : each]
                streaming.transpose(columns, into=target[:, rows, part * each + place])
