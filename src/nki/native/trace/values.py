"""The arithmetic of the array namespace on symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki.core import dtypes
from nki.core.dtypes import DType
from nki.elementary import Functions
from nki.native.trace.expression import (
    F32,
    F64,
    I32,
    IN_ORDER,
    MASK,
    SCALAR,
    Graph,
    MixedDomains,
    Node,
    NotTraceable,
    float_bits,
    storage_type,
)
from nki.spec.operator import Operator

_UNORDERED = ("add", "multiply")
"""NumPy takes a broadcast second operand of these first, which shows if both are NaN."""

_BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_LOGICAL = {"multiply": "and", "maximum": "or"}


class Values(Functions):
    """Float32, masks, integers and reductions; memory is added by `symbolic_execution`."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.immediates: list[int] = []

    # --- leaves

    def constant(self, value: float) -> Node:
        return self.graph.leaf("constant", float_bits(value), F32, SCALAR)

    def int_constant(self, value: int) -> Node:
        return self.graph.leaf("constant", value & 0xFFFF_FFFF, I32, SCALAR)

    def wide_constant(self, value: float) -> Node:
        return self.graph.leaf("constant", int(np.float64(value).view(np.uint64)), F64, SCALAR)

    def immediate(self, bits: int, kind: str, dtype: DType | None = None) -> Node:
        """A number that a record holds, so that kernels do not depend on it."""
        self.immediates.append(bits)
        return self.graph.leaf("immediate", len(self.immediates) - 1, kind, SCALAR, dtype=dtype)

    # --- float32

    def node(
        self, op: str, arguments: tuple[Node, ...], kind: str = F32, attribute: Any = None, dtype: DType | None = None
    ) -> Node:
        try:
            return self.graph.node(op, arguments, kind, attribute, dtype)
        except MixedDomains:
            raise NotTraceable("rows of several lengths in one operation") from None

    def _binary(self, op: str, a: Any, b: Any) -> Node:
        a, b = self.real(a), self.real(b)
        if op in _UNORDERED and b.rank < a.rank:
            a, b = b, a
        return self.node(op, (a, b))

    def real(self, value: Any) -> Node:
        """A float32 node, whatever stands for it."""
        if isinstance(value, Node):
            if value.type == F32:
                return value
            if value.dtype is dtypes.float32:
                return self.node("bitcast", (value,), F32)
        raise NotTraceable("storage values in arithmetic")

    def add(self, a: Any, b: Any) -> Node:
        return self._binary("add", a, b)

    def subtract(self, a: Any, b: Any) -> Node:
        return self._binary("subtract", a, b)

    def multiply(self, a: Any, b: Any) -> Node:
        return self._of_truths("multiply", a, b) or self._binary("multiply", a, b)

    def divide(self, a: Any, b: Any) -> Node:
        return self._binary("divide", a, b)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Node:
        return self.node("multiply_add", (self.real(a), self.real(b), self.real(c)))

    def scaled(self, a: Any, n: Any) -> Node:
        return self.node("scaled", (self.real(a), self.real(n)))

    def maximum(self, a: Any, b: Any) -> Node:
        return self._of_truths("maximum", a, b) or self._binary("maximum", a, b)

    def minimum(self, a: Any, b: Any) -> Node:
        return self._binary("minimum", a, b)

    def at_most(self, a: Any, bound: float) -> Node:
        limit = self.constant(bound)
        return self.select("greater", a, limit, limit, a)

    def at_least(self, a: Any, bound: float) -> Node:
        limit = self.constant(bound)
        return self.select("less", a, limit, limit, a)

    def absolute(self, a: Any) -> Node:
        return self.node("absolute", (self.real(a),))

    def negative(self, a: Any) -> Node:
        return self.node("negative", (self.real(a),))

    def sqrt(self, a: Any) -> Node:
        return self.node("sqrt", (self.real(a),))

    def floor(self, a: Any) -> Node:
        return self.node("floor", (self.real(a),))

    def sign(self, a: Any) -> Node:
        zero = self.constant(0.0)
        below = self.select("less", a, zero, self.constant(-1.0), self.select("equal", a, zero, zero, a))
        return self.select("greater", a, zero, self.constant(1.0), below)

    def elementwise(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self, *arguments)

    # --- comparisons

    def mask(self, name: str, a: Any, b: Any) -> Node:
        return self.node("compare", (self.real(a), self.real(b)), MASK, name)

    def select(self, name: str, a: Any, b: Any, p: Any, q: Any) -> Node:
        return self.node("select", (self.mask(name, a, b), self.real(p), self.real(q)))

    def compare(self, name: str, a: Any, b: Any) -> Node:
        if name == "not_equal" and a.op == b.op == "truth":
            return self._from_mask(self.node("xor", (a.arguments[0], b.arguments[0]), MASK))
        return self._from_mask(self.mask(name, a, b))

    def truth(self, a: Any) -> Node:
        return self._from_mask(self.nonzero(a))

    def nonzero(self, value: Node) -> Node:
        """The mask where a value is not zero."""
        if value.op == "truth":
            return value.arguments[0]
        if value.dtype is None:
            return self.mask("not_equal", value, self.constant(0.0))
        if value.dtype.kind not in ("int", "uint", "bool"):
            value = self.decoded(value)
            return self.mask("not_equal", value, self.constant(0.0))
        return self.node("icompare", (value, self.storage_constant(0, value)), MASK, "ne")

    def where(self, condition: Any, a: Any, b: Any) -> Node:
        if not (isinstance(condition, Node) and isinstance(a, Node) and isinstance(b, Node)):
            raise NotTraceable("where on NumPy values")
        if (a.type, a.dtype) != (b.type, b.dtype):
            raise NotTraceable("where on two types")
        return self.node("select", (self.nonzero(condition), a, b), a.type, None, a.dtype)

    def _from_mask(self, mask: Node) -> Node:
        """1.0 or 0.0; where it is used as a condition, the mask itself is."""
        return self.node("truth", (mask,))

    def _of_truths(self, name: str, a: Any, b: Any) -> Node | None:
        if a.op == b.op == "truth":
            return self._from_mask(self.node(_LOGICAL[name], (a.arguments[0], b.arguments[0]), MASK))
        return None

    # --- what elementary functions use

    def float_bits(self, a: Any) -> Node:
        return self.node("bitcast", (self.real(a),), I32)

    def bits_float(self, i: Any) -> Node:
        return self.node("bitcast", (i,), F32)

    def int_subtract(self, i: Any, j: Any) -> Node:
        return self.node("isubtract", (i, j), I32)

    def int_and(self, i: Any, j: Any) -> Node:
        return self.node("and", (i, j), I32)

    def int_xor(self, i: Any, j: Any) -> Node:
        return self.node("xor", (i, j), I32)

    def shift_left(self, i: Any, count: int) -> Node:
        return self.node("shift_left", (i,), I32, count)

    def shift_right(self, i: Any, count: int) -> Node:
        return self.node("shift_right_signed", (i,), I32, count)

    def int_to_float(self, i: Any) -> Node:
        return self.node("from_signed", (i,), F32)

    def wide(self, a: Any) -> Node:
        return self.node("widen", (self.real(a),), F64)

    def narrow(self, w: Any) -> Node:
        return self.node("narrow", (w,), F32)

    def wide_add(self, v: Any, w: Any) -> Node:
        return self.node("add", (v, w), F64)

    def wide_subtract(self, v: Any, w: Any) -> Node:
        return self.node("subtract", (v, w), F64)

    def wide_multiply(self, v: Any, w: Any) -> Node:
        return self.node("multiply", (v, w), F64)

    def wide_divide(self, v: Any, w: Any) -> Node:
        return self.node("divide", (v, w), F64)

    # --- storage values

    def decoded(self, raw: Node) -> Node:
        """The float32 values of storage bits."""
        assert raw.dtype is not None, "storage values know what they hold"
        if raw.dtype.is_packed:
            raise NotTraceable("packed values")
        if raw.dtype.itemsize == 4 and raw.dtype.is_float:
            return self.node("bitcast", (raw,), F32)
        return self.node("decode", (raw,), F32, raw.dtype.name)

    def encoded(self, value: Any, dtype: DType) -> Node:
        """Float32 values rounded to storage bits."""
        if dtype.is_packed or dtype.itemsize > 4:
            raise NotTraceable("packed values")
        value = self.real(value)
        if dtype is dtypes.float32:
            return self.node("bitcast", (value,), I32, None, dtype)
        return self.node("encode", (value,), storage_type(dtype), dtype.name, dtype)

    def round(self, a: Any, dtype: DType) -> Node:
        return self.real(a) if dtype is dtypes.float32 else self.decoded(self.encoded(a, dtype))

    def rounded(self, value: float, dtype: DType) -> Node:
        if dtype.is_packed:
            return self.immediate(0, storage_type(dtype), dtype)
        return self.encoded(self.immediate(float_bits(value), F32), dtype)

    def storage_constant(self, value: int, like: Node) -> Node:
        """A storage integer of the dtype of another."""
        return self.graph.leaf("constant", value, like.type, SCALAR, dtype=like.dtype)

    def storage(self, value: Any) -> Node:
        """A storage node; NumPy scalars become immediates."""
        if isinstance(value, Node) and value.dtype is not None:
            return value
        if isinstance(value, np.integer):
            dtype = dtypes.from_numpy(value.dtype)
            return self.immediate(int(value) % (1 << dtype.bits), storage_type(dtype), dtype)
        raise NotTraceable("bits of computed values")

    def bitwise(self, name: str, a: Any, b: Any) -> Node:
        first = self.storage(a)
        if name == "invert":
            return self.node("invert", (first,), first.type, None, first.dtype)
        second = self.storage(b)
        if first.type != second.type:
            raise NotTraceable("bits of two sizes")
        if name in _BITS:
            return self.node(_BITS[name], (first, second), first.type, None, first.dtype)
        assert second.dtype is not None, "storage values know what they hold"
        return self.node("shift", (first, second), first.type, name, first.dtype)

    def to_float(self, a: Any) -> Node:
        return self.decoded(self.storage(a))

    # --- shapes and reductions

    def reduce(self, operator: Operator, a: Any) -> Node:
        logical = operator.alu == "logical"
        value = self.nonzero(a) if logical else self.real(a)
        if operator.name == "subtract":
            return self.reduced_difference(value)
        if value.rank == SCALAR or value.domain < 0:
            return self._single(operator, value, logical)
        reduced = self.graph.reduction(operator.name, value)
        return self._from_mask(reduced) if logical else reduced

    def sum_in_order(self, a: Any) -> Node:
        value = self.real(a)
        if value.rank == SCALAR or value.domain < 0:
            return self.node("add", (value, self.constant(0.0)))
        raw = value.arguments[0] if value.op in ("decode", "bitcast") else value
        if raw.op != "load":
            raise NotTraceable("a sum in order of computed rows")
        return self.graph.reduction(IN_ORDER, value)

    def reduced_difference(self, value: Node) -> Node:
        """The first element less the sum of the others."""
        raise NotTraceable("reduction by subtract")

    def reduce_bits(self, operator: Operator, a: Any) -> Node:
        value = self.storage(a)
        return value if value.domain < 0 else self.graph.reduction(operator.name, value)

    def _single(self, operator: Operator, value: Node, logical: bool) -> Node:
        """The reduction of one element: padded with the identity, as every short row is."""
        if logical:
            return self._from_mask(value)
        assert operator.identity is not None, f"{operator} has an identity"
        return self.node(operator.name, (value, self.constant(operator.identity)))
