"""The table of converters: one function for each core ATen operator, found by the operator's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch.fx import Node

from nki.core.dtypes import DType, float32
from nki.graph.errors import GraphError
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.types import Number, promoted
from nki.graph.ir import TensorType, Value

Result = Value | None | Sequence[Value | None]
Operand = Value | Number


@dataclass(slots=True)
class Call:
    """One call of an operator, for its converter.

    Attributes:
        name: the operator's, for example "aten.add.Tensor".
        types: of its results, from the trace; None where a result is no tensor.
        used: which of its results something needs.
        seeds: gives a key that no other call of the model has, for random numbers.
        node: the call in the graph, with PyTorch's own dtypes and strides; None for a call that no graph has.
        value_of: the value of a node before this one.
    """

    name: str
    types: tuple[TensorType | None, ...]
    used: frozenset[int]
    seeds: Callable[[], Value]
    node: Node | None = None
    value_of: Callable[[Node], Value] | None = None

    @property
    def type(self) -> TensorType:
        """What type the only result has, or the first."""
        first = self.types[0]
        if first is None:
            raise TypeError(f"{self.name} has no tensor as its result")
        return first

    @property
    def dtype(self) -> DType:
        return self.type.dtype


Converter = Callable[..., Result]
"""``converter(b, call, *arguments)``, where the arguments are all those of the operator's schema, in its order, with
`Value` in the place of tensors."""

CONVERTERS: dict[str, Converter] = {}
"""By operator; filled when the modules with converters are imported."""


_NAMESPACES = ("prims.", "_c10d_functional.")

_Function = TypeVar("_Function", bound=Callable[..., Any])


def converts(*names: str) -> Callable[[_Function], _Function]:
    """Enter a function for operators of ATen: "add.Tensor"; without an overload it is the default one.

    Other namespaces are written: "prims.fma.default", "_c10d_functional.all_reduce.default".
    """

    def enter(function: _Function) -> _Function:
        for name in names:
            full = name if name.startswith(_NAMESPACES) else f"aten.{name if '.' in name else f'{name}.default'}"
            CONVERTERS[full] = function
        return function

    return enter


def in_dtype(b: Builder, operand: Operand, dtype: DType) -> Value:
    """A tensor or a number as a tensor of a dtype."""
    return b.convert(operand, dtype) if isinstance(operand, Value) else b.constant(operand, dtype)


def together(b: Builder, *operands: Operand) -> list[Value]:
    """Operands in the dtype that ATen computes in."""
    dtype = promoted(*(operand.type if isinstance(operand, Value) else operand for operand in operands))
    return [in_dtype(b, operand, dtype) for operand in operands]


def wide(b: Builder, x: Value) -> Value:
    """Small floats in float32, in which ATen computes inside of an operator."""
    return b.convert(x, float32) if x.type.dtype.is_float and x.type.dtype.bits < 32 else x


def axis(x: Value, dimension: int) -> int:
    """A dimension that may count from the end."""
    return dimension % max(len(x.type.shape), 1)


def axes(x: Value, dimensions: int | Sequence[int] | None) -> tuple[int, ...]:
    """Dimensions that may count from the end; none given means all."""
    if dimensions is None or (not isinstance(dimensions, int) and not len(dimensions)):
        return tuple(range(len(x.type.shape)))
    if isinstance(dimensions, int):
        dimensions = (dimensions,)
    return tuple(axis(x, dimension) for dimension in dimensions) if x.type.shape else ()


def refused(b: Builder, call: Call, reason: str, fix: str, *operands: Any) -> GraphError:
    """The error for a case of an operator that its converter does not have."""
    types = ", ".join(str(operand.type) for operand in operands if isinstance(operand, Value))
    return GraphError(
        "graph.unsupported",
        f"{call.name}({types}) -> {', '.join(str(type_) for type_ in call.types)}: {reason}",
        rule="an operation of the model has a kernel that computes it on the device",
        fix=fix,
        location=b.location,
    )
