"""Operations of the model, appended one by one: each method makes one, works out its type and returns its value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nki.core.dtypes import DType, bool_, float8_e4m3fn, float8_e8m0fnu, int32
from nki.core.source import UNKNOWN, Location
from nki.graph.importers.torch import casts
from nki.graph.ir import Op, Region, TensorType, Value

IDENTITY: Mapping[str, Callable[[DType], Any]] = {
    "add": lambda dtype: 0,
    "multiply": lambda dtype: 1,
    "maximum": lambda dtype: -np.inf if dtype.is_float else dtype.min,
    "minimum": lambda dtype: np.inf if dtype.is_float else dtype.max,
    "and": lambda dtype: True,
    "or": lambda dtype: False,
}
"""What leaves the other operand of a reduction as it is."""


class Builder:
    """The operations of one function.

    Attributes:
        ops: what was made so far.
        location: the model's line of what is made next.
        double: whether float64 is among what is converted next, which float32 stands for.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.location: Location = UNKNOWN
        self.double = False

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        types: Sequence[TensorType],
        attributes: Mapping[str, Any] | None = None,
        regions: tuple[Region, ...] = (),
    ) -> tuple[Value, ...]:
        """Any operation, with the types of its results."""
        results = tuple(Value(type_) for type_ in types)
        self.ops.append(Op(name, tuple(operands), results, dict(attributes or {}), regions, self.location))
        return results

    def one(self, name: str, operands: Sequence[Value], type_: TensorType, **attributes: Any) -> Value:
        """An operation with one result."""
        return self.emit(name, operands, (type_,), attributes)[0]

    # ------------------------------------------------------------------------------------------------- elementwise

    def constant(self, value: Any, dtype: DType, shape: tuple[int, ...] = ()) -> Value:
        """A tensor that is known now; a number fills the shape, converted as PyTorch converts.

        Raises:
            GraphError: "graph.range" for a number of 64 bits that the 32 bits of the dtype do not hold.
        """
        array = np.asarray(value)
        casts.check_number(array, dtype, self.double, self.location)
        array = casts.converted(array, dtype)
        return self.one("constant", (), TensorType(shape, dtype), value=np.broadcast_to(array, shape))

    def unary(self, name: str, x: Value, **attributes: Any) -> Value:
        """An elementwise operation whose result has the type of its operand."""
        return self.one(name, (x,), x.type, **attributes)

    def binary(self, name: str, x: Value | float, y: Value | float) -> Value:
        """An elementwise operation. Shapes broadcast as in NumPy, a number takes the dtype of the other operand."""
        left, right = self.paired(x, y)
        return self.one(name, (left, right), left.type)

    def paired(self, x: Value | float, y: Value | float) -> tuple[Value, Value]:
        """Two operands in one shape; one of them is a tensor."""
        dtype = x.type.dtype if isinstance(x, Value) else y.type.dtype  # type: ignore[union-attr]
        left = x if isinstance(x, Value) else self.constant(x, dtype)
        right = y if isinstance(y, Value) else self.constant(y, dtype)
        shape = np.broadcast_shapes(left.type.shape, right.type.shape)
        return self.expanded(left, shape), self.expanded(right, shape)

    def add(self, x: Value | float, y: Value | float) -> Value:
        return self.binary("add", x, y)

    def subtract(self, x: Value | float, y: Value | float) -> Value:
        return self.binary("subtract", x, y)

    def multiply(self, x: Value | float, y: Value | float) -> Value:
        return self.binary("multiply", x, y)

    def divide(self, x: Value | float, y: Value | float) -> Value:
        return self.binary("divide", x, y)

    def compare(self, direction: str, x: Value | float, y: Value | float) -> Value:
        """``x direction y``, where direction is EQ, NE, LT, LE, GT or GE."""
        left, right = self.paired(x, y)
        dtype = left.type.dtype
        kind = "FLOAT" if dtype.is_float or dtype.kind == "complex" else "SIGNED" if dtype.kind == "int" else "UNSIGNED"
        type_ = TensorType(left.type.shape, bool_)
        return self.one("compare", (left, right), type_, comparison_direction=direction, compare_type=kind)

    def select(self, mask: Value, x: Value | float, y: Value | float) -> Value:
        """`x` where the mask is true, else `y`."""
        left, right = self.paired(x, y)
        shape = np.broadcast_shapes(mask.type.shape, left.type.shape)
        operands = self.expanded(mask, shape), self.expanded(left, shape), self.expanded(right, shape)
        return self.one("select", operands, operands[1].type)

    def convert(self, x: Value, dtype: DType) -> Value:
        """Another dtype; to bool as PyTorch does: whatever is not zero is true."""
        if x.type.dtype is dtype:
            return x
        if dtype is bool_:
            if x.type.dtype is float8_e8m0fnu:  # powers of two, of which none is zero
                return self.constant(True, bool_, x.type.shape)
            return self.compare("NE", x, 0)
        if dtype is float8_e4m3fn:
            x = casts.limited(self, x)
        elif dtype is float8_e8m0fnu:
            x = casts.magnitude(self, x)
        return self.one("convert", (x,), TensorType(x.type.shape, dtype))

    def iota(self, shape: tuple[int, ...], dimension: int, dtype: DType = int32) -> Value:
        """0, 1, 2, ... along one dimension."""
        return self.one("iota", (), TensorType(shape, dtype), iota_dimension=dimension)

    # ------------------------------------------------------------------------------------------------------- shape

    def expanded(self, x: Value, shape: Sequence[int]) -> Value:
        """NumPy's broadcasting: sizes of 1 are repeated, and missing leading dimensions too."""
        return self.broadcast(x, tuple(shape), tuple(range(len(shape) - len(x.type.shape), len(shape))))

    def broadcast(self, x: Value, shape: tuple[int, ...], dimensions: tuple[int, ...]) -> Value:
        """`dimensions[i]` is where dimension i of the operand goes."""
        if x.type.shape == shape:
            return x
        type_ = TensorType(shape, x.type.dtype)
        return self.one("broadcast_in_dim", (x,), type_, broadcast_dimensions=dimensions)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """A value with these elements in another shape."""
        if x.type.shape == tuple(shape):
            return x
        return self.one("reshape", (x,), TensorType(tuple(shape), x.type.dtype))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """`permutation[i]` is the dimension of the operand that becomes dimension i."""
        order = tuple(permutation)
        if order == tuple(range(len(order))):
            return x
        shape = tuple(x.type.shape[dimension] for dimension in order)
        return self.one("transpose", (x,), TensorType(shape, x.type.dtype), permutation=order)

    def slice(self, x: Value, dimension: int, start: int, stop: int, step: int = 1) -> Value:
        """A range of one dimension."""
        starts, limits, strides = [0] * len(x.type.shape), list(x.type.shape), [1] * len(x.type.shape)
        starts[dimension], limits[dimension], strides[dimension] = start, stop, step
        return self.slices(x, starts, limits, strides)

    def slices(self, x: Value, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int]) -> Value:
        """A range of every dimension."""
        ranges = [range(*bounds) for bounds in zip(starts, limits, strides, strict=True)]
        shape = tuple(map(len, ranges))
        if shape == x.type.shape:
            return x
        bounds = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": tuple(strides)}
        return self.one("slice", (x,), TensorType(shape, x.type.dtype), **bounds)

    def pad(
        self, x: Value, value: float, low: Sequence[int], high: Sequence[int], interior: Sequence[int] | None = None
    ) -> Value:
        """More elements before, behind and between; negative numbers take elements away."""
        between = tuple(interior or (0,) * len(x.type.shape))
        sizes = zip(x.type.shape, low, high, between, strict=True)
        shape = tuple(size + a + b + max(size - 1, 0) * c for size, a, b, c in sizes)
        if not any((*low, *high, *between)):
            return x
        return self.one(
            "pad",
            (x, self.constant(value, x.type.dtype)),
            TensorType(shape, x.type.dtype),
            edge_padding_low=tuple(low),
            edge_padding_high=tuple(high),
            interior_padding=between,
        )

    def concatenate(self, parts: Sequence[Value], dimension: int) -> Value:
        """Tensors one after the other along a dimension."""
        parts = [part for part in parts if part.type.shape[dimension]] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].type.shape)
        shape[dimension] = sum(part.type.shape[dimension] for part in parts)
        return self.one("concatenate", parts, TensorType(tuple(shape), parts[0].type.dtype), dimension=dimension)

    def reverse(self, x: Value, dimensions: Sequence[int]) -> Value:
        """The elements of some dimensions in the opposite order."""
        return self.unary("reverse", x, dimensions=tuple(dimensions)) if dimensions else x

    # -------------------------------------------------------------------------------------------- sums and products

    def reduce(self, kind: str, x: Value, dimensions: Sequence[int], keep: bool = False) -> Value:
        """A reduction with one of `IDENTITY` over some dimensions, which stay with size 1 if they are kept."""
        shape = x.type.shape
        left = tuple(size for i, size in enumerate(shape) if i not in dimensions)
        kept = tuple(1 if i in dimensions else size for i, size in enumerate(shape))
        if not dimensions:
            return x
        start = self.constant(IDENTITY[kind](x.type.dtype), x.type.dtype)
        attributes = {"dimensions": tuple(sorted(dimensions))}
        regions = (combiner(kind, x.type.dtype, self.location),)
        reduced = self.emit("reduce", (x, start), (TensorType(left, x.type.dtype),), attributes, regions)[0]
        return self.reshape(reduced, kept) if keep else reduced

    def dot(
        self,
        x: Value,
        y: Value,
        contracting: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
        dtype: DType | None = None,
    ) -> Value:
        """A product: batch dimensions first, then those of `x` that are left, then those of `y`."""
        shape = [x.type.shape[i] for i in batch[0]]
        for operand, used in ((x, (*contracting[0], *batch[0])), (y, (*contracting[1], *batch[1]))):
            shape += [size for i, size in enumerate(operand.type.shape) if i not in used]
        return self.one(
            "dot_general",
            (x, y),
            TensorType(tuple(shape), dtype or x.type.dtype),
            lhs_batching_dimensions=tuple(batch[0]),
            rhs_batching_dimensions=tuple(batch[1]),
            lhs_contracting_dimensions=tuple(contracting[0]),
            rhs_contracting_dimensions=tuple(contracting[1]),
        )


def combiner(kind: str, dtype: DType, location: Location) -> Region:
    """The region of a reduction: one operation on two scalars; "second" keeps the new one."""
    type_ = TensorType((), dtype)
    left, right, result = Value(type_), Value(type_), Value(type_)
    if kind == "second":
        return Region((left, right), [], (right,))
    return Region((left, right), [Op(kind, (left, right), (result,), {}, (), location)], (result,))
