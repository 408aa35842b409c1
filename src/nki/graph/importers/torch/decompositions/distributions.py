"""Random numbers of many distributions, in terms of uniform ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_LEAST = 2.0**-25
"""Half of the least distance of two uniform numbers: exponential ones are above zero, so that they have a logarithm."""


def draws() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator."""
    aten = torch.ops.aten
    return {
        aten.bernoulli.Tensor: _bernoulli,
        aten.cauchy.default: _cauchy,
        aten.exponential.default: _exponential,
        aten.geometric.default: _geometric,
        aten.log_normal.default: _log_normal,
        aten.multinomial.default: _multinomial,
        aten.normal.Tensor_Tensor: _normal_of,
        aten.normal.Tensor_float: _normal_of,
        aten.normal.float_Tensor: _normal_of,
        aten.normal.float_float: _normal_sized,
        aten.normal_functional.default: _normal_like,
        aten.randint_like.default: _randint_like,
        aten.randint_like.low_dtype: _randint_between_like,
        aten.randn.default: _randn,
        aten.randn_like.default: _randn_like,
        aten.random.default: _random,
        aten.random.to: _random_below,
        getattr(aten.random, "from"): _random_between,
        aten.randperm.default: _randperm,
        aten.rrelu_with_noise_backward.default: _rrelu_backward,
        aten.rrelu_with_noise_functional.default: _rrelu,
        aten.uniform.default: _uniform,
    }


def _rand(x: Tensor) -> Tensor:
    """Uniform float32 in the shape of a tensor."""
    return torch.rand(x.shape, dtype=torch.float32, device=x.device)


# --------------------------------------------------------------------------------------------------------------- normal


def _standard(shape: Sequence[int], device: torch.device | None) -> Tensor:
    """G. Box and M. Muller, A note on the generation of random normal deviates."""
    radius = (-2 * torch.log1p(-torch.rand(shape, dtype=torch.float32, device=device))).sqrt()
    return radius * torch.cos(2 * math.pi * torch.rand(shape, dtype=torch.float32, device=device))


def _randn(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
) -> Tensor:
    return _standard(size, device).to(dtype or torch.get_default_dtype())


def _randn_like(x: Tensor, *, dtype: torch.dtype | None = None, device: Any = None, **kept: Any) -> Tensor:
    return _standard(x.shape, device or x.device).to(dtype or x.dtype)


def _normal_of(mean: Tensor | float, std: Tensor | float = 1.0, *, generator: None = None) -> Tensor:
    """With means and deviations of their own, or one for all."""
    given = [operand for operand in (mean, std) if isinstance(operand, Tensor)]
    shape = torch.broadcast_shapes(*(operand.shape for operand in given))
    dtype = mean.dtype if isinstance(mean, Tensor) else given[0].dtype
    return (_standard(shape, given[0].device) * std + mean).to(dtype)


def _normal_sized(
    mean: float, std: float, size: Sequence[int], *, generator: None = None, dtype: torch.dtype | None = None,
    device: Any = None, **kept: Any,
) -> Tensor:  # fmt: skip
    return (_standard(size, device) * std + mean).to(dtype or torch.get_default_dtype())


def _normal_like(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: None = None) -> Tensor:
    return (_standard(x.shape, x.device) * std + mean).to(x.dtype)


def _log_normal(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: None = None) -> Tensor:
    return (_standard(x.shape, x.device) * std + mean).exp().to(x.dtype)


# --------------------------------------------------------------------------------------------------------- other curves


def _uniform(x: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: None = None) -> Tensor:
    """From the first bound up to the other one, which rounding alone can reach."""
    return (torch.rand(x.shape, dtype=x.dtype, device=x.device).float() * (to - from_) + from_).to(x.dtype)


def _standard_exponential(x: Tensor) -> Tensor:
    return (-torch.log1p(-_rand(x))).clamp(min=_LEAST)


def _exponential(x: Tensor, lambd: float = 1.0, *, generator: None = None) -> Tensor:
    return (_standard_exponential(x) / lambd).to(x.dtype)


def _geometric(x: Tensor, p: float, *, generator: None = None) -> Tensor:
    """How many trials it takes until one of chance `p` succeeds."""
    if p >= 1:
        return torch.ones_like(x)
    return (_standard_exponential(x) / -math.log1p(-p)).ceil().clamp(min=1).to(x.dtype)


def _cauchy(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: None = None) -> Tensor:
    return (torch.tan(math.pi * (_rand(x) - 0.5)) * sigma + median).to(x.dtype)


def _bernoulli(x: Tensor, p: Tensor, *, generator: None = None) -> Tensor:
    return (_rand(x) < p).to(x.dtype)


def _rrelu(
    x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, generator: None = None
) -> tuple[Tensor, Tensor]:
    """A slope of its own for each element below zero: the result and the slopes."""
    if not training:
        return torch.where(x <= 0, x * ((lower + upper) / 2), x), noise.clone()
    slopes = torch.where(x <= 0, _uniform(x, lower, upper), 1)
    return x * slopes, slopes


def _rrelu_backward(
    gradient: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, self_is_result: bool
) -> Tensor:
    if training and upper - lower > 1e-6:
        return gradient * noise
    return torch.where(x > 0, gradient, gradient * ((lower + upper) / 2))


# ---------------------------------------------------------------------------------------------------------------- whole


def _randint_between_like(
    x: Tensor, low: int, high: int, *, dtype: torch.dtype | None = None, device: Any = None, **kept: Any
) -> Tensor:
    return torch.randint(low, high, x.shape, dtype=dtype or x.dtype, device=device or x.device)


def _randint_like(x: Tensor, high: int, *, dtype: torch.dtype | None = None, device: Any = None, **kept: Any) -> Tensor:
    return _randint_between_like(x, 0, high, dtype=dtype, device=device)


def _random_between(x: Tensor, from_: int, to: int | None, *, generator: None = None) -> Any:
    if to is None:
        return NotImplemented
    return torch.randint(from_, to, x.shape, dtype=x.dtype, device=x.device)


def _random_below(x: Tensor, to: int, *, generator: None = None) -> Tensor:
    return _random_between(x, 0, to)


_DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""Binary digits of floats: all whole numbers of so many digits are among them."""


def _random(x: Tensor, *, generator: None = None) -> Any:
    """All numbers from zero that a dtype has, or a float without gaps; those of 64 bits do not fit."""
    if x.dtype in (torch.int64, torch.float64):
        return NotImplemented
    if x.dtype == torch.bool:
        return _random_below(x, 2)
    return _random_below(x, (1 << _DIGITS[x.dtype] if x.dtype in _DIGITS else torch.iinfo(x.dtype).max) + 1)


def _randperm(n: int, *, dtype: torch.dtype | None = None, device: Any = None, **kept: Any) -> Tensor:
    """Random numbers in order: where two of 24 bits are equal, the earlier one comes first."""
    return torch.rand(n, device=device).sort(stable=True, dim=0)[1].to(dtype or torch.int64)


def _multinomial(weights: Tensor, num_samples: int, replacement: bool = False, *, generator: None = None) -> Tensor:
    """Places drawn with chances in proportion to weights.

    Without replacement they are those of the least exponential numbers over their weights, in order: P. Efraimidis and
    P. Spirakis, Weighted random sampling with a reservoir (2006).
    """
    chances = weights.float()
    if not replacement:
        keys = torch.where(chances > 0, _standard_exponential(chances) / chances, math.inf)
        return keys.sort(stable=True, dim=-1)[1][..., :num_samples]
    ends = chances.cumsum(-1)
    shape = (*weights.shape[:-1], num_samples)
    wanted = torch.rand(shape, dtype=torch.float32, device=weights.device) * ends[..., -1:]
    last = (torch.arange(weights.size(-1), device=weights.device) * (chances > 0)).amax(-1, keepdim=True)
    return torch.minimum(torch.searchsorted(ends, wanted, right=True), last)
