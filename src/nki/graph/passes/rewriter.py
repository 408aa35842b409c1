"""Rewriting a model operation by operation, in order: a rule sees operations on operands that are rewritten already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from nki.core.dtypes import DType
from nki.core.source import UNKNOWN, Location
from nki.graph.errors import guarded
from nki.graph.ir import Module, Op, Region, TensorType, Value

Array = npt.NDArray[Any]
Rule = Callable[["Rewriter", Op], "Sequence[Value] | None"]
"""What takes the place of an operation's results, or None if the operation stays."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Rewriter:
    """The block that is being written, and what made its values; makes operations.

    Args:
        uses: how often each value of the model is used, before the pass.
        functions: of the model, for rules that look into what is called.
    """

    def __init__(self, rule: Rule, uses: Mapping[Value, int], module: Module) -> None:
        self._rule = rule
        self.uses = uses
        self.module = module
        self._ops: list[Op] = []
        self._makers: dict[Value, Op] = {}
        self._instead: dict[Value, Value] = {}
        self._location: Location = UNKNOWN
        self._users: dict[Value, list[Op]] | None = None
        self.depth = 0

    # ------------------------------------------------------------------------------------------------------- looking

    def maker(self, value: Value, name: str = "") -> Op | None:
        """The operation that makes a value, if its name is `name` ("": any)."""
        op = self._makers.get(value)
        return op if op is not None and (not name or op.name == name) else None

    def constant_of(self, value: Value) -> Array | None:
        """The elements of a constant, or of a broadcast of a scalar constant."""
        op = self._makers.get(value)
        if op is None:
            return None
        if op.name == "constant":
            array: Array = op.attributes["value"]
            return array
        if op.name == "broadcast_in_dim":
            inner = self.constant_of(op.operands[0])
            if inner is not None and inner.size == 1:
                return np.broadcast_to(inner.reshape(()), value.type.shape)
        return None

    def scalar_of(self, value: Value) -> Any:
        """The element that all elements of a constant equal, as a NumPy scalar, or None."""
        array = self.constant_of(value)
        if array is None or not array.size:
            return None
        if array.size == 1 or not any(array.strides):
            return array.reshape(-1)[0] if array.size == 1 else array[(0,) * array.ndim]
        return None

    def user(self, value: Value) -> Op | None:
        """The operation of the old model that uses a value, if it is the only one and uses it once."""
        found = self.users(value)
        return found[0] if len(found) == 1 and self.uses.get(value) == 1 else None

    def users(self, value: Value) -> Sequence[Op]:
        """The operations of the old model that have a value as an operand, once for each place."""
        if self._users is None:
            self._users = {}
            for op in self.module.walk():
                for operand in op.operands:
                    self._users.setdefault(operand, []).append(op)
        return self._users.get(value, ())

    # ------------------------------------------------------------------------------------------------------- undoing

    @property
    def written(self) -> Sequence[Op]:
        """The operations of the block that is being written, so far."""
        return self._ops

    def undo(self, count: int) -> None:
        """Take out what was written after the first `count` operations of the block; nobody may use it."""
        for op in self._ops[count:]:
            for result in op.results:
                self._makers.pop(result, None)
        del self._ops[count:]

    # ------------------------------------------------------------------------------------------------------ replacing

    def dependents(self, values: Sequence[Value]) -> list[Op]:
        """The operations of the block so far that need some of these values, however far they are from them."""
        found: list[Op] = []
        reached = set(values)
        for op in self._ops:
            if any(not reached.isdisjoint(each.operands) for each in (op, *_inside(op.regions))):
                found.append(op)
                reached.update(op.results)
        return found

    def replace(self, values: Sequence[Value], others: Sequence[Value]) -> None:
        """Use other values, made just now of what does not need these ones; what needs them is made after that."""
        self._instead.update((old, new) for old, new in zip(values, others, strict=True) if old is not new)
        moved = self.dependents(values)
        places = set(map(id, moved))
        self._ops = [op for op in self._ops if id(op) not in places]
        for op in moved:
            operands = tuple(map(self.now, op.operands))
            self._keep(Op(op.name, operands, op.results, op.attributes, op.regions, op.location))

    # -------------------------------------------------------------------------------------------------------- making

    def op(
        self,
        name: str,
        operands: Sequence[Value],
        types: Sequence[TensorType],
        attributes: Mapping[str, Any] = _NOTHING,
        regions: Sequence[Region] = (),
    ) -> tuple[Value, ...]:
        """A new operation at the line of the one that is rewritten; the rule sees it as well."""
        results = tuple(Value(kind) for kind in types)
        return self._emit(Op(name, tuple(operands), results, attributes, tuple(regions), self._location))

    def one(self, name: str, operands: Sequence[Value], kind: TensorType, **attributes: Any) -> Value:
        """A new operation with one result."""
        return self.op(name, operands, [kind], attributes)[0]

    def same(self, name: str, *operands: Value) -> Value:
        """A new operation whose result has the type of its first operand."""
        return self.op(name, operands, [operands[0].type])[0]

    def constant(self, value: Array) -> Value:
        """A constant."""
        kind = TensorType(tuple(value.shape), DType(value.dtype))
        return self.op("constant", (), [kind], {"value": value})[0]

    def full(self, number: Any, kind: TensorType) -> Value:
        """A constant all of whose elements are `number`."""
        return self.constant(np.broadcast_to(np.asarray(number).astype(kind.dtype.numpy), kind.shape))

    def convert(self, value: Value, dtype: DType) -> Value:
        """The value in another dtype; itself if it has it."""
        if value.type.dtype is dtype:
            return value
        return self.one("convert", [value], TensorType(value.type.shape, dtype))

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """The value in another shape; itself if it has it."""
        if value.type.shape == tuple(shape):
            return value
        return self.one("reshape", [value], TensorType(tuple(shape), value.type.dtype))

    def transpose(self, value: Value, permutation: Sequence[int]) -> Value:
        """Dimension i of the result is dimension permutation[i] of the value."""
        if tuple(permutation) == tuple(range(len(permutation))):
            return value
        shape = tuple(value.type.shape[dim] for dim in permutation)
        return self.one("transpose", [value], TensorType(shape, value.type.dtype), permutation=tuple(permutation))

    def broadcast(self, value: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """Dimension i of the value is dimension dims[i] of the result."""
        if value.type.shape == tuple(shape):
            return value
        kind = TensorType(tuple(shape), value.type.dtype)
        return self.one("broadcast_in_dim", [value], kind, broadcast_dimensions=tuple(dims))

    def reduce(self, value: Value, dims: Sequence[int], name: str, initial: Any) -> Value:
        """The value reduced over dimensions with a binary operation."""
        dtype = value.type.dtype
        scalar = TensorType((), dtype)
        one, two, result = Value(scalar), Value(scalar), Value(scalar)
        inner = Op(name, (one, two), (result,), {}, (), self._location)
        shape = tuple(size for dim, size in enumerate(value.type.shape) if dim not in dims)
        attributes = {"dimensions": tuple(dims)}
        region = Region((one, two), [inner], (result,))
        start = self.full(initial, scalar)
        return self.op("reduce", [value, start], [TensorType(shape, dtype)], attributes, [region])[0]

    def inline(self, region: Region, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """The operations of a region on these arguments; the region is used up."""
        self._instead.update(zip(region.arguments, map(self.now, arguments), strict=True))
        for item in region.ops:
            if isinstance(item, Op):
                self._visit(item)
        return tuple(self.now(value) for value in region.results)

    # ------------------------------------------------------------------------------------------------------- running

    def now(self, value: Value) -> Value:
        """What stands for a value of the old model."""
        while value in self._instead:
            value = self._instead[value]
        return value

    def block(self, ops: Sequence[Op]) -> list[Op]:
        """The operations of a block, rewritten."""
        outer, self._ops = self._ops, []
        for op in ops:
            self._visit(op)
        made, self._ops = self._ops, outer
        return made

    def region(self, region: Region) -> Region:
        """A region, rewritten."""
        self.depth += 1
        ops = self.block([item for item in region.ops if isinstance(item, Op)])
        self.depth -= 1
        return Region(region.arguments, list(ops), tuple(self.now(value) for value in region.results))

    def _visit(self, op: Op) -> None:
        outer = self._location
        frames, origin = op.location.frames or outer.frames, op.location.origin or outer.origin
        if op.location.frames is not frames or op.location.origin is not origin:
            op.location = Location(frames, origin)  # in what is called, or spelled out
        self._location = op.location
        regions = tuple(self.region(region) for region in op.regions)
        operands = tuple(self.now(value) for value in op.operands)
        changed = operands != op.operands or any(one is not two for one, two in zip(regions, op.regions, strict=True))
        current = Op(op.name, operands, op.results, op.attributes, regions, op.location) if changed else op
        with guarded(f"rewriting {op.name}", self._location):
            values = self._emit(current)
        if values is not current.results:
            self._instead.update((old, new) for old, new in zip(op.results, values, strict=True) if old is not new)
        self._location = outer

    def _emit(self, op: Op) -> tuple[Value, ...]:
        instead = self._rule(self, op)
        if instead is not None:
            return tuple(instead)
        return self._keep(op)

    def _keep(self, op: Op) -> tuple[Value, ...]:
        self._ops.append(op)
        for result in op.results:
            self._makers[result] = op
        return op.results


def _inside(regions: Sequence[Region]) -> Iterator[Op]:
    """The operations of regions, and of theirs."""
    for region in regions:
        for item in region.ops:
            if isinstance(item, Op):
                yield item
                yield from _inside(item.regions)


def rewrite(module: Module, rule: Rule) -> Module:
    """Every function of a model, rewritten by a rule.

    The rule sees the operations that it makes, so one that makes what it rewrites never ends.
    """
    for function in module.functions.values():
        rewriter = Rewriter(rule, counts(function.body, function.results), module)
        function.body = list(rewriter.block([item for item in function.body if isinstance(item, Op)]))
        function.results = tuple(rewriter.now(value) for value in function.results)
    return module


def counts(body: Sequence[Any], results: Sequence[Value]) -> dict[Value, int]:
    """How often each value is used, in regions too."""
    found: dict[Value, int] = {}

    def block(items: Sequence[Any], results: Sequence[Value]) -> None:
        for item in items:
            for value in item.operands:
                found[value] = found.get(value, 0) + 1
            for region in item.regions:
                block(region.ops, region.results)
        for value in results:
            found[value] = found.get(value, 0) + 1

    block(body, results)
    return found
