"""``neuronxcc.nki._private.private_api``: what published kernels use of the old compiler's own functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki.isa as nisa
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.device_loops import DoWhile
from nki.beta1.tracing.grid import nc as vnc
from nki.core.errors import RemovedError, RemovedImportError
from nki.core.names.removed import imported

__all__ = ["core_barrier", "do_while", "sendrecv", "vnc"]


def core_barrier(data: Tensor, cores: Sequence[int]) -> None:
    """Both cores of a kernel on two cores wait here for each other, until what they did to a tensor is done.

    Args:
        data: in shared HBM.
        cores: (0, 1), or (0,) on one core.
    """
    nisa.core_barrier(data=data.elements(), cores=tuple(cores))


def do_while(condition: Tensor) -> DoWhile:
    """``with do_while(condition):`` runs its body again while `condition`, which the body writes, is not 0.

    Args:
        condition: one element in HBM or SBUF; the first trip does not ask for it.
    """
    return DoWhile(condition)


def sendrecv(*, src: Tensor, dst: Tensor, send_to_rank: Any, recv_from_rank: Any, pipe_id: int) -> None:
    """Send a tile to the other core, and receive one from it.

    Args:
        src, dst: in SBUF, of one shape and dtype.
        send_to_rank, recv_from_rank: 0 or 1.
        pipe_id: of the calls that belong together.
    """
    nisa.sendrecv(
        src=src.elements(),
        dst=dst.elements(),
        send_to_rank=int(send_to_rank),
        recv_from_rank=int(recv_from_rank),
        pipe_id=pipe_id,
    )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    kind = RemovedImportError if imported(1) else RemovedError  # `pickle` asks every module for the names it looks for
    raise kind(
        "name.removed",
        f"neuronxcc.nki._private.private_api.{name} does not exist",
        rule="the old compiler's own functions are in no document",
        source="nki/api (NKI 0.1)",
        fix=f"use what the documents have; of its own functions there are {', '.join(__all__)}",
    )
