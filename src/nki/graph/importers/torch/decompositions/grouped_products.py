"""Products of groups of rows, of which only the device knows where they begin, and counts of numbers in bins.

All products are made and those of other groups left out, so that no size depends on values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def grouped() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator."""
    aten = torch.ops.aten
    return {aten._grouped_mm.default: _grouped_mm, aten.histc.default: _histc}


def of_libraries() -> dict[Any, Callable[..., Any]]:
    """Products of groups under the names that libraries give them for compilers that refuse PyTorch's own in float32.

    Each has the meaning of PyTorch's; those that no library has defined in this process are left out.
    """
    found = {}
    for name, function in _LIBRARIES.items():
        space, _, operator = name.partition("::")
        packet = getattr(getattr(torch.ops, space), operator, None)
        if packet is not None:
            found[packet.default] = function
    return found


def _grouped_mm(
    x: Tensor, y: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """Products of the groups that `offs` ends: of rows of ``x``, columns of ``y``, or of the dimension in common.

    What comes after the last group is zero; PyTorch leaves it as it finds it.
    """
    made = _product(x, y, offs)
    return (made if bias is None else made + bias).to(out_dtype or x.dtype)


def _product(x: Tensor, y: Tensor, offs: Tensor | None) -> Tensor:
    if offs is None:
        return torch.bmm(x, y)
    if x.dim() == 2 and y.dim() == 3:  # rows of x, each with the matrix of its group
        groups, inner, columns = y.shape
        every = (x @ y.permute(1, 0, 2).reshape(inner, groups * columns)).reshape(-1, groups, columns)
        return torch.where(_members(offs, x.shape[0])[:, :, None], every, 0).sum(1)
    if x.dim() == 3 and y.dim() == 2:  # columns of y
        groups, rows, inner = x.shape
        every = (x.reshape(groups * rows, inner) @ y).reshape(groups, rows, -1)
        return torch.where(_members(offs, y.shape[1]).t()[:, None, :], every, 0).sum(0)
    inside = _members(offs, x.shape[1]).t()
    return torch.bmm(torch.where(inside[:, None, :], x, 0), torch.where(inside[:, :, None], y, 0))


def _gradients(x: Tensor, y: Tensor, offs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the rows and of the matrices, for that of their products."""
    return _product(gradient, y.transpose(1, 2), offs), _product(x.t(), gradient, offs)


_LIBRARIES: dict[str, Callable[..., Any]] = {
    "transformers::grouped_mm_fallback": _product,
    "transformers::grouped_mm_fallback_backward": _gradients,
}


def _members(ends: Tensor, count: int) -> Tensor:
    """Whether place i belongs to group g: it lies between the end of the group before and its own."""
    before = torch.arange(count, device=ends.device)[:, None] < ends
    return before & ~torch.cat([torch.zeros_like(before[:, :1]), before[:, :-1]], 1)


def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of `bins` equal parts of a range: that of the elements if it is empty."""
    data = x.flatten()
    low, high = (torch.full((), float(edge), dtype=x.dtype, device=x.device) for edge in (min, max))
    if min == max and x.numel():
        low, high = data.amin(), data.amax()
    same = low == high
    low, high = torch.where(same, low - 1, low), torch.where(same, high + 1, high)
    inside = (data >= low) & (data <= high)
    place = torch.div((data - low) * bins, high - low).where(inside, 0).to(torch.int32).clamp(0, bins - 1)
    return torch.zeros(bins, dtype=x.dtype, device=x.device).index_add(0, place, inside.to(x.dtype))
