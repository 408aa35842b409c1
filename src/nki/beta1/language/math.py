"""Math on tiles: each function returns a new tile, computed where its mask is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki.language as nl
from nki.beta1.errors import refused
from nki.beta1.language.arguments import hints_only, kind_of, operation, promoted
from nki.beta1.tensors.index import Index
from nki.beta1.tensors.scalar import Scalar
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.elementwise import elementwise
from nki.beta1.tracing.scalars import as_tile, extreme
from nki.core.dtypes import DType, float32, uint8
from nki.language.arguments import is_number
from nki.language.combine import combine
from nki.spec.operator import Operator, names_operator

Function = Callable[..., Any]


def _unary(name: str, *, logical: bool = False) -> Function:
    today = getattr(nl, name)
    own = getattr(today, "__nki_operator__", None)

    def function(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
        hints_only(f"nl.{name}", kwargs)
        kind = kind_of(bool if logical and dtype is None else dtype, _dtype(x, name))
        return elementwise(f"nl.{name}", [x], mask, lambda value: today(value, dtype=kind), explicit=dtype is not None)

    return _named(function, name, own, f"``{name}(x)`` of every element; ``dtype`` is that of `x` unless given.")


def _dtype(x: Any, name: str) -> DType:
    if isinstance(x, Tensor):
        return x.dtype
    raise refused("argument", f"nl.{name} got {x!r}", "pass a tile; for a number, compute it in Python")


def _binary(name: str, *, logical: bool = False) -> Function:
    own: Operator = getattr(nl, name).__nki_operator__

    def function(x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        hints_only(f"nl.{name}", kwargs)
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            return _of_python(name, x, y, dtype, mask)
        x, y = as_tile(x), as_tile(y)
        kind = kind_of(dtype, uint8 if logical else promoted(x, y))
        return elementwise(
            f"nl.{name}", [x, y], mask, lambda a, b: combine(own, a, b, kind), explicit=dtype is not None
        )

    return _named(function, name, own, f"``{name}(x, y)``; tiles broadcast, and one of the two may be a number.")


def _composite(name: str) -> Function:
    today = getattr(nl, name)

    def function(x: Any, y: Any, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        hints_only(f"nl.{name}", kwargs)
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            return _of_python(name, x, y, dtype, mask)
        x, y = as_tile(x), as_tile(y)
        found = promoted(x, y)
        kind = kind_of(dtype, found if found.is_float or name != "divide" else float32)
        return elementwise(f"nl.{name}", [x, y], mask, lambda a, b: today(a, b, dtype=kind), explicit=dtype is not None)

    return _named(function, name, getattr(today, "__nki_operator__", None), f"``{name}(x, y)``.")


def _of_python(name: str, x: Any, y: Any, dtype: Any, mask: Any) -> Any:
    """Two index expressions or numbers: Python computes them."""
    if dtype is not None or mask is not None:
        raise refused("argument", f"nl.{name} of {x!r} and {y!r} with dtype or mask", "omit them: Python computes it")
    if name not in _PYTHON or any(not (isinstance(each, Index | Scalar) or is_number(each)) for each in (x, y)):
        raise refused("argument", f"nl.{name} got {x!r} and {y!r}", "pass a tile and a tile or a number")
    if name in ("maximum", "minimum") and Scalar in (type(x), type(y)):
        return extreme(name, x, y)
    return _PYTHON[name](x, y)


_PYTHON: dict[str, Function] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / y,
    "power": lambda x, y: x**y,
    "mod": lambda x, y: x % y,
    "maximum": max,
    "minimum": min,
    "less": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "equal": lambda x, y: x == y,
    "not_equal": lambda x, y: x != y,
    "bitwise_and": lambda x, y: x & y,
    "bitwise_or": lambda x, y: x | y,
    "bitwise_xor": lambda x, y: x ^ y,
    "left_shift": lambda x, y: x << y,
    "right_shift": lambda x, y: x >> y,
}


def _named(function: Function, name: str, own: Operator | None, text: str) -> Function:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return names_operator(own)(function) if own is not None else function


UNARY = {
    name: _unary(name)
    for name in [
        "abs",
        "arctan",
        "ceil",
        "cos",
        "erf",
        "erf_dx",
        "exp",
        "floor",
        "gelu",
        "gelu_apprx_sigmoid",
        "gelu_apprx_tanh",
        "gelu_dx",
        "invert",
        "log",
        "mish",
        "negative",
        "reciprocal",
        "relu",
        "rsqrt",
        "sigmoid",
        "sign",
        "silu",
        "silu_dx",
        "sin",
        "softplus",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "trunc",
    ]
}
LOGICAL = [
    "equal",
    "not_equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
]
BINARY = {
    **{
        name: _binary(name)
        for name in [
            "add",
            "subtract",
            "multiply",
            "maximum",
            "minimum",
            "power",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "left_shift",
            "right_shift",
        ]
    },
    **{name: _binary(name, logical=True) for name in LOGICAL},
    **{name: _composite(name) for name in ("divide", "mod", "fmod")},
}
UNARY["logical_not"] = _unary("logical_not", logical=True)
Tensor.functions |= {**UNARY, **BINARY}

__all__ = ["BINARY", "UNARY", "operation"]
