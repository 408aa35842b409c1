"""Kernels on two cores that exchange data, kernels that use their memory again, and kernels whose loops count down."""

from __future__ import annotations

from typing import Any

from benchmarks.kernels.products import loaded
from benchmarks.kernels.rows import PIECE, ROWS, like, sbuf, tiles

import nki.isa as nisa
import nki.language as nl


def exchanged(a: Any) -> Any:
    """``exp(a)`` plus the same with its columns' halves exchanged: a core makes one half and is sent the other."""
    core, half = nl.program_id(0), a.shape[1] // 2
    out = like(a)
    for number, rows in enumerate(tiles(a)):
        here = (rows, nl.ds(core * half, half))
        x, sent, total = loaded(a[here]), sbuf(ROWS, half), sbuf(ROWS, half)
        nisa.activation(dst=x, op=nl.exp, data=x)
        nisa.sendrecv(x, sent, 1 - core, 1 - core, pipe_id=number % 2)
        nisa.tensor_tensor(dst=total, data1=x, data2=sent, op=nl.add)
        nisa.dma_copy(dst=out[here], src=total)
    return out


def gathered(a: Any) -> Any:
    """Differences of both cores' tiles in every trip of a loop, through device memory; a: (2, trips, 128, n)."""
    core, shape = nl.program_id(0), a.shape[2:]
    out = like(a)
    shared = nl.ndarray((2, *shape), a.dtype, buffer=nl.shared_hbm, name="shared")

    def body(i: Any) -> None:
        x, other, total = (sbuf(*shape) for _ in range(3))
        nisa.dma_copy(dst=x, src=a[core].select(0, i))
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=shared[core], src=x)
        nisa.core_barrier(shared, cores=(0, 1))
        nisa.dma_copy(dst=other, src=shared[1 - core])
        nisa.tensor_tensor(dst=total, data1=x, data2=other, op=nl.subtract)
        nisa.core_barrier(shared, cores=(0, 1))
        nisa.dma_copy(dst=out[core].select(0, i), src=total)

    nl.fori_loop(0, a.shape[1], body)
    return out


def passed(a: Any) -> Any:
    """A value that goes back and forth between the cores, trip by trip; a: (2, trips, 128, n)."""
    core, shape = nl.program_id(0), a.shape[2:]
    out = nl.ndarray((2, *shape), a.dtype, buffer=nl.shared_hbm)
    value = sbuf(*shape)
    nisa.memset(dst=value, value=0.5)

    def body(i: Any) -> None:
        x, received = sbuf(*shape), sbuf(*shape)
        nisa.dma_copy(dst=x, src=a[core].select(0, i))
        nisa.tensor_tensor(dst=x, data1=value, data2=x, op=nl.add)
        nisa.sendrecv(x, received, 1 - core, 1 - core, pipe_id=0)
        nisa.tensor_scalar(dst=value, data=received, op0=nl.multiply, operand0=0.75)

    nl.fori_loop(0, a.shape[1], body)
    nisa.dma_copy(dst=out[core], src=value)
    return out


def buffered(a: Any) -> Any:
    """``relu(a) * 3`` through two tensors at addresses of the kernel's own, used again piece by piece."""
    out = like(a)
    places = [nl.ndarray((ROWS, PIECE), nl.float32, buffer=nl.sbuf, address=(0, n * PIECE * 4)) for n in range(4)]
    pieces = [(rows, slice(s, s + PIECE)) for rows in tiles(a) for s in range(0, a.shape[1], PIECE)]
    for number, here in enumerate(pieces):
        x, y = places[number % 2], places[2 + number % 2]
        nisa.dma_copy(dst=x, src=a[here])
        nisa.activation(dst=y, op=nl.relu, data=x)
        nisa.tensor_scalar(dst=x, data=y, op0=nl.multiply, operand0=3.0)
        nisa.dma_copy(dst=out[here], src=x)
    return out


def doubled(a: Any) -> Any:
    """Adds each tile of the argument to the one before, in the argument itself, and returns the sum of all tiles."""
    total = sbuf(ROWS, a.shape[1])
    out = nl.ndarray((ROWS, a.shape[1]), a.dtype, buffer=nl.shared_hbm)
    nisa.memset(dst=total, value=0.0)
    for rows in tiles(a):
        x = loaded(a[rows])
        nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)
        nisa.dma_copy(dst=a[rows], src=total)
    nisa.dma_copy(dst=out, src=total)
    return out


def spilled(a: Any) -> Any:
    """Every tile through the same rows of device memory, and back: ``exp(a) + a``."""
    out, scratch = like(a), nl.ndarray((ROWS, a.shape[1]), a.dtype, buffer=nl.private_hbm)
    for rows in tiles(a):
        x, y, z = (sbuf(ROWS, a.shape[1]) for _ in range(3))
        nisa.dma_copy(dst=x, src=a[rows])
        nisa.activation(dst=y, op=nl.exp, data=x)
        nisa.dma_copy(dst=scratch, src=y)
        nisa.dma_copy(dst=z, src=scratch)
        nisa.tensor_tensor(dst=z, data1=z, data2=x, op=nl.add)
        nisa.dma_copy(dst=out[rows], src=z)
    return out


def ordered(a: Any) -> Any:
    """Loads that keep their order among each other, and work that does not: ``(a + 1) * a`` for every tile."""
    out = like(a)
    for rows in tiles(a):
        x, y = sbuf(ROWS, a.shape[1]), sbuf(ROWS, a.shape[1])
        with nl.no_reorder():
            nisa.dma_copy(dst=x, src=a[rows])
            nisa.dma_copy(dst=y, src=a[rows])
            nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0)
        nisa.tensor_tensor(dst=y, data1=y, data2=x, op=nl.multiply)
        nisa.dma_copy(dst=out[rows], src=y)
    return out


def counted(a: Any, start: int) -> Any:
    """A loop that counts a register down and halves one tile for every count; a: (tiles, 128, n)."""
    out = like(a)
    for number in range(a.shape[0]):
        x = loaded(a[number])
        nisa.dma_copy(dst=out[number], src=x)

    def body(count: Any) -> Any:
        seen, following = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_move(seen, count)
        y = sbuf(*a.shape[1:])
        nisa.dma_copy(dst=y, src=out.select(0, seen))
        nisa.tensor_scalar(dst=y, data=y, op0=nl.multiply, operand0=0.5)
        nisa.dma_copy(dst=out.select(0, seen), src=y)
        nisa.register_move(following, count - 1)
        return following

    first = nisa.register_alloc()
    nisa.register_move(first, start)
    nl.while_loop(first, body)
    return out


def nested(a: Any) -> Any:
    """A loop in a loop, with a sum that both continue: after trip i it is ``i + 1`` times that of all tiles of a."""
    out, shape = like(a), a.shape[1:]
    total = sbuf(*shape)
    nisa.memset(dst=total, value=0.0)

    def outer(i: Any) -> None:
        def inner(j: Any) -> None:
            x = sbuf(*shape)
            nisa.dma_copy(dst=x, src=a.select(0, j))
            nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)

        nl.fori_loop(0, a.shape[0], inner)
        nisa.dma_copy(dst=out.select(0, i), src=total)

    nl.fori_loop(0, a.shape[0], outer)
    return out
