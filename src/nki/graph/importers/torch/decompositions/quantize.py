"""Fake quantisation, for which PyTorch has no decomposition: rounded to a grid, and which numbers lay inside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


def quantized() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator."""
    aten = torch.ops.aten
    return {
        aten._fake_quantize_learnable_per_channel_affine.default: _learnable_per_channel,
        aten._fake_quantize_learnable_per_channel_affine_backward.default: _learnable_per_channel_backward,
        aten._fake_quantize_learnable_per_tensor_affine.default: _learnable_per_tensor,
        aten._fake_quantize_learnable_per_tensor_affine_backward.default: _learnable_per_tensor_backward,
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _per_tensor_of_tensors,
        aten.fake_quantize_per_channel_affine_cachemask.default: _per_channel,
        aten.fake_quantize_per_tensor_affine_cachemask.default: _per_tensor,
    }


def _on_grid(x: Tensor, scale: Tensor | float, zero: Tensor | float, low: int, high: int) -> Pair:
    """The nearest number of the grid, and whether it is within its bounds; NaN is below all of it."""
    inverse = 1 / scale.float() if isinstance(scale, Tensor) else float(np.float32(1) / np.float32(scale))
    place = torch.round(x.float() * inverse) + zero
    inside = (place >= low) & (place <= high)
    place = torch.where(place.isnan(), float(low), place).clamp(low, high)
    return ((place - zero) * scale).to(x.dtype), inside


def _per_tensor(x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Pair:
    return _on_grid(x, scale, zero_point, quant_min, quant_max)


def _per_tensor_of_tensors(
    x: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor, quant_min: int, quant_max: int
) -> Pair:
    made, inside = _on_grid(x, scale.reshape(()), zero_point.reshape(()).float(), quant_min, quant_max)
    on = fake_quant_enabled.reshape(()) != 0
    return torch.where(on, made, x), inside | ~on


def _along(x: Tensor, values: Tensor, axis: int) -> Tensor:
    """One number for each channel in a shape that broadcasts."""
    shape = [1] * x.dim()
    shape[axis] = -1
    return values.reshape(shape).float()


def _per_channel(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int) -> Pair:
    return _on_grid(x, _along(x, scale, axis), _along(x, zero_point, axis), quant_min, quant_max)


# ------------------------------------------------------------------------------------------------------------ learnable


def _nearest(zero_point: Tensor, low: int, high: int) -> Tensor:
    """A learnt zero point as the integer that is used."""
    return torch.round(zero_point.float()).clamp(low, high)


def _learnable_per_tensor(
    x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    zero = _nearest(zero_point.reshape(()), quant_min, quant_max)
    return _on_grid(x, scale.reshape(()), zero, quant_min, quant_max)[0]


def _learnable_per_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    zero = _along(x, _nearest(zero_point, quant_min, quant_max), axis)
    return _on_grid(x, _along(x, scale, axis), zero, quant_min, quant_max)[0]


def _slopes(
    gradient: Tensor, x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int, factor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the numbers, the scale and the zero point, element by element.

    S. Esser et al., Learned step size quantization (ICLR 2020).
    """
    exact = x.float() * (1 / scale)
    place = torch.round(exact + zero)
    inside = (place >= low) & (place <= high)
    bound = torch.where(place < low, float(low), float(high)) - zero
    steps = torch.where(inside, torch.round(exact + zero) - zero - exact, bound)
    zeros = torch.where(inside, 0.0, -gradient * scale * factor)
    return torch.where(inside, gradient, 0.0), gradient * steps * factor, zeros


def _learnable_per_tensor_backward(
    gradient: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    zero = _nearest(zero_point.reshape(()), quant_min, quant_max)
    slopes = _slopes(gradient, x, scale.reshape(()), zero, quant_min, quant_max, grad_factor)
    return slopes[0], slopes[1].sum().reshape(scale.shape), slopes[2].sum().reshape(zero_point.shape)


def _learnable_per_channel_backward(
    gradient: Tensor,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    zero = _along(x, _nearest(zero_point, quant_min, quant_max), axis)
    slopes = _slopes(gradient, x, _along(x, scale, axis), zero, quant_min, quant_max, grad_factor)
    others = [dim for dim in range(x.dim()) if dim != axis % x.dim()]
    sums = (slope.sum(others) if others else slope for slope in slopes[1:])
    return (slopes[0], *sums)
