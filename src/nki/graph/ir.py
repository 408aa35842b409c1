"""A model as records: functions of operations on tensors of static shape, named as StableHLO names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any

from nki.core.dtypes import DType
from nki.core.source import UNKNOWN, Location

_LEAVES = frozenset({"constant", "iota", "broadcast_in_dim"})


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type; a scalar has the shape ()."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def __str__(self) -> str:
        return f"tensor<{'x'.join((*map(str, self.shape), str(self.dtype)))}>"


@dataclass(eq=False, slots=True)
class Value:
    """A tensor: an argument, or a result of one operation. Two values are the same if they are the same object."""

    type: TensorType
    name: str = ""


@dataclass(eq=False, slots=True)
class Region:
    """A nested computation: `results` are what its terminator returns; `ops` holds groups once they are made."""

    arguments: tuple[Value, ...]
    ops: list[Op | Group]
    results: tuple[Value, ...]


@dataclass(eq=False, slots=True)
class Op:
    """One operation.

    Attributes:
        name: of the operation without its dialect, if that is StableHLO ("add", "dot_general"); "call" of func.
        attributes: by StableHLO's names, as plain Python values; a constant's "value" is an array.
        location: the model's line.
    """

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    regions: tuple[Region, ...] = ()
    location: Location = UNKNOWN


@dataclass(eq=False, slots=True)
class Group:
    """Operations that one kernel of the device computes.

    Attributes:
        kind: which emitter makes its kernel, for example "pointwise" or "dot".
        ops: in topological order; for "dot" and "conv" the product first, then its epilogue. Splat constants that
            "pointwise", "rows", epilogues and a pad need are among them; other kinds are one operation, whose operands
            are all inputs.
        inputs: values from outside, in the order of the kernel's first arguments.
        outputs: values that others use, in the order of the kernel's last arguments.
        name: equal for groups that compute the same, which share one kernel.
    """

    kind: str
    ops: tuple[Op, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: str = ""

    @property
    def root(self) -> Op:
        """The operation that gives the group its kind: the first that is no constant, iota or broadcast."""
        return next((op for op in self.ops if op.name not in _LEAVES), self.ops[0])

    @property
    def location(self) -> Location:
        """Where the root is written."""
        return self.root.location


@dataclass(eq=False, slots=True)
class Function:
    """A named computation; `body` holds operations, and groups once they are made.

    Attributes:
        argument_attributes, result_attributes: what the producer says about each, for example ``tf.aliasing_output``;
            () if it says nothing.
        attributes: of the function itself.
    """

    name: str
    arguments: tuple[Value, ...]
    body: list[Op | Group]
    results: tuple[Value, ...]
    argument_attributes: tuple[Mapping[str, Any], ...] = ()
    result_attributes: tuple[Mapping[str, Any], ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(eq=False, slots=True)
class Module:
    """A model: `functions[entry]` is what runs, the others are called."""

    functions: dict[str, Function]
    entry: str = "main"

    @property
    def main(self) -> Function:
        """The function that runs."""
        return self.functions[self.entry]

    def walk(self) -> Iterator[Op]:
        """All operations outside of groups, outer ones before those in their regions."""
        for function in self.functions.values():
            for item in function.body:
                if isinstance(item, Op):
                    yield from walk(item)


def walk(op: Op) -> Iterator[Op]:
    """An operation, then those in its regions."""
    yield op
    for region in op.regions:
        for inner in region.ops:
            if isinstance(inner, Op):
                yield from walk(inner)
