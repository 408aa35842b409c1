"""Operators for which PyTorch has no decomposition: order statistics, bags of embeddings, distances, 3-d pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_SUM, _MEAN, _MAX = range(3)
"""Values of ``mode`` of bags of embeddings (ATen)."""


def spelled_out() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator."""
    aten = torch.ops.aten
    return {
        aten._cdist_forward.default: _cdist,
        aten._embedding_bag.default: _embedding_bag,
        aten._embedding_bag_forward_only.default: _embedding_bag,
        aten._embedding_bag_backward.default: _embedding_bag_backward,
        aten._embedding_bag_dense_backward.default: _embedding_bag_dense_backward,
        aten._pdist_forward.default: _pdist,
        aten._trilinear.default: _trilinear,
        aten.avg_pool3d.default: _avg_pool3d,
        aten.kthvalue.default: _kthvalue,
        aten.masked_scatter.default: _masked_scatter,
        aten.median.default: _median,
        aten.median.dim: _median_along,
        aten.nanmedian.default: _nanmedian,
        aten.nanmedian.dim: _nanmedian_along,
    }


# -------------------------------------------------------------------------------------------------- order statistics


def _in_order(x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted along a dimension with NaN as the largest numbers, where each came from, and how many are no NaN."""
    floating = x.is_floating_point()
    missing = x.isnan() if floating else torch.zeros_like(x, dtype=torch.bool)
    values, places = torch.sort(torch.where(missing, math.inf, x) if floating else x, dim=dim, stable=True)
    return values, places, (~missing).sum(dim, keepdim=True)


def _chosen(x: Tensor, dim: int, keep: bool, rank: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The elements of some rank and their places; `rank` takes how many elements are no NaN."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places, counts = _in_order(x, dim)
    wanted = rank(counts)
    found, place = values.gather(dim, wanted), places.gather(dim, wanted)
    if x.is_floating_point():
        # Among equal infinities NaN may come first: where all that is left are NaN, the first one is meant.
        first = x.isnan().to(torch.int32).argmax(dim, keepdim=True)
        none = wanted >= counts
        found, place = torch.where(none, math.nan, found), torch.where(none, first, place)
    return (found, place) if keep else (found.squeeze(dim), place.squeeze(dim))


def _median_along(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower median; NaN if one is among the elements."""
    size = x.size(dim) if x.dim() else 1
    return _chosen(x, dim, keepdim, lambda counts: torch.where(counts < size, size - 1, (size - 1) // 2))


def _median(x: Tensor) -> Tensor:
    if not x.numel():
        return x.new_full((), math.nan)
    return _median_along(x.flatten(), 0)[0]


def _nanmedian_along(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower median of what is no NaN."""
    return _chosen(x, dim, keepdim, lambda counts: ((counts - 1) // 2).clamp(min=0))


def _nanmedian(x: Tensor) -> Tensor:
    if not x.numel():
        return x.new_full((), math.nan)
    return _nanmedian_along(x.flatten(), 0)[0]


def _kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _chosen(x, dim, keepdim, lambda counts: torch.full_like(counts, k - 1))


# ----------------------------------------------------------------------------------------------- embeddings and masks


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows of a table combined bag by bag; and the bag of each index, the sizes of bags, and where maxima came from."""
    bags = offsets.numel() - int(include_last_offset)
    starts = offsets[:bags]
    bag = (torch.arange(indices.numel(), device=indices.device)[:, None] >= starts).sum(1) - 1
    counted = indices != padding_idx
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    sizes = torch.zeros_like(starts).index_add(0, bag, counted.to(starts.dtype))
    if mode == _MAX:
        members = (bag == torch.arange(bags, device=indices.device)[:, None]) & counted
        seen = torch.where(members[:, :, None], rows[None], -math.inf)
        filled = (sizes > 0)[:, None]
        return torch.where(filled, seen.amax(1), 0), bag, sizes, torch.where(filled, indices[seen.argmax(1)], 0)
    total = rows.new_zeros(bags, rows.size(1)).index_add(0, bag, torch.where(counted[:, None], rows, 0))
    return total / sizes.clamp(min=1)[:, None] if mode == _MEAN else total, bag, sizes, torch.zeros_like(sizes)


def _embedding_bag_dense_backward(
    gradient: Tensor,
    indices: Tensor,
    bag: Tensor,
    sizes: Tensor,
    maxima: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    table = gradient.new_zeros(num_weights, gradient.size(1))
    if mode == _MAX:
        return table.scatter_add(0, maxima, torch.where((sizes > 0)[:, None], gradient, 0))
    shares = gradient / sizes.clamp(min=1)[:, None] if mode == _MEAN else gradient
    rows = torch.where((indices != padding_idx)[:, None], shares[bag], 0)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    if scale_grad_by_freq:
        often = torch.zeros(num_weights, dtype=rows.dtype, device=rows.device).index_add(
            0, indices, torch.ones_like(rows[:, 0])
        )
        rows = rows / often[indices][:, None]
    return table.index_add(0, indices, rows)


def _embedding_bag_backward(
    gradient: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag: Tensor,
    sizes: Tensor,
    maxima: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    *rest: Any,
) -> Tensor:
    """The dense gradient of a table also where a sparse one was asked for."""
    given = gradient, indices, bag, sizes, maxima
    return _embedding_bag_dense_backward(*given, num_weights, scale_grad_by_freq, mode, *rest)


def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of `source` in order where the mask is true."""
    x, mask = torch.broadcast_tensors(x, mask)
    number = (mask.reshape(-1).to(torch.int64).cumsum(0) - 1).clamp(min=0)
    return torch.where(mask, source.reshape(-1)[number].reshape(mask.shape), x)


# ---------------------------------------------------------------------------------------------- products and distances


def _trilinear(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The product of three tensors with more dimensions of size 1, summed over some dimensions."""
    tensors = []
    for tensor, more in ((first, expand1), (second, expand2), (third, expand3)):
        for dim in sorted(more):
            tensor = tensor.unsqueeze(dim)
        tensors.append(tensor)
    product = tensors[0] * tensors[1] * tensors[2]
    return product.sum(list(sumdim)) if sumdim else product


def _cdist(one: Tensor, other: Tensor, p: float, compute_mode: int | None) -> Tensor:
    return _norm((one.unsqueeze(-2) - other.unsqueeze(-3)).abs(), p)


def _pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """Distances of all pairs, the first row's first."""
    whole = _cdist(x, x, p, None)
    return torch.cat([whole[row, row + 1 :] for row in range(x.size(0))])


def _norm(size: Tensor, p: float) -> Tensor:
    if p == 0:
        return (size != 0).to(size.dtype).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == math.inf:
        return size.amax(-1)
    return (size * size).sum(-1).sqrt() if p == 2 else size.pow(p).sum(-1).pow(1 / p)


# ------------------------------------------------------------------------------------------------------------ pooling


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    return (sizes[0], sizes[-2], sizes[-1]) if len(sizes) > 1 else (sizes[0],) * 3


def _sums(x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool) -> Tensor:
    """Sums over windows of the last three dimensions: of planes, then of these along the depth."""
    flat = x.reshape(-1, *x.shape[-2:])
    planes = F.avg_pool2d(flat, kernel[1:], stride[1:], padding[1:], ceil_mode, True, 1)
    lines = planes.reshape(-1, x.shape[-3], planes.shape[-2] * planes.shape[-1])
    sums = F.avg_pool2d(lines, (kernel[0], 1), (stride[0], 1), (padding[0], 0), ceil_mode, True, 1)
    return sums.reshape(*x.shape[:-3], sums.shape[-2], *planes.shape[-2:])


def _avg_pool3d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    kernel, pads = _three(kernel_size), _three(padding)
    step = _three(stride) if len(stride) else kernel
    total = _sums(x, kernel, step, pads, ceil_mode)
    whole = None if x.is_floating_point() else "trunc"  # ATen divides integers towards zero
    if divisor_override is not None:
        return torch.div(total, divisor_override, rounding_mode=whole)
    ones = torch.ones(x.shape[-3:], dtype=x.dtype, device=x.device)
    if count_include_pad:
        around = F.pad(ones, [pad for size in reversed(pads) for pad in (size, size)], value=1.0)
        return torch.div(total, _sums(around[None], kernel, step, (0, 0, 0), ceil_mode)[0], rounding_mode=whole)
    return torch.div(total, _sums(ones[None], kernel, step, pads, ceil_mode)[0], rounding_mode=whole)
