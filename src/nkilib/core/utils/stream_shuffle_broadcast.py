"""One partition copied to all others by the Vector engine, without a round trip through memory."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.utils.kernel_assert import kernel_assert

_QUADRANT = 32
"""Partitions that one shuffle serves."""


def stream_shuffle_broadcast(src: Any, dst: Any) -> None:
    """Copy partition 0 of `src` to every partition of `dst`.

    Args:
        src: SBUF ``(any, n)``.
        dst: SBUF ``(partitions, n)``.

    Raises:
        KernelAssertion: ranks or lengths do not fit (``nkilib.argument``).
    """
    kernel_assert(
        len(src.shape) == 2 and len(dst.shape) == 2,
        f"src is {tuple(src.shape)} and dst is {tuple(dst.shape)}: both have 2 dimensions",
    )
    kernel_assert(
        src.shape[1] == dst.shape[1], f"rows of src have {src.shape[1]} elements, those of dst {dst.shape[1]}"
    )
    for start in range(0, dst.shape[0], _QUADRANT):
        part = dst[start : min(start + _QUADRANT, dst.shape[0]), :]
        nisa.nc_stream_shuffle(dst=part, src=src[0:1, :], shuffle_mask=[0] * _QUADRANT)


def tp_broadcast(src: Any, dst: Any, src_offset: int, psum_address: tuple[int, int] | None = None) -> None:
    """Transpose one column of `src` and write it to every partition of `dst`, by one product of the Tensor engine.

    Args:
        src: SBUF ``(n, any)``, or a `TensorView` of such a tensor.
        dst: SBUF ``(partitions, n)``, or a `TensorView`.
        src_offset: the column.
        psum_address: of the bank between; by default the compiler's choice.
    """
    source, target = (getattr(tensor, "get_view", lambda tensor=tensor: tensor)() for tensor in (src, dst))
    copies, length = target.shape
    kernel_assert(source.shape[0] == length, f"src has {source.shape[0]} partitions, rows of dst {length} elements")
    column = source[:, src_offset : src_offset + 1].broadcast(1, copies)
    moved = nl.ndarray((copies, length), dtype=source.dtype, buffer=nl.psum, address=psum_address)
    nisa.nc_transpose(dst=moved, data=column, engine=nisa.engine.tensor)
    nisa.tensor_copy(dst=target, src=moved)
