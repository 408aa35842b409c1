"""Python numbers that change between calls: in a graph that is compiled they are tensors without a dimension.

Dynamo makes a symbol of a number that was another one in an earlier call. PyTorch compiles a graph anew for each value
of a symbol, unless a sum, a product or a comparison takes it. So every elementwise operator that is given a symbol is
written here with such a tensor in its place. It joins in as the number would: it decides the dtype like a Python
number, and has the precision in which the operator computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes, get_computation_dtype

_SYMBOLS = (torch.SymFloat, torch.SymInt)

_aten = torch.ops.aten

_convert = torch.ops.prims.convert_element_type.default

_APART = (
    "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "baddbmm", "celu", "elu", "hardshrink", "hardtanh",
    "leaky_relu", "leaky_relu_backward", "lerp.Scalar", "logit", "masked_fill.Scalar", "nan_to_num", "softplus",
    "softshrink", "threshold", "xlogy.Scalar_Other", "xlogy.Scalar_Self",
)  # fmt: skip
"""Operators that PyTorch itself takes apart into those below."""


def with_symbols(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Decompositions of which those of elementwise operators take symbols; others are what they were."""
    found: dict[Any, Callable[..., Any]] = dict(table)
    for operator, lifted in _lifted().items():
        found[operator] = _choosing(lifted, table.get(operator))
    return found


def is_elementwise(function: Any) -> bool:
    """Whether a function or a method of a tensor, by its name, is written with tensors in the place of numbers."""
    name = (function if isinstance(function, str) else getattr(function, "__name__", "")).strip("_")
    return name in _NAMES or name.removeprefix("i") in _NAMES


_NAMES = frozenset(
    ("add", "mul", "multiply", "sub", "subtract", "truediv", "div", "divide", "true_divide", "radd", "rmul", "rsub",
     "rtruediv", "eq", "ne", "lt", "le", "gt", "ge", "pow", "rpow", "clamp", "clamp_min", "clamp_max", "masked_fill",
     "fill", "full_like", "neg")
)  # fmt: skip


def _choosing(lifted: Callable[..., Any], other: Callable[..., Any] | None) -> Callable[..., Any]:
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, _SYMBOLS) for value in (*args, *kwargs.values())):
            return lifted(*args, **kwargs)
        return NotImplemented if other is None else other(*args, **kwargs)

    return decomposed


def _number(value: Any, dtype: torch.dtype) -> Tensor:
    """A number as a tensor; PyTorch makes a tensor of a symbol in a product."""
    if isinstance(value, torch.SymFloat):
        value = _aten.mul.Tensor(_aten.scalar_tensor.default(1.0, dtype=torch.float64), value)
    elif isinstance(value, torch.SymInt):
        value = _aten.scalar_tensor.default(value, dtype=torch.int64)
    else:
        return _aten.scalar_tensor.default(value, dtype=dtype)
    return _as(value, dtype)


def _product(x: Any, y: Any) -> Any:
    """A product; that of a float64 tensor without a dimension is the one that PyTorch makes a tensor of."""
    if isinstance(x, Tensor) and x.dtype == torch.float64 and not x.dim() and isinstance(y, torch.SymFloat):
        return NotImplemented
    return _elementwise(_aten.mul.Tensor, KIND.DEFAULT)(x, y)


def _as(value: Any, dtype: torch.dtype) -> Tensor:
    if not isinstance(value, Tensor):
        return _number(value, dtype)
    return value if value.dtype == dtype else _convert(value, dtype)


def _plain(value: Any) -> Any:
    """A value that decides the dtype as a symbol does."""
    return (1.0 if isinstance(value, torch.SymFloat) else 1) if isinstance(value, _SYMBOLS) else value


def _elementwise(operator: Any, kind: KIND = KIND.NO_OPMATH) -> Callable[..., Any]:
    """An operator of tensors in the place of one of numbers, in the dtypes that it would have with numbers.

    Args:
        kind: how the dtypes come about. Without "opmath" a number is rounded to bfloat16 beside tensors of that.
    """

    def lifted(*args: Any, **kwargs: Any) -> Tensor:
        inner, outer = elementwise_dtypes(*map(_plain, args), type_promotion_kind=kind)
        found = operator(*(None if value is None else _as(value, inner) for value in args), **kwargs)
        return found if kind is KIND.NO_OPMATH or found.dtype == outer else _convert(found, outer)

    return lifted


def _sum(operator: Any, turned: bool = False) -> Callable[..., Any]:
    """Sums and differences with a factor of the second operand; `turned` subtracts the first one from it."""

    def lifted(x: Any, y: Any, alpha: Any = 1) -> Tensor:
        dtype, _ = elementwise_dtypes(_plain(x), _plain(y), type_promotion_kind=KIND.NO_OPMATH)
        first, second = (_as(value, dtype) for value in ((y, x) if turned else (x, y)))
        if isinstance(alpha, _SYMBOLS) or alpha != 1:
            wide = get_computation_dtype(dtype)
            product = _aten.mul.Tensor(_as(second, wide), _as(_as(alpha, dtype), wide))
            return _as(operator(_as(first, wide), product), dtype)
        return _as(operator(first, second), dtype)

    return lifted


def _clamp(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    return _elementwise(_aten.clamp.Tensor)(x, low, high)


def _where(mask: Tensor, x: Any, y: Any) -> Tensor:
    inner, _ = elementwise_dtypes(_plain(x), _plain(y), type_promotion_kind=KIND.NO_OPMATH)
    return _aten.where.self(mask, _as(x, inner), _as(y, inner))


def _scalar_tensor(value: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    if isinstance(value, torch.SymInt) and dtype == torch.int64:
        return NotImplemented
    made = _number(value, dtype or _default(value))
    device = kwargs.get("device")
    return made if device is None or device.type == "cpu" else made.to(device)


def _full(size: Any, value: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    made = _number(value, dtype or _default(value)).expand(size).clone()
    device = kwargs.get("device")
    return made if device is None or device.type == "cpu" else made.to(device)


def _full_like(x: Tensor, value: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    return _full(x.shape, value, dtype or x.dtype, device=kwargs.get("device") or x.device)


def _new_full(x: Tensor, size: Any, value: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    return _full(size, value, dtype or x.dtype, device=kwargs.get("device") or x.device)


def _fill(x: Tensor, value: Any) -> Tensor:
    return _full_like(x, value)


def _default(value: Any) -> torch.dtype:
    return torch.get_default_dtype() if isinstance(value, float | torch.SymFloat) else torch.int64


def _dropout(x: Tensor, p: Any, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    rate = _number(p, torch.float32)
    kept = torch.rand_like(x, dtype=torch.float32) >= rate
    scale = torch.where(rate < 1, 1 / (1 - rate), 0)
    return (x * kept * scale).to(x.dtype), kept


def _lifted() -> dict[Any, Callable[..., Any]]:
    a = _aten
    found: dict[Any, Callable[..., Any]] = {
        a.add.Tensor: _sum(a.add.Tensor),
        a.add.Scalar: _sum(a.add.Tensor),
        a.sub.Tensor: _sum(a.sub.Tensor),
        a.sub.Scalar: _sum(a.sub.Tensor),
        a.rsub.Scalar: _sum(a.sub.Tensor, turned=True),
        a.mul.Tensor: _product,
        a.mul.Scalar: _product,
        a.div.Tensor: _elementwise(a.div.Tensor, KIND.INT_TO_FLOAT),
        a.div.Scalar: _elementwise(a.div.Tensor, KIND.INT_TO_FLOAT),
        a.div.Tensor_mode: _elementwise(a.div.Tensor_mode, KIND.DEFAULT),
        a.div.Scalar_mode: _elementwise(a.div.Tensor_mode, KIND.DEFAULT),
        a.floor_divide.default: _elementwise(a.floor_divide.default, KIND.DEFAULT),
        a.remainder.Scalar: _elementwise(a.remainder.Tensor),
        a.fmod.Scalar: _elementwise(a.fmod.Tensor),
        a.pow.Tensor_Scalar: _elementwise(a.pow.Tensor_Tensor),
        a.pow.Scalar: _elementwise(a.pow.Tensor_Tensor),
        a.clamp.default: _clamp,
        a.clamp_min.default: _clamp,
        a.clamp_max.default: lambda x, high: _clamp(x, None, high),
        a.where.ScalarOther: _where,
        a.where.ScalarSelf: _where,
        a.where.Scalar: _where,
        a.scalar_tensor.default: _scalar_tensor,
        a.full.default: _full,
        a.full_like.default: _full_like,
        a.new_full.default: _new_full,
        a.fill.Scalar: _fill,
        a.native_dropout.default: _dropout,
    }
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        packet = getattr(a, name)
        found[packet.Scalar] = found[packet.Tensor] = _elementwise(packet.Tensor)
    for name in _APART:
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(a, packet), overload or "default")
        if operator in decomposition_table:
            found[operator] = decomposition_table[operator]
    return found
