"""Results: a new tile for each value that a function of the language returns, as much of it as there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nki.beta1.tensors.access import Access
from nki.beta1.tensors.mask import Mask, Region
from nki.beta1.tensors.memory import Memory
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.operands import common_region, part_of, plain, tile
from nki.beta1.tracing.session import Last, current
from nki.core.nki_tensor import NkiTensor
from nki.language.memory import new_tile


def elementwise(
    function: str,
    operands: Sequence[Any],
    mask: Any,
    compute: Callable[..., NkiTensor],
    *,
    names: Sequence[str] = "xyz",
    explicit: bool = False,
) -> Tensor:
    """The tile of a function that computes each element of its own, where the mask is true and all operands exist.

    Args:
        operands: tiles, which broadcast, and numbers.
        compute: gets the operands as tensors and numbers of Python; returns a new tile.
        names: of the operands, for messages.
        explicit: whether the caller chose the dtype of the result.
    """
    shape, region = common_region(function, operands, mask)
    if region.empty:
        return undefined(function, operands, shape)
    values = [
        tile(each, name, function, part_of(region.box, each, shape)) if isinstance(each, Tensor) else plain(each)
        for name, each in zip(names, operands, strict=False)
    ]
    return placed(function, lambda: compute(*values), shape, region, explicit=explicit)


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
    memory = Memory.of(made)
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
