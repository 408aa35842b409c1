"""Operators that put values in places, for which PyTorch has no decomposition, in terms of the ones with converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Number = bool | int | float


def scattered() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator."""
    aten = torch.ops.aten
    return {
        aten.diagonal_scatter.default: _diagonal_scatter,
        aten.index_reduce.default: _index_reduce,
        aten.masked_scatter_backward.default: _masked_scatter_backward,
        aten.nonzero_static.default: _nonzero_static,
        aten.put.default: _put,
        aten.repeat_interleave.Tensor: _repeat_interleave,
        aten.scatter.reduce: _scatter_with,
        aten.scatter.value_reduce: _scatter_value_with,
        aten.scatter_reduce.two: _scatter_reduce,
    }


# ----------------------------------------------------------------------------------------------------------- into views


def _diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy whose diagonal, which `src` has as its last dimension, is replaced."""
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    row = torch.arange(rows, device=x.device)[:, None]
    mask = torch.arange(columns, device=x.device) == row + offset
    size, before = src.size(-1), max(-offset, 0)
    spread = F.pad(src.to(x.dtype), (before, rows - before - size)).unsqueeze(-1)
    return torch.where(mask, spread, moved).movedim((-2, -1), (dim1, dim2)).contiguous()


# ------------------------------------------------------------------------------------------------------------ with sums


def _neutral(dtype: torch.dtype, reduce: str) -> Number:
    """What leaves the other operand of a reduction as it is."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.is_floating_point:
        return -torch.inf if reduce == "amax" else torch.inf
    if dtype == torch.bool:
        return reduce != "amax"
    limits = torch.iinfo(torch.int32 if dtype == torch.int64 else dtype)
    return limits.min if reduce == "amax" else limits.max


def _scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """Means, and reductions that leave out what was there, by those that the converter has."""
    if not index.numel():
        return x.clone()
    if include_self and reduce != "mean":
        return NotImplemented
    start = x
    if not include_self:
        touched = torch.zeros_like(x, dtype=torch.int32).scatter(dim, index, 1) != 0
        start = torch.where(touched, _neutral(x.dtype, reduce), x)
    if reduce != "mean":
        return start.scatter_reduce(dim, index, src, reduce)
    whole = start.to(torch.float32) if x.dtype in (torch.bfloat16, torch.float16) else start
    total = whole.scatter_add(dim, index, src.to(whole.dtype))
    ones = torch.ones_like(index, dtype=torch.int32)
    counts = torch.full_like(x, int(include_self), dtype=torch.int32).scatter_add(dim, index, ones).clamp(min=1)
    if x.dtype.is_floating_point:
        return (total / counts.to(total.dtype)).to(x.dtype)
    return torch.div(total, counts, rounding_mode="floor").to(x.dtype)


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if not x.dim():
        flat = _index_reduce(x.reshape(1), 0, index, source.reshape(-1), reduce, include_self=include_self)
        return flat.reshape(())
    shape = [1] * x.dim()
    shape[dim] = -1
    everywhere = index.reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, everywhere, source, reduce, include_self=include_self)


def _scatter_with(x: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Tensor:
    return x.scatter_reduce(dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


def _scatter_value_with(x: Tensor, dim: int, index: Tensor, value: Number, *, reduce: str) -> Tensor:
    return _scatter_with(x, dim, index, torch.full_like(index, value, dtype=x.dtype), reduce=reduce)


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    places = (index.reshape(-1),)
    return x.reshape(-1).index_put(places, source.reshape(-1), accumulate).reshape(x.shape)


# ---------------------------------------------------------------------------------------------------------------- masks


def _masked_scatter_backward(gradient: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradient of the source: what is under the mask, in order, then zeros."""
    count = int(np.prod([int(size) for size in sizes]))
    mask = mask.expand(gradient.shape).reshape(-1)
    number = mask.to(torch.int64).cumsum(0) - 1
    place = torch.where(mask & (number < count), number, count)
    made = gradient.new_zeros(count + 1).scatter(0, place, gradient.reshape(-1))
    return made[:count].reshape(tuple(sizes))


def _nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The places of the first elements that are not zero, as rows; the others are filled."""
    if not x.dim():
        return torch.empty(size, 0, dtype=torch.int64, device=x.device)
    found = (x != 0).reshape(-1)
    number = found.to(torch.int64).cumsum(0) - 1
    row = torch.where(found & (number < size), number, size)
    flat = torch.arange(x.numel(), device=x.device)
    place = torch.zeros(size + 1, dtype=torch.int64, device=x.device).scatter(0, row, flat)[:size]
    filled = torch.arange(size, device=x.device) >= found.sum()
    columns = []
    for length in reversed(x.shape):
        columns.append(torch.where(filled, fill_value, place % max(length, 1)))
        place = place // max(length, 1)
    return torch.stack(columns[::-1], 1)


def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Any:
    """Which element each place of the result repeats; without the result's size that depends on values."""
    if output_size is None:
        return NotImplemented
    ends = repeats.cumsum(0)
    return (torch.arange(output_size, device=repeats.device)[:, None] >= ends).sum(1).to(repeats.dtype)
