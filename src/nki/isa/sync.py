"""What two cores do together, and what reaches the outside: core_barrier, sendrecv, device_print."""

from __future__ import annotations

from typing import Annotated, Any

from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.spec.arrays import Arrays
from nki.spec.cost_core import meets
from nki.spec.cost_dma import PRINT, SWAP
from nki.spec.engine import dma_engine
from nki.spec.engine import engine as Engine
from nki.spec.instruction import Deprecated, instruction
from nki.spec.operand import HBM, SBUF, Int, Ints, Name, Operand, choice, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_BARRIER = "nki/api/nki/isa core_barrier"
_SENDRECV = "nki/api/nki/isa sendrecv"
_ANYWHERE = tuple(MemoryRegion)


def _alone(a: Any) -> bool:
    return bool(a.cores == (0,))


@instruction(
    moves_bits=True,
    engines=(Engine.gpsimd, Engine.vector, Engine.scalar, Engine.tensor, Engine.sync),
    feature="core_barrier",
    source=_BARRIER,
    rules=[
        Rule(
            "cores",
            "cores is (0, 1), or (0,) for a kernel on one core",
            lambda a, t: a.cores in ((0, 1), (0,)),
            _BARRIER,
            "pass cores=(0, 1)",
            lambda a, t: f"cores is {a.cores}",
        ),
        Rule(
            "data-region",
            "data is in shared_hbm, which both cores see",
            lambda a, t: _alone(a) or a.data.region is MemoryRegion.shared_hbm,
            _BARRIER,
            "pass the shared_hbm tensor that both cores use",
            lambda a, t: f"data is {a.data.describe()}",
            severity="warning",
        ),
    ],
    steps=meets("CoreBarrier"),
    effects=lambda a: () if _alone(a) else ("rendezvous",),
)
def core_barrier(
    data: Annotated[NkiTensor, out((*HBM, *SBUF), dma=True, also_read=True)],
    cores: Ints,
    engine: Annotated[Engine, choice(Engine)] = Engine.gpsimd,
    name: Name = None,
) -> None:
    """Both cores of a kernel on two cores wait here for each other.

    What either core did to `data` before its barrier is done when the other one goes on. Only `engine` waits; other
    engines are ordered through their accesses to `data`, which counts as read and written here.

    The reference allows ``cores=(0, 1)`` only. ``(0,)``, which published kernels pass on one core, waits for nobody;
    `data` outside shared_hbm, which they pass as well, is reported as a warning.

    Args:
        data: the shared tensor.
        cores: (0, 1).
        engine: the engine that waits.
    """


@core_barrier.body
def _(a: Any, x: Arrays) -> None:
    if not _alone(a):
        x.barrier()


def _through_gpsimd(a: Any) -> bool:
    return bool(a.dma_engine is dma_engine.gpsimd_dma)


def _sendrecv_engine(a: Any, t: Target) -> Engine:
    return Engine.gpsimd if _through_gpsimd(a) else Engine.dma


def _row_bytes(a: Any) -> int:
    return int(a.src.free_size * a.src.dtype.itemsize)


@instruction(
    moves_bits=True,
    engines=(Engine.dma, Engine.gpsimd),
    choose=_sendrecv_engine,
    feature="sendrecv",
    source=_SENDRECV,
    rules=[
        Rule(
            "shapes",
            "src and dst have the same shape",
            lambda a, t: a.dst.shape == a.src.shape,
            _SENDRECV,
            "slice or reshape one of them",
            lambda a, t: f"dst is {list(a.dst.shape)}, src is {list(a.src.shape)}",
        ),
        Rule(
            "dtypes",
            "src and dst have the same dtype",
            lambda a, t: a.dst.dtype == a.src.dtype,
            _SENDRECV,
            "cast with nisa.tensor_copy",
            lambda a, t: f"dst is {a.dst.dtype}, src is {a.src.dtype}",
        ),
        Rule(
            "ranks",
            "send_to_rank and recv_from_rank are 0 or 1",
            lambda a, t: a.send_to_rank in (0, 1) and a.recv_from_rank in (0, 1),
            _SENDRECV,
            "pass 1 - nl.program_id(0)",
            lambda a, t: f"send_to_rank is {a.send_to_rank}, recv_from_rank is {a.recv_from_rank}",
        ),
        Rule(
            "gpsimd-size",
            "GpSimd's own DMA moves at most {t.dma.gpsimd_bytes_32bit} bytes per partition of 32-bit elements, "
            "{t.dma.gpsimd_bytes_16bit} of 16-bit and {t.dma.gpsimd_bytes_8bit} of 8-bit ones",
            lambda a, t: not _through_gpsimd(a) or _row_bytes(a) <= t.dma.gpsimd_max_bytes(a.src.dtype.itemsize),
            _SENDRECV,
            "use dma_engine=nisa.dma_engine.dma, or send smaller pieces",
            lambda a, t: f"src has {_row_bytes(a)} bytes per partition of {a.src.dtype}",
        ),
    ],
    deprecated=[
        Deprecated(
            "use_gpsimd_dma",
            "pass dma_engine=nisa.dma_engine.gpsimd_dma for True, nothing for False",
            lambda value, bound: bool(value) is (bound["dma_engine"] is dma_engine.gpsimd_dma),
            "it does not say what dma_engine says",
        ),
    ],
    steps=SWAP,
    effects=("rendezvous",),
)
def sendrecv(
    src: Annotated[NkiTensor, source(SBUF, dma=True)],
    dst: Annotated[NkiTensor, out(SBUF, dma=True)],
    send_to_rank: Int,
    recv_from_rank: Int,
    pipe_id: Int,
    dma_engine: Annotated[dma_engine, choice(dma_engine)] = dma_engine.dma,
    name: Name = None,
) -> None:
    """Send `src` to another core and receive into `dst` what that core sends, on a kernel of two cores.

    Both cores call it with the same `pipe_id`, in the same order, and swap: each sends to the other and receives from
    it (a core that names itself twice copies). Routes, shapes or dtypes that do not fit together are an error. Bits are
    moved, never cast.

    Args:
        src, dst: SBUF, the same shape and dtype, on both cores.
        send_to_rank, recv_from_rank: 0 or 1.
        pipe_id: groups the calls that belong together.
        dma_engine: dma, or gpsimd_dma for small tiles.
    """


@sendrecv.body
def _(a: Any, x: Arrays) -> None:
    x.exchange(a.pipe_id, a.dst, a.src, a.send_to_rank, a.recv_from_rank)


@instruction(
    moves_bits=True,
    engines=(Engine.sync,),
    source="nki/api/nki/language device_print",
    public=False,
    steps=PRINT,
    effects=("print",),
)
def device_print(
    prefix: Annotated[str, Operand("text")], tensor: Annotated[NkiTensor, source(_ANYWHERE, dma=True)]
) -> None:
    """Print a tensor when the kernel runs, after `prefix`; long ones are abbreviated.

    Args:
        prefix: constant text.
        tensor: anywhere, any dtype.
    """


@device_print.body
def _(a: Any, x: Arrays) -> None:
    x.say(a.prefix, a.tensor)
