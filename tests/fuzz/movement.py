"""Steps of a random kernel: transfers, matrix products, random numbers, registers, addresses and the other core."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from tests.fuzz.scope import TABLES, Scope

ENGINE = nisa.engine
FIRST_FIXED = 128 * 1024
"""Where tiles with explicit addresses lie: far behind everything that a small kernel needs."""


def load(s: Scope) -> None:
    dst = s.tile()
    plane = s.random.randrange(TABLES)
    src = s.x.select(0, s.register()) if s.chance(0.4) else s.x[plane]
    s.note(nisa.dma_copy(dst=dst, src=src))
    s.tiles.append(dst)


def load_rows(s: Scope) -> None:
    """Rows that an index tensor chooses."""
    offsets = nl.ndarray((s.partitions, 1), nl.int32, buffer=nl.sbuf)
    dst = s.tile(nl.float32)
    s.note(nisa.iota(offsets, [[0, 1]], offset=s.random.randrange(s.partitions), channel_multiplier=2))
    s.note(nisa.dma_copy(dst=dst, src=s.rows.vector_select(0, offsets)))
    s.tiles.append(dst)


def store(s: Scope) -> None:
    own, src = s.out[s.me], s.some()
    if s.cores == 1 and s.chance(0.4):  # of two cores nobody could tell that they keep apart
        s.note(nisa.dma_copy(dst=own.select(0, s.register()), src=src))
        return
    plane, width = s.random.randrange(TABLES), s.free // 2
    at, to = s.random.randint(0, width), s.random.randint(0, width)
    s.note(nisa.dma_copy(dst=own[plane][:, to : to + width], src=src[:, at : at + width]))


def spill(s: Scope) -> None:
    """To device memory and back, in halves."""
    src, dst = s.some(), s.tile()
    away = nl.ndarray((s.partitions, s.free), src.dtype, buffer=nl.private_hbm)
    half = s.free // 2
    for part in (slice(0, half), slice(half, s.free)):
        s.note(nisa.dma_copy(dst=away[:, part], src=src[:, part]))
    s.note(nisa.dma_copy(dst=dst, src=away))
    s.tiles.append(dst)


def matmul(s: Scope) -> None:
    """A sum of products in a new PSUM tile, or on top of an old one; in one piece or in two."""
    fresh = not s.sums or s.chance(0.6)
    dst = s.tile(nl.float32, buffer=nl.psum) if fresh else s.random.choice(s.sums)
    half = s.free // 2
    pieces = [slice(0, s.free)] if s.chance(0.6) else [slice(0, half), slice(half, s.free)]
    for part in pieces:
        for number in range(s.random.randint(1, 3)):
            starts = number == 0 and (fresh or s.chance(0.5))
            mode = s.random.choice([None, False] if starts and fresh else [False] if starts else [None, True])
            left, right = s.some(), s.some()
            if (left.dtype is nl.float32) != (right.dtype is nl.float32):
                right = left
            stationary = left[:, 0 : s.partitions]
            s.note(nisa.nc_matmul(dst[:, part], stationary, right[:, part], accumulate=mode))
    if fresh:
        s.sums.append(dst)
    if s.chance(0.7):
        tile = s.tile()
        s.note(nisa.tensor_scalar(tile, dst, nl.multiply, 0.0625))
        s.tiles.append(tile)


def transpose(s: Scope) -> None:
    src, dst = s.some(), s.tile()
    square = src[:, 0 : s.partitions]
    turned = nl.ndarray((s.partitions, s.partitions), src.dtype, buffer=nl.psum)
    s.note(nisa.nc_transpose(turned, square))
    s.note(nisa.memset(dst, 0.5))
    s.note(nisa.tensor_copy(dst[:, 0 : s.partitions], turned))
    s.tiles.append(dst)


def random_numbers(s: Scope) -> None:
    bits, dst = s.tile(nl.uint32), s.tile()
    if s.chance(0.2):
        s.note(nisa.set_rng_seed(s.index[0:1, 0:1]))
    s.note(nisa.rng(bits, engine=s.random.choice([ENGINE.vector, ENGINE.gpsimd])))
    s.note(nisa.tensor_scalar(dst, bits, nl.multiply, 2.0**-32))
    s.tiles.append(dst)


def dropout(s: Scope) -> None:
    src = s.some()
    dst = s.tile(src.dtype)
    s.note(nisa.dropout(dst, src, 0.5))
    s.tiles.append(dst)


def register(s: Scope) -> None:
    """A new register, or another number below TABLES in an old one."""
    kind = s.random.randrange(5)
    if kind == 0 or s.chance(0.3):
        s.registers.append(nisa.register_alloc(s.random.randrange(TABLES)))
        return
    changeable = [r for r in s.registers if not r.record.frozen]
    if not changeable:
        return
    dst, number = s.random.choice(changeable), s.random.randrange(8)
    if kind == 1:
        nisa.register_load(dst, s.index[0:1, number : number + 1])
    elif kind == 2:
        nisa.register_store(s.index[0:1, number : number + 1], s.register())
    elif kind == 3:
        nisa.register_move(dst, s.register())
    else:
        grown = nisa.NkiScalar(s.register().record) + s.random.randrange(1, 4)
        nisa.register_move(dst, grown % TABLES if s.chance(0.5) else grown.minimum(TABLES - 1))


def fixed(s: Scope) -> None:
    """Two tiles at explicit addresses, the second partly on top of the first."""
    at = FIRST_FIXED + 64 * s.random.randrange(8)
    shift = s.random.choice([0, 4, 2 * s.free, 4 * s.free])
    for byte in (at, at + shift):
        tile = nl.ndarray((s.partitions, s.free), nl.float32, buffer=nl.sbuf, address=(0, byte))
        s.note(nisa.tensor_copy(tile, s.some(), engine=s.compute(tile)))
        s.tiles.append(tile)


def exchange(s: Scope) -> None:
    """Data from the other core: through device memory and a barrier, or sent."""
    src = s.some()
    dst = s.tile(src.dtype)
    if s.chance(0.5):
        s.note(nisa.sendrecv(src, dst, 1 - s.me, 1 - s.me, pipe_id=s.random.randrange(2)))
    else:
        shared = nl.ndarray((2, s.partitions, s.free), src.dtype, buffer=nl.shared_hbm)
        s.note(nisa.dma_copy(dst=shared[s.me], src=src))
        s.note(nisa.core_barrier(shared, (0, 1)))
        s.note(nisa.dma_copy(dst=dst, src=shared[1 - s.me]))
    s.tiles.append(dst)


def dump(s: Scope, tiles: list[Any], width: int) -> Any:
    """Tiles as one tensor in device memory."""
    result = nl.ndarray((s.cores, len(tiles), s.partitions, width), nl.float32, buffer=nl.shared_hbm)
    for number, tile in enumerate(tiles):
        nisa.dma_copy(dst=result[s.me, number], src=tile)
    return result


STEPS = {
    load: 5, load_rows: 1, store: 4, spill: 1, matmul: 5, transpose: 1, random_numbers: 1, dropout: 1, register: 4,
}  # fmt: skip
"""Each step with how often it is taken, anywhere."""
