"""Functions that repeat and gather: broadcast_to, expand_dims, gather_flattened, atomic_rmw; and device_print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki.beta1.errors import refused
from nki.beta1.language.arguments import hints_only, kind_of, operation
from nki.beta1.tensors.mask import region_of
from nki.beta1.tensors.scalar import Scalar
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.operands import boxed, common_region, in_hbm, on_chip, part_of, tile
from nki.beta1.tracing.results import placed, undefined
from nki.beta1.tracing.session import current
from nki.core.access import DynamicSlice
from nki.core.dtypes import uint32
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.language.combine import copied
from nki.language.memory import new_tile


def broadcast_to(src: Any, *, shape: Any, **kwargs: Any) -> Tensor:
    """A new tile that repeats axes of size 1, partitions included; `src` itself if it has the shape."""
    hints_only("nl.broadcast_to", kwargs)
    source = on_chip(src, "src", "broadcast_to")
    if tuple(shape) == source.shape:
        return source
    wide = source.broadcast_to(shape)
    value = tile(wide, "src", "nl.broadcast_to")
    return placed("nl.broadcast_to", lambda: copied(value))


def ds(start: Any, size: Any) -> DynamicSlice:
    """``tensor[ds(start, size)]``: `size` elements from `start`, which may be a number of run time."""
    return DynamicSlice(start, nl.ds(0, size).size) if type(start) is Scalar else nl.ds(start, size)


def expand_dims(data: Any, axis: int | Sequence[int]) -> Tensor:
    """A view with new axes of size 1, which are at `axis` in its shape."""
    return on_chip(data, "data", "expand_dims").expand_dims(axis)


def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """``result[p, i] = data[p].flatten()[indices[p, i]]``."""
    hints_only("nl.gather_flattened", kwargs)
    source, index = on_chip(data, "data", "gather_flattened"), on_chip(indices, "indices", "gather_flattened")
    shape, region = common_region("nl.gather_flattened", [index], mask)
    if region.empty:
        return undefined("nl.gather_flattened", [source], shape)
    rows = (region.box[0], *((0, size) for size in source.shape[1:]))
    values, chosen = (
        tile(source, "data", "nl.gather_flattened", rows),
        tile(index, "indices", "nl.gather_flattened", region.box),
    )
    if chosen.dtype != uint32:
        chosen = copied(chosen, uint32)
    kind = kind_of(dtype, source.dtype)
    return placed(
        "nl.gather_flattened",
        lambda: nl.gather_flattened(values, chosen, dtype=kind),
        shape,
        region,
        explicit=dtype is not None,
    )


def atomic_rmw(dst: Any, value: Any, op: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """``dst[...] = dst[...] + value``, one row after the other, so that rows which occur twice get both.

    Args:
        dst: rows of a tensor in HBM, which a tile chooses.
        value: a tile, one partition for each row.
        op: addition.
    """
    hints_only("nl.atomic_rmw", kwargs)
    target, source = in_hbm(dst, "dst", "atomic_rmw"), on_chip(value, "value", "atomic_rmw")
    if operation(op, "op") != alu.ADD:
        raise refused("argument", "nl.atomic_rmw got another operator than addition", "pass op=np.add")
    region = boxed("nl.atomic_rmw", region_of(mask, target.shape))
    current("nl.atomic_rmw")
    for row in range(*region.box[0]):
        box = ((row, row + 1), *region.box[1:])
        place, more = target.elements(box), tile(source, "value", "nl.atomic_rmw", part_of(box, source, target.shape))
        held = new_tile(more.shape, target.dtype)
        nisa.dma_copy(dst=held, src=place)
        _added(held, more)
        nisa.dma_copy(dst=place, src=held)


def _added(held: NkiTensor, more: NkiTensor) -> None:
    """Add a row that may lie in any partition: a DMA brings it to where the other one is."""
    beside = new_tile(more.shape, more.dtype)
    nisa.dma_copy(dst=beside, src=more)
    nisa.tensor_tensor(dst=held, data1=held, data2=beside, op=alu.ADD)


def device_print(prefix: str, x: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Print a tensor when the kernel runs."""
    hints_only("nl.device_print", kwargs)
    if not isinstance(x, Tensor):
        raise refused("argument", f"nl.device_print got {x!r}", "pass a tensor")
    region = boxed("nl.device_print", region_of(mask, x.shape))
    if not region.empty:
        value = tile(x, "x", "nl.device_print", region.box, sbuf=True) if x.on_chip else x.elements(region.box)
        nl.device_print(prefix, value)
