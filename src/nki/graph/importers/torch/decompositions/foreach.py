"""ATen's operators on lists of tensors, which optimisers call, as one operator for each tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

_PREFIX = "aten::_foreach_"

Number: TypeAlias = float | Tensor


@cache  # PyTorch's operators are those of the process
def for_each() -> dict[Any, Callable[..., Any]]:
    """Decompositions by operator, for all that return new tensors."""
    found: dict[Any, Callable[..., Any]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        base, _, overload = full.removeprefix(_PREFIX).partition(".")
        if not full.startswith(_PREFIX) or base.endswith("_") or "out" in overload:
            continue
        operator = getattr(getattr(torch.ops.aten, f"_foreach_{base}"), overload or "default")
        found[operator] = partial(_each, _OF_ONE.get(base) or getattr(torch.ops.aten, base))
    return found


def _each(one: Callable[..., Tensor], *args: Any, **named: Any) -> list[Tensor]:
    """The operator `one` for each place of the lists; what is no list is the same for all."""
    if isinstance(args[-1], Tensor) and one in (_addcmul, _addcdiv):
        args = (*args[:-1], args[-1].unbind())
    count = next(len(value) for value in args if isinstance(value, list | tuple))
    rows = [[value[i] if isinstance(value, list | tuple) else value for value in args] for i in range(count)]
    return [one(*row, **named) for row in rows]


def _addcmul(x: Tensor, one: Tensor, two: Tensor, value: Number = 1) -> Tensor:
    return x + value * one * two if isinstance(value, Tensor) else torch.addcmul(x, one, two, value=value)


def _addcdiv(x: Tensor, one: Tensor, two: Tensor, value: Number = 1) -> Tensor:
    return x + value * one / two if isinstance(value, Tensor) else torch.addcdiv(x, one, two, value=value)


def _maximum(x: Tensor, other: Number) -> Tensor:
    return torch.maximum(x, other) if isinstance(other, Tensor) else x.clamp_min(other)


def _minimum(x: Tensor, other: Number) -> Tensor:
    return torch.minimum(x, other) if isinstance(other, Tensor) else x.clamp_max(other)


def _norm(x: Tensor, order: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    return torch.linalg.vector_norm(x, order, dtype=dtype)


def _power_sum(x: Tensor, order: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    return x.abs().pow(order).sum(dtype=dtype)


_OF_ONE: dict[str, Callable[..., Tensor]] = {
    "addcdiv": _addcdiv,
    "addcmul": _addcmul,
    "maximum": _maximum,
    "minimum": _minimum,
    "norm": _norm,
    "powsum": _power_sum,
    "zero": torch.zeros_like,
}
"""Where the operator on one tensor takes its arguments in another way, or is not there."""
