"""Results: a new tile for each value that a function of the language returns, as much of it as there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nki.beta1.tensors.access import Access
from nki.beta1.tensors.mask import Mask, Region
from nki.beta1.tensors.memory import Memory
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.session import Last, current
from nki.core.nki_tensor import NkiTensor
from nki.language.memory import new_tile


def placed(
    function: str,
    compute: Callable[[], NkiTensor],
    shape: tuple[int, ...] | None = None,
    region: Region | None = None,
    *,
    explicit: bool = False,
) -> Tensor:
    """The tile that an instruction makes.

    Args:
        shape: as the kernel sees it; that of the tile by default.
        region: what of it the instruction computes; all by default.
    """
    session = current(function)
    start, tracer = session.position, session.tracer
    session.last, tracer.retained = None, [] if tracer.eager else None
    before = tracer.locator.hold()
    try:
        made = compute()
    finally:
        tracer.locator.release(before)
    session.last = Last(made.view_record, start, session.position, explicit, compute)
    return seen_as(Memory.of(made), shape, region)


def seen_as(memory: Memory, shape: tuple[int, ...] | None, region: Region | None) -> Tensor:
    """The tensor that a kernel sees of a new tile, with arguments as for `placed`."""
    if shape is None or (shape == memory.sizes and (region is None or not region.rest)):
        return Tensor(memory, Access.of_whole(memory.sizes))
    box = region.box if region is not None else tuple((0, size) for size in shape)
    mask = Mask(region.rest) if region is not None and region.rest else None
    return Tensor(memory.as_part(shape, box), Access.of_whole(shape), mask)


def undefined(function: str, operands: Sequence[Any], shape: tuple[int, ...]) -> Tensor:
    """The tile of an instruction that a mask leaves out."""
    current(function)
    dtype = next(each.dtype for each in operands if isinstance(each, Tensor))
    memory = Memory.of(new_tile(shape, dtype))
    memory.exists = tuple((0, 0) for _ in shape)
    return Tensor(memory, Access.of_whole(shape))
