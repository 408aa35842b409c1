"""The two products of an MLP for tokens that stay in SBUF together, and where their result goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import nki.isa as nisa
import nki.language as nl
from nkilib.core.mlp.plan import Plan
from nkilib.core.mlp.projections import Finish, activate
from nkilib.core.mlp.results import Kept, Streamed
from nkilib.core.mlp.static_scales import Static
from nkilib.core.mlp.weight_products import (
    Weights,
    by_columns,
    by_rows,
    column_groups,
    columns_at_once,
    paired,
    panel_of,
    slabs,
)
from nkilib.core.utils.common_types import ActFnType
from nkilib.streaming import Panel, ceil_div, leave, sbuf, size, spans


class Source(Protocol):
    """Where tokens come from."""

    def order(self, matrix: Any) -> Weights:
        """Weights in the order of the panels' tiles."""

    def panel(self, rows: slice) -> Panel:
        """Some tokens, at most 512: tiles ``(features <= 128, tokens)``."""


@dataclass(frozen=True)
class GatedUnit:
    """``activation(gate) * up``, then ``down``.

    Attributes:
        gate, up, down: the projections, with their vectors in SBUF; the gate may be None.
        activation: of the gate, or without one of the up projection.
        dtype: of the inner features.
        static: their scale, if they have 8 bits.
    """

    gate: Finish | None
    up: Finish
    down: Finish
    activation: ActFnType
    dtype: Any
    static: Static | None = None

    def compute(self, source: Source, plan: Plan, target: Callable[[slice], Streamed | Kept]) -> None:
        """All tokens of this core; `target` says of each block of them where its result goes."""
        panel = source.panel(plan.rows[0])
        for rows, following in zip(plan.rows, [*plan.rows[1:], None], strict=True):
            inner, place = self.inner(panel, plan), target(rows)
            groups = column_groups(plan.columns, size(rows))
            for number, columns in enumerate(groups):
                if following is not None and number == len(groups) // 2:
                    panel = source.panel(following)  # here its loads come early, and nothing waits for its turn
                self.outer(inner, columns, place)

    def inner(self, panel: Panel, plan: Plan) -> Panel:
        """The inner features of the tokens: this core's, and in exchange for them the other one's."""
        pmax, tokens, count = nl.tile_size.pmax, panel[0].shape[-1], size(plan.inner)
        mine = sbuf((pmax, plan.slots or ceil_div(count, pmax), tokens), self.dtype)
        if count < plan.slots * pmax:
            nisa.memset(dst=mine[:, count // pmax :, :], value=0.0)  # all of it is sent
        for part in spans(count, columns_at_once(self.up.projection.weights, tokens)):
            columns = slice(plan.inner.start + part.start, plan.inner.start + part.stop)
            self._group(panel, columns, part.start // pmax, mine)
        tiles = _exchanged(mine) if plan.slots else [mine]
        return [piece for tile, part in zip(tiles, plan.parts, strict=True) for piece in panel_of(tile, size(part))]

    def _group(self, panel: Panel, columns: slice, first: int, target: Any) -> None:
        """Some inner features into their tiles of the target, from the first one on."""
        gates: dict[int, Any] = {}

        def keep(tile: int, sums: Any) -> None:
            gates[tile] = sbuf(sums.shape, nl.float32)
            activate(gates[tile], self._applied(self.gate, sums, first + tile), self.activation)

        def multiply(tile: int, sums: Any) -> None:
            rows, count, _ = sums.shape
            into = target[0:rows, first + tile : first + tile + count, :]
            value = self._applied(self.up, sums, first + tile)
            made = into if self.static is None else sbuf(sums.shape, nl.float32)
            if self.gate is None:
                activate(made, value, self.activation)
            else:
                nisa.tensor_tensor(dst=made, data1=value, data2=gates.pop(tile), op=nl.multiply)
            if self.static is not None:
                self.static.round(into, made)

        if self.gate is not None:
            by_columns(self.gate.projection.weights, panel, columns, keep)
        by_columns(self.up.projection.weights, panel, columns, multiply)

    def _applied(self, finish: Finish | None, sums: Any, tile: int) -> Any:
        assert finish is not None
        return finish.applied(sums, slice(tile, tile + sums.shape[1]))

    def outer(self, inner: Panel, columns: slice, target: Streamed | Kept) -> None:
        """Columns of the result of those tokens."""

        def finish(tokens: slice, across: slice, sums: Any) -> None:
            tile = target.place(tokens, across)
            if self.down.applied(sums, across, tile) is sums:
                leave(tile, sums, across.start // nl.tile_size.psum_bank_fmax)
            target.done(tokens, across, tile)

        by_rows(slabs(self.down.projection.weights, columns, paired(self.dtype)), inner, columns, finish)


def _exchanged(mine: Any) -> list[Any]:
    """What both cores have, the first one's before."""
    other, core = sbuf(mine.shape, mine.dtype), nl.program_id(0)
    nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    return [other, mine] if core else [mine, other]
