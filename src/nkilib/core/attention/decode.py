"""A step of decoding, of queries in SBUF: which core does what, and which keys make a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.attention.attention_tkg_utils import AttnTKGConfig, Part, is_batch_sharded, is_s_prior_sharded, parts
from nkilib.core.attention.decode_mask import beyond
from nkilib.core.attention.decode_softmax import BANK, Constants, Piece, Result, Round, Stack, attend
from nkilib.streaming import ceil_div, load_repeated, sbuf, size, spans


@dataclass
class Step:
    """What a step works on.

    Attributes:
        cfg: sizes and options.
        queries: ``(d, sequences * heads * new tokens)`` in SBUF.
        keys: ``(d, sequences * new tokens)`` in SBUF: those of the new tokens.
        values: gives those of the new tokens of some sequences, ``(new tokens, sequences, 1, d)`` in SBUF.
        cache: `Rows` or `Blocks`.
        mask: `Mask` or `Positions`.
        sink: ``(heads, 1)`` or None.
        most: keys of a part.
        banks: of PSUM, that the scores of a round take.
        run: keys that follow each other on a partition, 0 for as many as a part has.
    """

    cfg: AttnTKGConfig
    queries: Any
    keys: Any
    values: Callable[[slice], Any]
    cache: Any
    mask: Any
    sink: Any
    most: int
    banks: int
    run: int
    constants: Constants = field(default_factory=Constants)

    def tiles(self, columns: int) -> int:
        """Tiles of keys that a round of so many columns has room for."""
        return max(1, BANK // columns * self.banks)


@dataclass
class Duty:
    """What a core does of a step.

    Attributes:
        sequences, keys: sequences, and keys of the cache.
        last: whether the new tokens are its.
        shared: whether the other core has other keys of the same sequences.
        divided: whether the other core has other sequences.
    """

    sequences: slice
    keys: slice
    last: bool
    shared: bool
    divided: bool


def duty(cfg: AttnTKGConfig, run: int) -> Duty:
    """The part of this core: of two cores, half of the sequences, or half of the keys, or all."""
    cores, core = int(nl.num_programs(0)), int(nl.program_id(0))
    sizes = (cfg.bs, cfg.q_head, cfg.s_active, cfg.curr_sprior)
    everything = Duty(slice(0, cfg.bs), slice(0, cfg.cached), True, False, False)
    if cores > 1 and is_batch_sharded(*sizes):
        half = cfg.bs // cores
        return Duty(slice(core * half, (core + 1) * half), everything.keys, True, False, True)
    if cores > 1 and is_s_prior_sharded(*sizes):
        rows = int(nl.tile_size.pmax) * max(run, 1)
        middle = cfg.cached // rows // cores * rows
        keys = slice(middle, cfg.cached) if core else slice(0, middle)
        return Duty(everything.sequences, keys, bool(core), True, False)
    return everything


def decoded(step: Step, mine: Duty, into: Any) -> None:
    """The result of this core's sequences in ``(d, columns)`` of SBUF, of any dtype."""
    cfg, pieces = step.cfg, _parts(step, mine)
    columns = size(mine.sequences) * cfg.rows
    tiles = sum(part.tiles for part in pieces)
    group = max(1, min(step.banks * BANK // (cfg.rows * tiles), int(nl.tile_size.pmax) // cfg.rows))
    drops = _drops(step, mine, pieces)
    stack = Stack(cfg.d_head, columns) if mine.shared else None
    held = stack.next() if stack else None
    sink = _sink(step, cfg.d_head) if step.sink is not None else None
    for some in spans(size(mine.sequences), group):
        there = slice(some.start * cfg.rows, some.stop * cfg.rows)
        found = _rounds(step, mine, pieces, drops, some)
        if held is not None:
            found.copy_to(held[:, :, there])
        else:
            _finish(found, sink, cfg, into[:, there])
    if stack:
        _swap_columns(held, stack.next(), cfg.use_gpsimd_sb2sb)
        _finish(Result.of(stack.merged()), sink, cfg, into)


def _parts(step: Step, mine: Duty) -> list[Part]:
    """The keys of this core, in parts that a round has room for."""
    rows = int(nl.tile_size.pmax)
    tiles = ceil_div(size(mine.keys), rows)
    room = min(step.most // rows, step.tiles(step.cfg.rows))
    most = ceil_div(tiles, ceil_div(tiles, max(1, room))) * rows  # of equal size
    return parts(mine.keys.start, mine.keys.stop, most, step.run)


def _rounds(step: Step, mine: Duty, pieces: list[Part], drops: Callable[..., list[Any]], some: slice) -> Result:
    """What some of this core's sequences find in all their keys: one round, or several that are merged."""
    cfg = step.cfg
    there = slice(mine.sequences.start + some.start, mine.sequences.start + some.stop)
    shape = (size(some), cfg.q_head, cfg.s_active)
    queries = step.queries[:, there.start * cfg.rows : there.stop * cfg.rows]
    waiting = [_piece(step, part, there, drops(part, some)) for part in pieces]
    rounds = _packed(waiting, step.tiles(cfg.rows * size(some)))
    if mine.last:
        rounds[0].append(_new_tokens(step, there, some, drops))
    if len(rounds) == 1:
        return attend(Round(rounds[0], queries, shape), step.constants, cfg.d_head)
    stack = Stack(cfg.d_head, size(some) * cfg.rows)
    for each in rounds:
        attend(Round(each, queries, shape), step.constants, cfg.d_head).copy_to(stack.next())
    return Result.of(stack.merged())


def _packed(waiting: list[Piece], room: int) -> list[list[Piece]]:
    """Pieces in rounds of at most `room` tiles; those of another number of rows count as one."""
    rounds: list[list[Piece]] = [[]]
    left = room
    for each in waiting:
        start = each.tiles.start
        while start < each.tiles.stop:
            if not left:
                rounds.append([])
                left = room
            stop = min(start + left, each.tiles.stop)
            rounds[-1].append(Piece(each.keys, each.values, each.drops, each.rows, slice(start, stop)))
            left, start = left - (stop - start), stop
    return rounds


def _piece(step: Step, part: Part, there: slice, drops: list[Any]) -> Piece:
    """A part of the cache, loaded when a round asks for it."""
    keys = cache(lambda: step.cache.load_keys(part, there))
    values = cache(lambda: step.cache.load_values(part, there))

    def key(i: int, t: int) -> Any:
        return keys()(i, t)

    return Piece(key, values, drops, part.rows, slice(0, part.tiles))


def _new_tokens(step: Step, there: slice, some: slice, drops: Callable[..., list[Any]]) -> Piece:
    """The new tokens, a key on each of as many partitions."""
    cfg = step.cfg

    def key(i: int, _: int) -> Any:
        first = (there.start + i) * cfg.s_active
        return step.keys[:, first : first + cfg.s_active]

    return Piece(key, cache(lambda: step.values(there)), drops(None, some), cfg.s_active, slice(0, 1))


_HELD_BYTES = 48 * 1024
"""Of a partition, for what drops keys of all sequences; beyond it is loaded for some sequences at a time."""


def _drops(step: Step, mine: Duty, pieces: list[Part]) -> Callable[..., list[Any]]:
    """What drops keys of a part, or of the new tokens (None), for some of this core's sequences."""
    cfg = step.cfg

    def load(part: Part | None, there: slice) -> list[Any]:
        if part is None:
            return list(step.mask.active(there))
        return [*step.mask.drops(part, there), *beyond(part, cfg.curr_sprior - cfg.s_active)]

    every = cache(lambda part: load(part, mine.sequences))
    columns = size(mine.sequences) * cfg.rows
    held = 3 * columns * sum(part.tiles for part in pieces) <= _HELD_BYTES

    def of(part: Part | None, some: slice) -> list[Any]:
        if held:
            return [each if each.shape[1] == 1 else each[:, some] for each in every(part)]
        return load(part, slice(mine.sequences.start + some.start, mine.sequences.start + some.stop))

    return of


def _sink(step: Step, head: int) -> Any:
    """The scores of the sink on every partition: ``(d, 1, heads, 1)``."""
    return load_repeated(step.sink, head, nl.float32).reshape((head, 1, step.cfg.q_head, 1))


def _finish(found: Result, sink: Any, cfg: AttnTKGConfig, into: Any) -> None:
    """``o / l``, where a sink adds its own weight to l."""
    head, columns = into.shape
    total = found.sums[:, 0, :]
    if sink is not None:
        shape = (head, columns // cfg.rows, cfg.q_head, cfg.s_active)
        own = sbuf(shape, nl.float32)
        nisa.tensor_tensor(
            dst=own,
            data1=sink.broadcast(1, shape[1]).broadcast(3, shape[3]),
            data2=found.n.reshape(shape),
            op=nl.add,
        )
        nisa.activation(dst=own, op=nl.exp, data=own)
        every = sbuf((head, columns), nl.float32)
        nisa.tensor_tensor(dst=every, data1=own.reshape((head, columns)), data2=total, op=nl.add)
        total = every
    share = sbuf((head, columns), nl.float32)
    nisa.reciprocal(dst=share, data=total)
    nisa.tensor_tensor(dst=into, data1=found.sums[:, 1, :], data2=share, op=nl.multiply)


def _swap_columns(mine: Any, theirs: Any, through_gpsimd: bool) -> None:
    head, slots, columns = mine.shape
    flat = (head, slots * columns)
    swap(mine.reshape(flat), theirs.reshape(flat), through_gpsimd)


def swap(src: Any, dst: Any, through_gpsimd: bool) -> None:
    """Give the other core a tile ``(rows, n)``, and get its tile."""
    other = 1 - int(nl.program_id(0))
    via = nisa.dma_engine.gpsimd_dma if through_gpsimd else nisa.dma_engine.dma
    for here in spans(src.shape[1], 256 if through_gpsimd else src.shape[1]):  # what GpSimd's own DMA moves at once
        nisa.sendrecv(
            src=src[:, here], dst=dst[:, here], send_to_rank=other, recv_from_rank=other, pipe_id=0, dma_engine=via
        )
