"""The first products of a block, and what is computed of them: ``activation(gate) * up``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import products, streaming
from nkilib.core.moe.moe_cte.block import Block, Share
from nkilib.core.moe.moe_cte.layer import Clamp, Layer
from nkilib.products import Slab, Stack
from nkilib.streaming import sbuf, size


def middle_of(layer: Layer, share: Share, block: Block) -> Stack:
    """``activation(gate) * up`` as a stack (I, B)."""
    own = _empty(share.middle, layer)
    numbers = [_Columns.load(layer, block, slab) for slab in own]
    factor = repeated(block, layer.block) if layer.scales_input or layer.scales_middle else None
    weights = layer.gate_up.select(0, block.expert)
    both = (weights[:, 0, :], weights[:, 1, :])
    for part, tokens, gate, up in products.products_turned(block.hidden, *both, columns=share.middle):
        which = 0 if gate.shape[0] == nl.tile_size.pmax else -1
        first = (part.start - own[which].start) // nl.tile_size.pmax
        for tile in range(gate.shape[1]):
            sums = (gate[:, tile, :], up[:, tile, :])
            _Middle(layer, block, numbers[which].of(first + tile), factor, own[which], first + tile, tokens).make(*sums)
    return own + _exchanged(share, own, layer)


def _empty(rows: slice, layer: Layer) -> Stack:
    """A stack for some rows of (I, B), in order: whole pieces of 128, and a smaller one."""
    pmax = nl.tile_size.pmax
    whole, rest = divmod(size(rows), pmax)
    stack = [Slab(sbuf((pmax, whole, layer.block), layer.dtype), rows.start)] if whole else []
    return stack + ([Slab(sbuf((rest, 1, layer.block), layer.dtype), rows.stop - rest)] if rest else [])


def _exchanged(share: Share, own: Stack, layer: Layer) -> Stack:
    """The other core's half of the stack, for this core's."""
    if share.other is None:
        return []
    other, core = _empty(share.other, layer), nl.program_id(0)
    for mine, theirs in zip(own, other, strict=True):
        nisa.sendrecv(dst=theirs.tile, src=mine.tile, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    return other


def repeated(block: Block, tokens: int) -> Any:
    """The affinities of all tokens on every partition, (128, B).

    They lie on partitions, and have to lie along the free dimension: for each partition of the result the Tensor engine
    sums over a diagonal matrix of affinities.
    """
    height, tiles = block.affinities.shape
    ones = streaming.filled((height, nl.tile_size.pmax), nl.float32, 1.0)
    unit = nl.shared_identity_matrix(height, nl.float32)
    repeated = sbuf((nl.tile_size.pmax, tokens), nl.float32)
    for tile in range(tiles):
        affinities, diagonal = block.affinities[:, tile : tile + 1], sbuf((height, height), nl.float32)
        nisa.tensor_scalar(dst=diagonal, data=unit, op0=nl.multiply, operand0=affinities)
        total = streaming.psum((nl.tile_size.pmax, height))
        nisa.nc_matmul(dst=total, stationary=ones, moving=diagonal)
        nisa.tensor_copy(dst=repeated[:, tile * height : (tile + 1) * height], src=total)
    return repeated


@dataclass(frozen=True)
class _Columns:
    """What columns of the first products are multiplied with and what is added: (height, 2, pieces), or None."""

    scale: Any
    bias: Any

    @staticmethod
    def load(layer: Layer, block: Block, slab: Slab) -> _Columns:
        """Those of one slab of the middle, of the block's expert."""
        scale, bias = (
            None if every is None else _column_tiles(every.select(0, block.expert), slab)
            for every in (layer.gate_up_scale, layer.gate_up_bias)
        )
        return _Columns(scale, bias)

    def of(self, piece: int) -> _Columns:
        """Those of one piece, (height, 2)."""
        return _Columns(*(None if every is None else every[:, :, piece] for every in (self.scale, self.bias)))


def _column_tiles(rows: Any, slab: Slab) -> Any:
    """Rows (2, I) of HBM with the slab's rows on partitions, (height, 2, pieces) in float32."""
    height, pieces = slab.tile.shape[:2]
    wanted = rows[:, slab.start : slab.start + height * pieces].reshape_dim(1, (pieces, height))
    found = sbuf((height, 2, pieces), nl.float32)
    nisa.dma_copy(dst=found, src=wanted.permute((2, 0, 1)), dge_mode=nisa.dge_mode.swdge)
    return found


Step = tuple[Any, Any]
"""An operator, and the number or the column that is its second operand."""


@dataclass(frozen=True)
class _Middle:
    """One piece of the middle: 128 of its columns, some tokens."""

    layer: Layer
    block: Block
    numbers: _Columns
    factor: Any
    slab: Slab
    piece: int
    tokens: slice

    def make(self, gate: Any, up: Any) -> None:
        """``activation(gate) * up`` of the sums in PSUM."""
        layer, into = self.layer, self.slab.tile[:, self.piece, self.tokens]
        gate, up = self._scaled(gate), self._scaled(up)
        gates, ups = self._steps(0, layer.gate_clamp), self._steps(1, layer.up_clamp)
        if layer.saved_gate_up is not None:
            gate, gates = self._saved(gate, gates, 0), []
            up, ups = self._saved(up, ups, 1), []
        active = _activated(layer.function, gate, gates)
        up, last = _stepped(up, ups[:-1]), ups[-1:]
        for op, operand in last:
            nisa.scalar_tensor_tensor(dst=into, data=up, op0=op, operand0=operand, op1=nl.multiply, operand1=active)
        if not last:
            nisa.tensor_tensor(dst=into, data1=active, data2=up, op=nl.multiply)
        if layer.scales_middle:
            nisa.tensor_tensor(dst=into, data1=into, data2=self._factors(), op=nl.multiply)

    def _factors(self) -> Any:
        return self.factor[0 : self.slab.tile.shape[0], self.tokens]

    def _scaled(self, sums: Any) -> Any:
        """Sums times the affinities of their tokens, if their input should have been."""
        if not self.layer.scales_input:
            return sums
        scaled = sbuf(sums.shape, nl.float32)
        nisa.tensor_tensor(dst=scaled, data1=sums, data2=self._factors(), op=nl.multiply)
        return scaled

    def _steps(self, which: int, clamp: Clamp) -> list[Step]:
        """From sums to what the activation function, or the product with it, gets."""
        scale, bias, (least, most) = self.numbers.scale, self.numbers.bias, clamp
        steps: Sequence[Step] = (
            (nl.multiply, None if scale is None else scale[:, which : which + 1]),
            (nl.add, None if bias is None else bias[:, which : which + 1]),
            (nl.minimum, most),
            (nl.maximum, least),
        )
        return [step for step in steps if step[1] is not None]

    def _saved(self, sums: Any, steps: list[Step], which: int) -> Any:
        """What follows from sums, which also goes to HBM."""
        done, layer = _stepped(sums, steps), self.layer
        first = self.slab.start + self.piece * nl.tile_size.pmax
        rows = layer.saved_gate_up.select(0, self.block.number)[which, first : first + done.shape[0], self.tokens]
        kept = sbuf(done.shape, layer.saved_gate_up.dtype)
        nisa.tensor_copy(dst=kept, src=done)
        streaming.store(rows, kept)
        return done


def _activated(function: Any, gate: Any, steps: list[Step]) -> Any:
    """The activation function of sums; Scalar multiplies and adds on the way if nothing else is to be done."""
    active = sbuf(gate.shape, nl.float32)
    operators = [op for op, _ in steps]
    if operators in ([], [nl.multiply], [nl.add], [nl.multiply, nl.add]):
        known = dict(zip(operators, (operand for _, operand in steps), strict=True))
        scale, bias = known.get(nl.multiply, 1.0), known.get(nl.add)
        nisa.activation(dst=active, op=function, data=gate, scale=scale, bias=bias)
        return active
    nisa.activation(dst=active, op=function, data=_stepped(gate, steps))
    return active


def _stepped(data: Any, steps: list[Step]) -> Any:
    """Two steps with each instruction of Vector."""
    for pair in (steps[first : first + 2] for first in range(0, len(steps), 2)):
        done = sbuf(data.shape, nl.float32)
        second = {"op1": pair[1][0], "operand1": pair[1][1]} if len(pair) > 1 else {}
        nisa.tensor_scalar(dst=done, data=data, op0=pair[0][0], operand0=pair[0][1], **second)
        data = done
    return data
