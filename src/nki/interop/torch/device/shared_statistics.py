"""Batch norms whose statistics are those of several processes, which `torch.nn.SyncBatchNorm` combines.

PyTorch calls operators for the parts of it that its CPU does not have. They are computed by PyTorch's other operators.
Channels are dimension 1; statistics of short floats are float32, as in PyTorch's code for graphics cards.
"""

from __future__ import annotations

import torch
from torch import Tensor


def register(aten: torch.library.Library, key: str) -> None:
    """Give the device the operators of shared statistics."""
    aten.impl("batch_norm_stats", _statistics, key)
    aten.impl("batch_norm_gather_stats_with_counts", _gathered, key)
    aten.impl("batch_norm_elemt", _normalized, key)
    aten.impl("batch_norm_backward_reduce", _sums, key)
    aten.impl("batch_norm_backward_elemt", _gradient, key)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float64 else x.float()


def _others(x: Tensor) -> list[int]:
    return [dimension for dimension in range(x.dim()) if dimension != 1]


def _channels(values: Tensor, x: Tensor) -> Tensor:
    """Values of channels, that broadcast to a tensor."""
    return values.view(1, -1, *[1] * (x.dim() - 2))


def _statistics(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Means and inverse standard deviations [channels]."""
    variance, mean = torch.var_mean(_wide(x), _others(x), correction=0)
    return mean, (variance + epsilon).rsqrt()


def _gathered(
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    running_mean: Tensor | None,
    running_variance: Tensor | None,
    momentum: float,
    epsilon: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Statistics of all from those of each process [processes, channels], which had so many elements of a channel."""
    shares, total = counts.float().view(-1, 1), counts.float().sum()
    whole = (mean * shares).sum(0) / total
    squares = ((inverse.square().reciprocal() - epsilon + (mean - whole).square()) * shares).sum(0)
    if running_mean is not None:
        running_mean.lerp_(whole.to(running_mean.dtype), momentum)
    if running_variance is not None:
        running_variance.lerp_((squares / (total - 1)).to(running_variance.dtype), momentum)
    return whole, (squares / total + epsilon).rsqrt()


def _normalized(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inverse: Tensor, epsilon: float
) -> Tensor:
    made = (_wide(x) - _channels(mean, x)) * _channels(inverse, x)
    if weight is not None:
        made = made * _channels(weight, x)
    if bias is not None:
        made = made + _channels(bias, x)
    return made.to(x.dtype)


def _sums(
    gradient: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    of_input: bool,
    of_weight: bool,
    of_bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Sums [channels] of gradients, and of gradients with distances from the mean; gradients of weight and bias."""
    wide = _wide(gradient)
    plain = wide.sum(_others(x))
    moved = (wide * (_wide(x) - _channels(mean, x))).sum(_others(x))
    dtype = plain.dtype if weight is None else weight.dtype
    return (
        plain,
        moved,
        (moved * inverse).to(dtype) if of_weight else None,
        plain.to(dtype) if of_bias else None,
    )


def _gradient(
    gradient: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    moved: Tensor,
    counts: Tensor,
) -> Tensor:
    """Gradient of the input, given the sums of all processes."""
    total = counts.float().sum()
    scale = inverse if weight is None else inverse * weight
    distance = (_wide(x) - _channels(mean, x)) * _channels(inverse.square() * moved / total, x)
    return ((_wide(gradient) - _channels(sums / total, x) - distance) * _channels(scale, x)).to(x.dtype)
