"""Which loads fill tiles that nothing else writes, and what may change what they bring."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.passes.analysis.tile_loads import Enter, Leave, Load, Store, tile_loads
from tests.ir.kernels import traced

A = np.zeros((128, 16), np.float32)


def tile(name: str) -> Any:
    return nl.ndarray((128, 16), nl.float32, buffer=nl.sbuf, name=name)


def test_events_come_in_the_order_of_the_program() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        x, y = tile("x"), tile("y")
        nisa.dma_copy(dst=x, src=a)
        nisa.dma_copy(dst=out, src=x)

        def trip(i: Any) -> None:
            z = tile("z")
            nisa.dma_copy(dst=z, src=a)
            nisa.dma_copy(dst=y, src=a)  # belongs to the block outside
            nisa.dma_copy(dst=out, src=z)

        nl.fori_loop(0, 3, trip)
        nisa.core_barrier(data=out, cores=(0, 1))
        return out

    program = traced(kernel, A, lnc=2)[0]
    found = tile_loads(program)
    assert [type(event) for event in found.events] == [Load, Store, Enter, Load, Store, Leave, Store]
    assert [event.position for event in found.events] == [0, 1, 2, 2, 4, 5, 5]
    assert [event.trips for event in found.events if isinstance(event, Enter)] == [3]
    assert [event.meets for event in found.events if isinstance(event, Store)] == [False, False, True]
    assert sorted(load.tile.name for (load,) in found.by_tile.values()) == ["x", "z"]


def test_a_tile_that_is_read_first_or_written_otherwise_is_none() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        read, written, part, good = map(tile, ("read", "written", "part", "good"))
        nisa.dma_copy(dst=out, src=read)
        for each in (read, written, good):
            nisa.dma_copy(dst=each, src=a)
        nisa.memset(dst=written[0:1], value=0.0)
        nisa.dma_copy(dst=part[0:64], src=a[0:64])
        nisa.dma_copy(dst=part[64:128], src=a[64:128])
        for each in (written, part, good):
            nisa.dma_copy(dst=out, src=each)
        return out

    found = tile_loads(traced(kernel, A)[0])
    assert [loads[0].tile.name for loads in found.by_tile.values()] == ["good"]
