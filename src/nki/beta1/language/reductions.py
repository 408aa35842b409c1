"""Reductions over free dimensions, and the products and transposes of the Tensor engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki.beta1.errors import refused
from nki.beta1.language.arguments import hints_only, kind_of
from nki.beta1.tensors.axes import axes_of
from nki.beta1.tensors.mask import Region, met, region_of
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.assignment import existing_part
from nki.beta1.tracing.operands import boxed, common_region, on_chip, tile
from nki.beta1.tracing.pending import issued_where_assigned
from nki.beta1.tracing.predicate import copy_where
from nki.beta1.tracing.results import placed, undefined
from nki.beta1.tracing.session import current
from nki.core.dtypes import DType, float32, uint8
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.language.combine import in_sbuf
from nki.language.matrix import product_operands
from nki.language.memory import filled_tile

Function = Callable[..., Tensor]


def _reduction(name: str, result: Callable[[DType], DType] = lambda own: own) -> Function:
    today = getattr(nl, name)

    def function(
        x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **kwargs: Any
    ) -> Tensor:
        hints_only(f"nl.{name}", kwargs)
        source = on_chip(x, "x", name)
        kind = kind_of(dtype, result(source.dtype))
        more = {} if name == "all" else {"keepdims": keepdims}
        return reduced(
            f"nl.{name}",
            source,
            axis,
            mask,
            keepdims or name == "var",
            lambda value, axes: today(value, axes, dtype=kind, **more),
            explicit=dtype is not None,
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` over free dimensions; elements that the mask leaves out take no part."
    return function


def reduced(
    function: str,
    source: Tensor,
    axis: Any,
    mask: Any,
    keepdims: bool,
    compute: Callable[[NkiTensor, tuple[int, ...]], NkiTensor],
    *,
    explicit: bool = False,
) -> Tensor:
    """A reduction over axes of a tile, which are moved to the end first."""
    axes = axes_of(axis, source.ndim, function)
    shape, region = common_region(function, [source], mask)
    left = [dim for dim in range(source.ndim) if dim not in axes]
    kept = (
        [(0, 1) if dim in axes else region.box[dim] for dim in range(source.ndim)]
        if keepdims
        else [region.box[dim] for dim in left]
    )
    wanted = [1 if dim in axes else shape[dim] for dim in range(source.ndim)] if keepdims else [shape[d] for d in left]
    if len(wanted) == 1:
        wanted, kept = [*wanted, 1], [*kept, (0, 1)]
    if region.empty:
        return undefined(function, [source], tuple(wanted))
    value = tile(source, "x", function, region.box)
    if region.rest:
        value = _neutral_outside(function, value, region)
    order = (*left, *axes)
    moved = value if order == tuple(range(source.ndim)) else value.permute(order)
    last = tuple(range(source.ndim - len(axes), source.ndim))
    return placed(function, lambda: compute(moved, last), tuple(wanted), Region(tuple(kept)), explicit=explicit)


def _neutral_outside(function: str, value: NkiTensor, region: Region) -> NkiTensor:
    """A copy of a tile with what changes no result where the mask is false."""
    if function not in _NEUTRAL:
        boxed(function, region)
    neutral = _NEUTRAL[function]
    number = neutral(value.dtype) if callable(neutral) else neutral
    made = filled_tile(value.shape, value.dtype, int(number) if value.dtype.is_integer else number)
    copy_where(made, value, region.box, region.rest)
    return made


_NEUTRAL: dict[str, Any] = {
    "nl.sum": 0.0,
    "nl.prod": 1.0,
    "nl.all": 1.0,
    "nl.max": lambda kind: kind.min if kind.is_integer else -math.inf,
    "nl.min": lambda kind: kind.max if kind.is_integer else math.inf,
}
"""Numbers that change no result of a reduction."""

REDUCTIONS = {name: _reduction(name) for name in ("max", "min", "sum", "prod", "var")}
REDUCTIONS["mean"] = _reduction("mean", lambda own: float32 if own.is_integer else own)
REDUCTIONS["all"] = _reduction("all", lambda own: uint8)


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None, **kwargs: Any) -> Tensor:
    """``x @ y``, or ``x.T @ y`` with `transpose_x`: a new float32 tile in PSUM, with the free dimensions of `y`."""
    hints_only("nl.matmul", kwargs)
    left, right = on_chip(x, "x", "matmul"), on_chip(y, "y", "matmul")
    _check_rank(left, "x", "matmul")
    kept, summed = (1, 0) if transpose_x else (0, 1)
    _check_sums(left, right, summed)
    shape = (left.shape[kept], *right.shape[1:])
    if mask is None and all([e.mask is None and e.memory.exists is None for e in (left, right)]):
        return _product(tile(left, "x", "nl.matmul"), tile(right, "y", "nl.matmul"), transpose_x)
    one, two = (boxed("nl.matmul", existing_part(each)).box for each in (left, right))
    box = (one[kept], *two[1:])
    region = Region(box if mask is None else met(box, boxed("nl.matmul", region_of(mask, shape)).box))
    (summing,) = met(one[summed : summed + 1], two[:1])
    if region.empty or summing[0] == summing[1]:
        return undefined("nl.matmul", [left, right], shape)
    a = tile(left, "x", "nl.matmul", (summing, region.box[0]) if transpose_x else (region.box[0], summing))
    b = tile(right, "y", "nl.matmul", (summing, *region.box[1:]))
    return placed("nl.matmul", lambda: nl.matmul(a, b, transpose_x=transpose_x), shape, region)


def _check_sums(left: Tensor, right: Tensor, summed: int) -> None:
    """Raise Beta1Error where a product does not sum up as many elements of `x` as `y` has partitions."""
    if left.shape[summed] != right.shape[0]:
        raise refused(
            "num_partition_mismatch",
            f"dimension {summed} of x{list(left.shape)} and dimension 0 of y{list(right.shape)} of 'matmul' differ: "
            f"{left.shape[summed]} and {right.shape[0]}",
            "index both so that they agree; x is (rows, summed), or with transpose_x=True (summed, rows)",
        )


def _product(x: NkiTensor, y: NkiTensor, transpose_x: bool) -> Tensor:
    """The product of two whole tiles."""
    one, two = product_operands(x, y, transpose_x)
    shape = (one.shape[1], *two.shape[1:])
    return issued_where_assigned(
        "nl.matmul", nisa.nc_matmul, shape, float32, MemoryRegion.psum, stationary=one, moving=in_sbuf(two)
    )


def transpose(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
    """The transpose of a tile ``(P, F)``, both at most 128: a new tile ``(F, P)`` in PSUM."""
    hints_only("nl.transpose", kwargs)
    source = on_chip(x, "x", "transpose")
    shape, region = common_region("nl.transpose", [source], mask)
    if region.empty:
        return undefined("nl.transpose", [source], shape[::-1])
    _check_matrix(source, region)
    value = tile(source, "x", "nl.transpose", region.box)
    return placed(
        "nl.transpose",
        lambda: nl.transpose(value, dtype=kind_of(dtype, source.dtype)),
        shape[::-1],
        region.transposed(shape),
        explicit=dtype is not None,
    )


def _check_matrix(source: Tensor, region: Region) -> None:
    """Raise Beta1Error for what the Tensor engine does not transpose at once."""
    most = current("nl.transpose").tracer.target.partitions
    _check_rank(source, "x", "transpose")
    for dim, size in enumerate(region.shape):
        if size > most:
            raise refused(
                "size_of_dimension_exceed_arch_limit",
                f"size {size} of dimension {dim} in 'x{list(source.shape)}' of 'transpose' exceeds the architecture "
                f"limitation of {most}",
                f"transpose parts of {most} columns: nl.transpose(x[:, i * {most} : (i + 1) * {most}])",
            )


def _check_rank(source: Tensor, name: str, function: str) -> None:
    if source.ndim > 2:
        raise refused(
            "exceed_max_supported_dimension",
            f"parameter '{name}{list(source.shape)}' of '{function}' exceeds the maximum of 2 dimensions",
            f"index one of its dimensions with an int, or reshape it: {name}.reshape(({source.shape[0]}, ...))",
        )
