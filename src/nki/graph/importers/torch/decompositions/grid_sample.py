"""Samples of images at places that are computed: the forms and derivatives that PyTorch does not take apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

_NEAREST, _CUBIC = 1, 2
_ZEROS, _BORDER = 0, 1
"""Values of ``interpolation_mode`` and ``padding_mode`` (ATen); else linear, and reflection."""


def samplers() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator."""
    aten = torch.ops.aten
    return {
        aten.grid_sampler_2d_backward.default: _backward,
        aten.grid_sampler_3d.default: _forward,
        aten.grid_sampler_3d_backward.default: _backward,
    }


def _reflected(place: Tensor, slope: Tensor, size: int, align: bool) -> tuple[Tensor, Tensor]:
    low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
    if span == 0:
        return torch.zeros_like(place), torch.zeros_like(slope)
    away = (place - low).abs()
    slope = torch.where(place < low, -slope, slope)
    turns, rest = torch.floor(away / span), torch.fmod(away, span)
    odd = torch.fmod(turns, 2.0) != 0
    return torch.where(odd, span - rest, rest) + low, torch.where(odd, -slope, slope)


def _scaled(grid: Tensor, size: int, align: bool) -> tuple[Tensor, Tensor]:
    """Places in elements for numbers from -1 to 1, and their derivatives."""
    factor = (size - 1) / 2 if align else size / 2
    place = (grid + 1) * factor
    return place if align else place - 0.5, torch.full_like(grid, factor)


def _padded(place: Tensor, slope: Tensor, size: int, padding: int, align: bool) -> tuple[Tensor, Tensor]:
    """Places outside of an image brought into it, unless what is there counts as zero."""
    if padding == _ZEROS:
        return place, slope
    if padding != _BORDER:
        place, slope = _reflected(place, slope, size, align)
    outside = (place <= 0) | (place >= size - 1)
    return place.clamp(0, size - 1), torch.where(outside, 0.0, slope)


Side = list[tuple[Tensor, Tensor, Tensor]]
"""Elements along a dimension: their places, their weights, and the derivatives of these."""


def _side(grid: Tensor, size: int, mode: int, padding: int, align: bool) -> Side:
    place, slope = _scaled(grid, size, align)
    if mode == _CUBIC:
        first = place.floor()
        part = place - first
        return [(_padded(first + k, slope, size, padding, align)[0], *_cubic(part - k, slope)) for k in (-1, 0, 1, 2)]
    place, slope = _padded(place, slope, size, padding, align)
    if mode == _NEAREST:
        return [(place.round(), torch.ones_like(place), torch.zeros_like(place))]
    first = place.floor()
    part = place - first
    return [(first, 1 - part, -slope), (first + 1, part, slope)]


def _cubic(x: Tensor, slope: Tensor, a: float = -0.75) -> tuple[Tensor, Tensor]:
    """Keys's weight at a distance, and its derivative."""
    size, sign = x.abs(), x.sign() * slope
    near = ((a + 2) * size - (a + 3)) * size * size + 1
    far = ((size - 5) * size + 8) * size * a - 4 * a
    nearer = (3 * (a + 2) * size - 2 * (a + 3)) * size
    farther = (3 * size - 10) * size * a + 8 * a
    return torch.where(size < 1, near, far), torch.where(size < 1, nearer, farther) * sign


Corner = tuple[Tensor, Tensor, list[Tensor], list[Tensor]]
"""Where an element is in an image, whether it is inside, its weight along each dimension, and their derivatives."""


def _corners(grid: Tensor, sizes: Sequence[int], mode: int, padding: int, align: bool) -> list[Corner]:
    """The elements around each place; `grid` has x first, images have it last.

    What is known of one dimension is computed once, and not for each of the corners that share it.
    """
    sides = []
    for number, size in enumerate(sizes):
        side = []
        for place, weight, slope in _side(grid[..., len(sizes) - 1 - number], size, mode, padding, align):
            index, inside = place.clamp(0, size - 1).to(torch.int64), (place >= 0) & (place < size)
            side.append([x.flatten(1) for x in (index, inside, weight, slope)])
        sides.append(side)
    corners = []
    for chosen in product(*sides):
        index, inside = chosen[0][:2]
        for (other, there, _, _), size in zip(chosen[1:], sizes[1:], strict=True):
            index, inside = index * size + other, inside & there
        corners.append((index, inside, [weight for _, _, weight, _ in chosen], [slope for *_, slope in chosen]))
    return corners


def _product(factors: Sequence[Tensor]) -> Tensor:
    made = factors[0]
    for factor in factors[1:]:
        made = made * factor
    return made


def _forward(x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    flat = x.flatten(2)
    total = flat.new_zeros(())
    for index, inside, weights, _ in _corners(grid, x.shape[2:], interpolation_mode, padding_mode, align_corners):
        seen = flat.gather(2, index.unsqueeze(1).expand(-1, x.shape[1], -1))
        total = total + torch.where(inside.unsqueeze(1), seen * _product(weights).unsqueeze(1), 0)
    return total.reshape(*x.shape[:2], *grid.shape[1:-1])


def _backward(
    gradient: Tensor, x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of the images and of the places."""
    rank, given, flat = x.dim() - 2, gradient.flatten(2), x.flatten(2)
    images, moves = torch.zeros_like(flat), [given.new_zeros(()) for _ in range(rank)]
    for index, inside, weights, slopes in _corners(grid, x.shape[2:], interpolation_mode, padding_mode, align_corners):
        everywhere = index.unsqueeze(1).expand(-1, x.shape[1], -1)
        if output_mask[0]:
            part = torch.where(inside, _product(weights), 0).unsqueeze(1) * given
            images = images.scatter_add(2, everywhere, part)
        if output_mask[1]:
            seen = torch.where(inside, (flat.gather(2, everywhere) * given).sum(1), 0)
            for dim in range(rank):
                sides = [slopes[i] if i == dim else weights[i] for i in range(rank)]
                moves[dim] = moves[dim] + seen * _product(sides)
    places = torch.stack(moves[::-1], -1).reshape(grid.shape) if output_mask[1] else None
    return images.reshape(x.shape) if output_mask[0] else None, places
