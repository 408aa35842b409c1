"""What instructions of the first NKI have in common: operands as today's take them, and where results go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import nki.isa as nisa
from nki.beta1.errors import Beta1TypeError, refused
from nki.beta1.tensors.mask import Region
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.assignment import put
from nki.beta1.tracing.operands import changed, common_region, on_chip, part_of, plain, reachable, tile
from nki.beta1.tracing.predicate import copy_where
from nki.core.dtypes import DType, float32
from nki.core.nki_tensor import NkiTensor
from nki.core.shown import shown
from nki.core.tensor import MemoryRegion
from nki.language.arguments import is_number
from nki.language.combine import cast
from nki.language.memory import new_tile
from nki.spec.engine import engine as Engine


def tiles(function: str, **operands: Any) -> list[Tensor]:
    """The operands as tiles that have equally many partitions.

    Raises:
        Beta1Error: no tile ("beta1.argument", "beta1.unsupported_memory"), or other partitions
            ("beta1.num_partition_mismatch").
    """
    found = [on_chip(value, name, function) for name, value in operands.items()]
    if len({each.shape[0] for each in found}) > 1:
        text = ", ".join(f"{name}{list(each.shape)}" for name, each in zip(operands, found, strict=True))
        raise refused(
            "num_partition_mismatch",
            f"number of partitions (dimension 0 size of a tile) mismatch in parameters ({text}) of '{function}'",
            f"repeat the smaller one: tile.broadcast_to(({max(each.shape[0] for each in found)}, ...))",
            rule="all tiles of an instruction have the same partitions",
        )
    return found


def alike(data: Tensor, other: Tensor) -> Tensor:
    """A tile with the free dimensions of another one, if both have equally many elements in a partition."""
    if other.ndim == data.ndim or prod(other.shape[1:]) != prod(data.shape[1:]):
        return other
    return other.reshape(data.shape)


def columns(function: str, data: Tensor, **operands: Any) -> list[Any]:
    """Operands for whole rows: numbers of Python, or tiles with one element for each partition of `data`."""
    found = []
    for name, value in operands.items():
        if is_number(value) or value is None:
            found.append(plain(value))
            continue
        tiles(function, data=data, **{name: value})
        if value.ndim > 1 and any(size != 1 for size in value.shape[1:]):
            raise refused(
                "argument",
                f"'{name}' of '{function}' is {value.describe()}",
                f"pass a number, or one column: {name}=tile[:, 0]",
                rule="it is a scalar, or a vector of one element for each partition",
            )
        found.append(value if value.ndim == 2 else value.reshape((value.shape[0], 1)))
    return found


def vector(value: Any, kind: DType = float32) -> Any:
    """A column in the dtype that the instruction takes; a number as it is."""
    return cast(value, kind) if isinstance(value, NkiTensor) and value.dtype != kind else value


def engine_of(value: Any, function: str) -> Engine:
    """The engine that the kernel asks for."""
    if isinstance(value, Engine):
        return value
    raise refused(
        "argument",
        f"engine of '{function}' is {shown(value)}",
        "pass nisa.vector_engine, nisa.scalar_engine, nisa.gpsimd_engine or nisa.unknown_engine",
        kind=Beta1TypeError,
    )


def apart(one: NkiTensor, two: NkiTensor) -> NkiTensor:
    """The first of two operands, copied to SBUF if both are in PSUM, which no instruction reads twice."""
    both = one.buffer is MemoryRegion.psum and two.buffer is MemoryRegion.psum
    return copied_to_sbuf(one) if both else one


def copied_to_sbuf(value: NkiTensor) -> NkiTensor:
    """A copy of a tile in SBUF."""
    made = new_tile(value.shape, value.dtype)
    nisa.tensor_copy(dst=made, src=value)
    return made


def region_of_input(function: str, data: Tensor, mask: Any) -> Region:
    """What of an input an instruction reads that makes one result of many elements.

    Raises:
        Beta1Error: a condition of two axes, which is no box ("beta1.unsupported_expression_in_mask").
    """
    _, region = common_region(function, [data], mask)
    if region.rest and not region.empty:
        raise refused(
            "unsupported_expression_in_mask",
            f"the mask of '{function}' joins two axes of {data.describe()}",
            "fill the rest with what does not change the result: nisa.affine_select, then the instruction without mask",
            rule="the mask of an instruction that combines elements leaves a rectangular part of them",
        )
    return region


def into(
    function: str,
    dst: Any,
    mask: Any,
    issue: Callable[..., None],
    operands: Mapping[str, Any],
    *,
    dtype: DType | None = None,
    keeps: bool = False,
    rows: Mapping[str, Any] | None = None,
) -> None:
    """An instruction that writes to a tile it is given, where the mask is true.

    Args:
        issue: gets the destination, and the operands by name.
        operands: tiles that broadcast to the destination, or numbers.
        dtype: what the result rounds to first; that of the destination by default.
        keeps: whether the instruction leaves elements of its destination as they are.
        rows: columns and results with one element for each partition.
    """
    target = on_chip(dst, "dst", function)
    shape, region = common_region(function, [target], mask)
    if region.empty:
        return
    given = {**operands, **(rows or {})}
    taken = {
        name: tile(value, name, function, part_of(region.box, value, shape)) if isinstance(value, Tensor) else value
        for name, value in given.items()
    }
    destination = target.elements(region.box)
    if not region.rest and dtype in (None, target.dtype):
        changing = changed if keeps else put
        changing(destination, lambda dst: issue(dst, **taken))
        return
    made = new_tile(destination.shape, target.dtype if dtype is None else dtype)
    if keeps:
        nisa.tensor_copy(dst=made, src=reachable(destination))
    issue(made, **taken)
    if region.rest:
        copy_where(destination, made, region.box, region.rest)
    else:
        put(destination, lambda dst: nisa.tensor_copy(dst=dst, src=made))
