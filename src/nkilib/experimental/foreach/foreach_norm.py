"""Norms of tensors of any shape: the sum of magnitudes, the root of the sum of squares, the largest magnitude.

Layouts: any shape, taken as its `numel` elements; the result is (1, 1). Dtypes: bfloat16, float16 or float32, and so
the result; sums are float32. Limits: none.

Plan: Scalar takes magnitudes or squares and sums them up in one pass, for the largest magnitude it is Vector; transfers
bound the kernels. The Tensor engine puts the partitions together, and the cores of a launch exchange what they have.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import flat
from nkilib.streaming import filled, psum, result, sbuf, store, transpose

_PIPE = 0


@nki.jit
def l2_norm_kernel(data: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``sqrt(sum(data**2))``, (1, 1)."""
    total = _summed(data, numel, nl.square)
    root = sbuf((1, 1), data.dtype)
    nisa.activation(dst=root, op=nl.sqrt, data=total)
    return _stored(root)


@nki.jit
def l1_norm_kernel(data: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``sum(|data|)``, (1, 1)."""
    return _stored(_as(_summed(data, numel, nl.abs), data.dtype))


@nki.jit
def linf_norm_kernel(data: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``max(|data|)``, (1, 1)."""
    flat.checked(numel, data=data)
    blocks = flat.blocks(numel, data.dtype)
    found = filled((nl.tile_size.pmax, max(1, len(blocks))), nl.float32, 0.0)
    for place, block in enumerate(blocks):
        (tile,) = flat.tiles(block, data)
        nisa.tensor_scalar_reduce(
            dst=sbuf(tile.shape, nl.bfloat16),
            data=tile,
            op0=nl.abs,
            operand0=0.0,
            reduce_op=nl.maximum,
            reduce_res=found[: block.partitions, place : place + 1],
        )
    largest, total = sbuf((nl.tile_size.pmax, 1), nl.float32), sbuf((1, 1), nl.float32)
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=found, axis=[1])
    nisa.tensor_reduce(dst=total, op=nl.maximum, data=transpose(largest), axis=[1])
    return _stored(_as(_of_cores(total, nl.maximum), data.dtype))


def _summed(data: Any, numel: int, op: Any) -> Any:
    """``sum(op(data))`` of all cores: (1, 1) in float32."""
    flat.checked(numel, data=data)
    blocks = flat.blocks(numel, data.dtype)
    found = filled((nl.tile_size.pmax, max(1, len(blocks))), nl.float32, 0.0)
    for place, block in enumerate(blocks):
        (tile,) = flat.tiles(block, data)
        nisa.activation_reduce(
            dst=sbuf(tile.shape, nl.bfloat16),
            op=op,
            data=tile,
            reduce_op=nl.add,
            reduce_res=found[: block.partitions, place : place + 1],
        )
    of_partitions, total, both = sbuf((nl.tile_size.pmax, 1), nl.float32), sbuf((1, 1), nl.float32), psum((1, 1))
    nisa.tensor_reduce(dst=of_partitions, op=nl.add, data=found, axis=[1])
    nisa.nc_matmul(dst=both, stationary=of_partitions, moving=filled((nl.tile_size.pmax, 1), nl.float32, 1.0))
    nisa.tensor_copy(dst=total, src=both)
    return _of_cores(total, nl.add)


def _of_cores(own: Any, op: Any) -> Any:
    """What this core and the other one have, put together; one core has all."""
    if nl.num_programs(0) == 1:
        return own
    other, both, peer = sbuf(own.shape, own.dtype), sbuf(own.shape, own.dtype), 1 - nl.program_id(0)
    nisa.sendrecv(src=own, dst=other, send_to_rank=peer, recv_from_rank=peer, pipe_id=_PIPE)
    nisa.tensor_tensor(dst=both, data1=own, data2=other, op=op)
    return both


def _as(tile: Any, dtype: Any) -> Any:
    converted = sbuf(tile.shape, dtype)
    nisa.tensor_copy(dst=converted, src=tile)
    return converted


def _stored(tile: Any) -> Any:
    """The result of the first core, which is that of both."""
    out = result(tile.shape, tile.dtype)
    if nl.program_id(0) == 0:
        store(out, tile)
    return out
