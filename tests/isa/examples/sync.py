"""Examples of core_barrier, sendrecv and device_print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import bfloat16, int8
from nki.isa.sync import core_barrier, device_print, sendrecv
from nki.spec.sink import current_sink
from tests.isa.examples.dma import V3, normal
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store


def rank() -> int:
    """The core that runs."""
    return current_sink("rank").core


def swap_halves(a: Any) -> Any:
    """Each core writes half of a shared tensor and reads the other half after the barrier."""
    me, half = rank(), a.shape[0] // 2
    shared = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=shared[me * half : me * half + half, :], src=a[me * half : me * half + half, :])
    core_barrier(data=shared, cores=(0, 1))
    other = 1 - me
    nisa.dma_copy(dst=out[me * half : me * half + half, :], src=shared[other * half : other * half + half, :])
    core_barrier(out, [0, 1], engine=nisa.engine.scalar)
    return out


def barrier(cores: Any, region: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        data = nl.ndarray(a.shape, a.dtype, buffer=region)
        nisa.dma_copy(dst=data, src=a)
        core_barrier(data, cores)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        if rank() == 0:
            nisa.dma_copy(dst=out, src=a)
        return out

    return kernel


def gather_both(dtype: Any = None, **options: Any) -> Callable[[Any], Any]:
    """Each core sends its half; core 0 returns what it has and what it got."""

    def kernel(a: Any) -> Any:
        me, half = rank(), a.shape[0] // 2
        both = nl.ndarray((half, 2, a.shape[1]), dtype or a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=both[:, me, :], src=a[me * half : me * half + half, :])
        sendrecv(both[:, me, :], both[:, 1 - me, :], 1 - me, 1 - me, pipe_id=0, **options)
        out = nl.ndarray((2, half, 2, a.shape[1]), dtype or a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[me], src=both)
        core_barrier(out, (0, 1))
        return out

    return kernel


def gather_both_reference(a: Any) -> Any:
    half = len(a) // 2
    return np.stack([np.stack([a[:half], a[half:]], axis=1)] * 2)


def transfer(dst_shape: tuple[int, ...], dst_dtype: Any = None, to: int | None = None, **options: Any) -> Any:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(dst_shape, dst_dtype or a.dtype, buffer=nl.sbuf)
        other = 1 - rank() if to is None else to
        sendrecv(src=load(a), dst=tile, send_to_rank=other, recv_from_rank=other, pipe_id=3, **options)
        return store(tile)

    return kernel


def print_and_return(a: Any) -> Any:
    device_print("values ", load(a))
    device_print("", a)
    return store(load(a))


GPSIMD = nisa.dma_engine.gpsimd_dma
EXAMPLES = [
    Legal("core_barrier", swap_halves, normal((8, 6)), lambda a: np.concatenate([a[4:], a[:4]]), V3, lnc=2),
    Legal("core_barrier", barrier((0,), nl.shared_hbm), normal((8, 6)), lambda a: a, V3),
    Breaks("core_barrier.cores", barrier((0, 1, 2), nl.shared_hbm), normal((8, 6)), lnc=2),
    Breaks("core_barrier.cores", barrier((1, 0), nl.shared_hbm), normal((8, 6)), lnc=2),
    Breaks("core_barrier.data-region", barrier((0, 1), nl.sbuf), normal((8, 6)), lnc=2),
    Legal("sendrecv", gather_both(), normal((8, 6)), gather_both_reference, V3, lnc=2),
    Legal("sendrecv", gather_both(dma_engine=GPSIMD), normal((30, 256)), gather_both_reference, V3, lnc=2),
    Breaks("sendrecv.shapes", transfer((8, 2, 3)), normal((8, 6)), lnc=2),
    Breaks("sendrecv.dtypes", transfer((8, 6), bfloat16), normal((8, 6)), lnc=2),
    Breaks("sendrecv.ranks", transfer((8, 6), to=2), normal((8, 6)), lnc=2),
    Breaks("sendrecv.gpsimd-size", transfer((8, 257), dma_engine=GPSIMD), normal((8, 257)), lnc=2),
    Breaks("sendrecv.gpsimd-size", gather_both(bfloat16, dma_engine=GPSIMD), normal((8, 257)), lnc=2),
    Breaks("sendrecv.gpsimd-size", gather_both(int8, dma_engine=GPSIMD), normal((8, 257)), lnc=2),
    Legal("device_print", print_and_return, normal((2, 3)), lambda a: a),
]
