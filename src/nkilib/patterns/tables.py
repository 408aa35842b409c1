"""Small tables that a model computes for a kernel, written as NumPy would be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import nki.language as nl
from nki.graph.patterns import Rewriter, TensorType, Value


class Table:
    """A value of a model, with operators that make operations. Numbers take its shape and dtype, arrays its dtype."""

    def __init__(self, r: Rewriter, value: Value) -> None:
        self.r, self.value = r, value

    def _with(self, name: str, other: Any, **attributes: Any) -> Table:
        kind = self.value.type
        if isinstance(other, Table):
            beside = other.value
        else:
            beside = self.r.constant(np.broadcast_to(np.asarray(other, kind.dtype.numpy), kind.shape))
        made = TensorType(kind.shape, nl.bool_) if name == "compare" else kind
        return Table(self.r, self.r.one(name, [self.value, beside], made, **attributes))

    def __add__(self, other: Any) -> Table:
        return self._with("add", other)

    def __sub__(self, other: Any) -> Table:
        return self._with("subtract", other)

    def __mul__(self, other: Any) -> Table:
        return self._with("multiply", other)

    def __floordiv__(self, other: Any) -> Table:
        """The quotient of numbers that are not negative."""
        return self._with("divide", other)

    def least(self, other: Any) -> Table:
        """The smaller one of two, in each place."""
        return self._with("minimum", other)

    def compared(self, direction: str, other: Any) -> Table:
        """Truth values; the direction is EQ, LT or GE."""
        return self._with("compare", other, comparison_direction=direction, compare_type="SIGNED")

    def where(self, condition: Table, other: Any) -> Table:
        """The elements where a condition is true, others elsewhere."""
        kind = self.value.type
        beside = self.r.full(other, kind)
        return Table(self.r, self.r.one("select", [condition.value, self.value, beside], kind))

    def number(self, dtype: Any = nl.int32) -> Table:
        """In another dtype; truth values are 0 and 1."""
        return Table(self.r, self.r.convert(self.value, dtype))

    def over(self, shape: Sequence[int], dims: Sequence[int]) -> Table:
        """Repeated: dimension i is dimension dims[i] of the result."""
        return Table(self.r, self.r.broadcast(self.value, shape, dims))

    def sum(self, dim: int) -> Table:
        """The sum over a dimension."""
        return Table(self.r, self.r.reduce(self.value, (dim,), "add", 0))

    def shaped(self, *shape: int) -> Table:
        """In another shape."""
        return Table(self.r, self.r.reshape(self.value, shape))

    def after_zero(self) -> Table:
        """A vector moved by one place, with 0 in the first one."""
        zero = self.r.full(0, TensorType((), self.value.type.dtype))
        attributes = {"edge_padding_low": (1,), "edge_padding_high": (-1,), "interior_padding": (0,)}
        return Table(self.r, self.r.one("pad", [self.value, zero], self.value.type, **attributes))

    def taken(self, places: Table) -> Table:
        """The elements of a vector at these places."""
        shape = places.value.type.shape
        numbers = {
            "offset_dims": (),
            "collapsed_slice_dims": (0,),
            "start_index_map": (0,),
            "index_vector_dim": len(shape),
            "slice_sizes": (1,),
            "indices_are_sorted": False,
        }
        indices = self.r.reshape(places.value, (*shape, 1))
        kind = TensorType(shape, self.value.type.dtype)
        return Table(self.r, self.r.one("gather", [self.value, indices], kind, **numbers))
