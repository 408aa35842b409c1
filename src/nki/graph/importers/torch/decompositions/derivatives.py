"""Derivatives for which PyTorch has no decomposition: of pooling, padding, distances, losses and bags of embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_NONE, _MEAN = 0, 1
"""Values of ``reduction`` of losses (ATen); else the sum."""


def derivatives() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator."""
    aten = torch.ops.aten
    return {
        aten._cdist_backward.default: _cdist,
        aten._embedding_bag_per_sample_weights_backward.default: _sample_weights,
        aten._pdist_backward.default: _pdist,
        aten.adaptive_max_pool2d_backward.default: lambda g, x, places: _to_places(g, x, places, 2),
        aten.adaptive_max_pool3d_backward.default: lambda g, x, places: _to_places(g, x, places, 3),
        aten.avg_pool3d_backward.default: _avg_pool3d,
        aten.hardshrink_backward.default: _shrink,
        aten.max_pool3d_with_indices_backward.default: _max_pool3d,
        aten.multi_margin_loss_backward.default: _multi_margin,
        aten.multilabel_margin_loss_forward.default: _multilabel_margin_forward,
        aten.multilabel_margin_loss_backward.default: _multilabel_margin,
        aten.replication_pad1d_backward.default: _replication_pad,
        aten.replication_pad2d_backward.default: _replication_pad,
        aten.replication_pad3d_backward.default: _replication_pad,
        aten.softshrink_backward.default: _shrink,
    }


# ------------------------------------------------------------------------------------------------------------ pooling


def _to_places(gradient: Tensor, x: Tensor, places: Tensor, rank: int) -> Tensor:
    """Each window's gradient goes to its maximum, whose place is counted over the last `rank` dimensions."""
    flat = torch.zeros(x.shape, dtype=torch.float32, device=x.device).flatten(-rank)
    made = flat.scatter_add(-1, places.flatten(-rank), gradient.flatten(-rank).float())
    return made.reshape(x.shape).to(x.dtype)


def _max_pool3d(
    gradient: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool, indices: Tensor,
) -> Tensor:  # fmt: skip
    return _to_places(gradient, x, indices, 3)


def _avg_pool3d(
    gradient: Tensor, x: Tensor, kernel_size: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    """Shares of the windows, spread along the depth and then over planes."""
    kernel, pads = _three(kernel_size), _three(padding)
    step = _three(stride) if len(stride) else kernel
    share = gradient.float()
    if divisor_override is not None:
        share = share / divisor_override
    else:
        ones = torch.ones((1, *x.shape[-3:]), dtype=torch.float32, device=x.device)
        counts = F.avg_pool3d(ones, kernel, step, pads, ceil_mode, count_include_pad, 1)
        inner = F.avg_pool3d(ones, kernel, step, pads, ceil_mode, count_include_pad)
        share = share * (inner / counts)
    depth, height, width = x.shape[-3:]
    lines = share.reshape(-1, share.shape[-3], share.shape[-2] * share.shape[-1])
    whole = lines.new_zeros(lines.shape[0], depth, lines.shape[2])
    back, last = torch.ops.aten.avg_pool2d_backward, (ceil_mode, True, 1)
    lines = back(lines, whole, (kernel[0], 1), (step[0], 1), (pads[0], 0), *last)
    planes = lines.reshape(-1, *share.shape[-2:])
    made = back(planes, planes.new_zeros(planes.shape[0], height, width), kernel[1:], step[1:], pads[1:], *last)
    return made.reshape(x.shape).to(x.dtype)


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    return (sizes[0], sizes[-2], sizes[-1]) if len(sizes) > 1 else (sizes[0],) * 3


def _replication_pad(gradient: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    """What was copied beyond the ends goes back to the ends; what was cut off has no gradient."""
    made = gradient.float()
    for number in range(len(padding) // 2):
        dim, (low, high) = x.dim() - 1 - number, padding[2 * number : 2 * number + 2]
        before, after = [0] * (2 * number), x.shape[dim]
        made = F.pad(made, (*before, max(-low, 0), max(-high, 0)))
        low, high = max(low, 0), max(high, 0)
        first = made.narrow(dim, 0, low).sum(dim, keepdim=True)
        last = made.narrow(dim, low + after, high).sum(dim, keepdim=True)
        made = made.narrow(dim, low, after)
        made = made + F.pad(first, (*before, 0, after - 1)) + F.pad(last, (*before, after - 1, 0))
    return made.to(x.dtype)


# ---------------------------------------------------------------------------------------------------------- distances


def _cdist(gradient: Tensor, one: Tensor, other: Tensor, p: float, distance: Tensor) -> Tensor:
    if p == 0:
        return torch.zeros_like(one)
    gap = one.unsqueeze(-2) - other.unsqueeze(-3)
    gradient, distance = gradient.unsqueeze(-1), distance.unsqueeze(-1)
    if p == 1:
        share = gap.sign()
    elif p == math.inf:
        share = gap.sign() * (gap.abs() == distance)
    else:
        powered = gap if p == 2 else gap.sign() * torch.where(gap == 0, 0, gap.abs().pow(p - 1))
        below = distance if p == 2 else distance.pow(p - 1)
        share = torch.where(distance == 0, 0, powered / below)
    return (gradient * share).sum(-2).sum_to_size(one.shape)


def _pdist(gradient: Tensor, x: Tensor, p: float, distance: Tensor) -> Tensor:
    """Pairs as a symmetric matrix."""
    sides = []
    for values in (gradient, distance):
        parts = values.split([x.size(0) - 1 - row for row in range(x.size(0))])
        upper = torch.stack([F.pad(part, (row + 1, 0)) for row, part in enumerate(parts)])
        sides.append(upper + upper.t())
    return _cdist(sides[0], x, x, p, sides[1])


# ---------------------------------------------------------------------------------------------------- losses and others


def _shrink(gradient: Tensor, x: Tensor, lambd: float) -> Tensor:
    return torch.where((x >= -lambd) & (x <= lambd), 0, gradient)


def _multi_margin(
    gradient: Tensor, x: Tensor, target: Tensor, p: int, margin: float, weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:  # fmt: skip
    rows, wanted = x.reshape(-1, x.size(-1)), target.reshape(-1, 1)
    gap = margin - rows.gather(1, wanted) + rows
    is_target = torch.arange(rows.size(1), device=x.device) == wanted
    slope = torch.where((gap > 0) & ~is_target, 1.0 if p == 1 else 2 * gap, 0.0) / rows.size(1)
    if weight is not None:
        slope = slope * weight[wanted]
    slope = torch.where(is_target, -slope.sum(1, keepdim=True), slope)
    if reduction == _MEAN:
        slope = slope / rows.size(0)
    return (slope * gradient.reshape(-1, 1)).reshape(x.shape)


def _wanted(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of numbers; the targets of each up to the first negative one, which of them count; and who is a target."""
    rows, wanted = x.reshape(-1, x.size(-1)), target.reshape(-1, x.size(-1))
    given = (wanted >= 0).to(torch.int32).cumprod(1) != 0
    places = torch.where(given, wanted, 0)
    marked = torch.zeros_like(rows, dtype=torch.int32).scatter_add(1, places, given.to(torch.int32)) != 0
    return rows, places, given, marked


def _beyond(rows: Tensor, places: Tensor, given: Tensor, marked: Tensor) -> Tensor:
    """By how much each number that is no target comes too close to each target: (rows, targets, numbers)."""
    gap = (1 - rows.gather(1, places).unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)
    return torch.where(given.unsqueeze(2) & ~marked.unsqueeze(1), gap, 0)


def _multilabel_margin_forward(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    rows, places, given, marked = _wanted(x, target)
    loss = _beyond(rows, places, given, marked).sum((1, 2)) / rows.size(1)
    is_target = marked.to(x.dtype).reshape(target.shape)
    if reduction == _NONE:
        return loss.reshape(x.shape[:-1]), is_target
    return (loss.mean() if reduction == _MEAN else loss.sum()), is_target


def _multilabel_margin(gradient: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor) -> Tensor:
    rows, places, given, marked = _wanted(x, target)
    hit = (_beyond(rows, places, given, marked) > 0).to(x.dtype) / rows.size(1)
    slope = hit.sum(1).scatter_add(1, places, -hit.sum(2))
    if reduction == _MEAN:
        slope = slope / rows.size(0)
    return (slope * gradient.reshape(-1, 1)).reshape(x.shape)


def _sample_weights(
    gradient: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, bag: Tensor, mode: int, padding_idx: int = -1
) -> Tensor:
    """The derivative by the weights of a bag's rows, which are summed."""
    if not bag.numel():
        bag = (torch.arange(indices.numel(), device=indices.device)[:, None] >= offsets).sum(1) - 1
    return torch.where(indices != padding_idx, (gradient[bag] * weight[indices]).sum(1), 0)
