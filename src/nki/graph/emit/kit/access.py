"""Where operations that only rename elements read: affine maps from the elements of a result to those of an operand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from nki.graph.ir import Op, Value


class NotAffineError(Exception):
    """An operand whose elements lie on no regular pattern."""


class SplitError(Exception):
    """An axis must be split into two for a reshape to be regular.

    Attributes:
        axis: which one.
        inner: size of the inner part.
    """

    def __init__(self, axis: int, inner: int) -> None:
        super().__init__(axis, inner)
        self.axis = axis
        self.inner = inner


@dataclass(frozen=True, slots=True)
class Index:
    """``offset + sum(axis index * step)``; `terms` are pairs of axis and step, sorted, without steps of 0."""

    offset: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    def scaled(self, factor: int, offset: int = 0) -> Index:
        """``offset + factor * self``."""
        terms = tuple((axis, step * factor) for axis, step in self.terms) if factor else ()
        return Index(offset + factor * self.offset, terms)

    def step(self, axis: int) -> int:
        """How far one step on the axis leads."""
        return dict(self.terms).get(axis, 0)


def total(indices: Sequence[Index]) -> Index:
    """The sum."""
    steps: dict[int, int] = {}
    for index in indices:
        for axis, step in index.terms:
            steps[axis] = steps.get(axis, 0) + step
    return Index(sum(index.offset for index in indices), tuple(sorted((a, s) for a, s in steps.items() if s)))


Map = tuple[Index, ...]
"""An index for each dimension of a value."""


@dataclass(frozen=True, slots=True)
class Space:
    """What a kernel iterates over: axes, in row-major order of the results.

    Attributes:
        sizes: of the axes.
        dims: the axes of each dimension of the shape, outer ones first.
    """

    sizes: tuple[int, ...]
    dims: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, shape: Sequence[int]) -> Space:
        """One axis for each dimension."""
        return cls(tuple(shape), tuple((axis,) for axis in range(len(shape))))

    @property
    def identity(self) -> Map:
        """The map of a value of that shape."""
        result = []
        for axes in self.dims:
            steps, step = [], 1
            for axis in reversed(axes):
                steps.append((axis, step))
                step *= self.sizes[axis]
            result.append(Index(0, tuple(sorted((a, s) for a, s in steps if self.sizes[a] != 1))))
        return tuple(result)

    def split(self, axis: int, inner: int) -> Space:
        """A space like this one with an axis in two."""
        sizes = (*self.sizes[:axis], self.sizes[axis] // inner, inner, *self.sizes[axis + 1 :])
        dims = []
        for axes in self.dims:
            renamed: list[int] = []
            for a in axes:
                renamed += [axis, axis + 1] if a == axis else [a + (a > axis)]
            dims.append(tuple(renamed))
        return Space(sizes, tuple(dims))


def flat(index: Map, shape: Sequence[int]) -> Index:
    """The position in a row-major tensor of that shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return total([i.scaled(stride) for i, stride in zip(index, reversed(strides), strict=True)])


def operand_maps(op: Op, result: Map, space: Space) -> list[Map]:
    """The maps of the operands of an operation whose result has that map."""
    rename = _RENAMES.get(op.name)
    if rename is not None:
        return [rename(op, result, space)]
    shape = op.results[0].type.shape
    return [result if operand.type.shape == shape else _scalar(operand) for operand in op.operands]


def _scalar(operand: Value) -> Map:
    if operand.type.size != 1:
        raise NotAffineError
    return tuple(Index() for _ in operand.type.shape)


def _broadcast_in_dim(op: Op, result: Map, space: Space) -> Map:
    shape = op.operands[0].type.shape
    dims = op.attributes["broadcast_dimensions"]
    wide = op.results[0].type.shape
    return tuple(
        Index() if size == 1 and wide[dim] != 1 else result[dim] for size, dim in zip(shape, dims, strict=True)
    )


def _broadcast(op: Op, result: Map, space: Space) -> Map:
    return result[len(result) - len(op.operands[0].type.shape) :]


def _transpose(op: Op, result: Map, space: Space) -> Map:
    permutation = tuple(op.attributes["permutation"])
    return tuple(result[permutation.index(dim)] for dim in range(len(permutation)))


def _slice(op: Op, result: Map, space: Space) -> Map:
    starts = op.attributes["start_indices"]
    strides = op.attributes["strides"]
    return tuple(index.scaled(step, start) for index, start, step in zip(result, starts, strides, strict=True))


def _reverse(op: Op, result: Map, space: Space) -> Map:
    shape, dims = op.operands[0].type.shape, op.attributes["dimensions"]
    return tuple(
        index.scaled(-1, size - 1) if dim in dims else index
        for dim, (index, size) in enumerate(zip(result, shape, strict=True))
    )


def _same(op: Op, result: Map, space: Space) -> Map:
    return result


def _reshape(op: Op, result: Map, space: Space) -> Map:
    return reshaped(result, op.results[0].type.shape, op.operands[0].type.shape, space)


def reshaped(result: Map, wide: Sequence[int], shape: Sequence[int], space: Space) -> Map:
    """The map of a tensor of `shape` whose reshape to `wide` has the map `result`."""
    given = [(size, index) for size, index in zip(wide, result, strict=True) if size != 1]
    wanted = [size for size in shape if size != 1]
    found: list[Index] = []
    while wanted:
        outer, inner = [given.pop(0)], [wanted.pop(0)]
        while prod(size for size, _ in outer) != prod(inner):
            if prod(size for size, _ in outer) < prod(inner):
                outer.append(given.pop(0))
            else:
                inner.append(wanted.pop(0))
        found += _digits(flat(tuple(i for _, i in outer), [s for s, _ in outer]), inner, space)
    digits = iter(found)
    return tuple(Index() if size == 1 else next(digits) for size in shape)


def _digits(index: Index, sizes: Sequence[int], space: Space) -> list[Index]:
    """A position as an index for each of several dimensions."""
    digits: list[Index] = []
    for size in reversed(sizes[1:]):
        index, rest = _divided(index, size, space)
        digits.insert(0, rest)
    return [index, *digits]


def _divided(index: Index, size: int, space: Space) -> tuple[Index, Index]:
    quotient = tuple((axis, step // size) for axis, step in index.terms if step % size == 0)
    rest = Index(index.offset % size, tuple((axis, step) for axis, step in index.terms if step % size))
    low = rest.offset + sum(min(step, 0) * (space.sizes[axis] - 1) for axis, step in rest.terms)
    high = rest.offset + sum(max(step, 0) * (space.sizes[axis] - 1) for axis, step in rest.terms)
    if low >= 0 and high < size:
        return Index(index.offset // size, quotient), rest
    for axis, step in rest.terms:
        inner = size // step if step > 0 and size % step == 0 else 0
        if 1 < inner < space.sizes[axis] and space.sizes[axis] % inner == 0:
            raise SplitError(axis, inner)
    raise NotAffineError


_RENAMES = {
    "broadcast_in_dim": _broadcast_in_dim,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "reshape": _reshape,
    "optimization_barrier": _same,
}

VIEWS = frozenset(_RENAMES)
"""Names of the operations that only rename elements."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is loaded or generated.

    Attributes:
        value: stands for its elements in the order of the space.
        source: the group's input, or the operation (iota, constant) that gives it.
        index: position in the source's row-major tensor; of an iota, its value.
    """

    value: Value
    source: Value | Op
    index: Index


@dataclass(eq=False, slots=True)
class Resolved:
    """Operations over one space, without those that only rename elements.

    Attributes:
        ops: with operands and results of their own.
        leaves: where the rest comes from.
        results: the value that stands for each wanted one.
        deps: axes on which each value depends.
        maps: where the elements of wanted values lie.
    """

    space: Space
    ops: list[Op] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    results: dict[Value, Value] = field(default_factory=dict)
    deps: dict[Value, frozenset[int]] = field(default_factory=dict)
    maps: dict[Value, Map] = field(default_factory=dict)


def resolve(
    ops: Sequence[Op], wanted: Sequence[Value], shape: Sequence[int] | None = None, reduced: Sequence[int] = ()
) -> Resolved:
    """Operations as seen from the elements of a shape.

    Args:
        ops: in topological order; what they do not compute is an input.
        wanted: values of that shape, or with as many elements as it has without the reduced dimensions.
        shape: by default that of the first wanted value.
        reduced: dimensions over which `reduce` operations go.

    Raises:
        NotAffineError: a reshape mixes elements beyond regular patterns.
    """
    full = tuple(wanted[0].type.shape if shape is None else shape)
    space = Space.of(full)
    while True:
        try:
            return _Resolver(ops, space, full, tuple(reduced)).run(wanted)
        except SplitError as split:
            space = space.split(split.axis, split.inner)


class _Resolver:
    def __init__(self, ops: Sequence[Op], space: Space, shape: tuple[int, ...], reduced: tuple[int, ...]) -> None:
        self._makers = {result: op for op in ops for result in op.results}
        self._known: dict[tuple[Value, Map], Value] = {}
        self._shape = shape
        self._reduced = reduced
        self.result = Resolved(space)

    def run(self, wanted: Sequence[Value]) -> Resolved:
        for value in wanted:
            index = self._map_of(value)
            self.result.results[value] = self.value(value, index)
            self.result.maps[value] = index
        return self.result

    def _map_of(self, value: Value) -> Map:
        identity = self.result.space.identity
        if value.type.shape == self._shape:
            return identity
        kept = [dim for dim in range(len(self._shape)) if dim not in self._reduced]
        sizes = [self._shape[dim] for dim in kept]
        if value.type.size != prod(sizes):
            raise NotAffineError
        return reshaped(tuple(identity[dim] for dim in kept), sizes, value.type.shape, self.result.space)

    def _reduce(self, op: Op, value: Value, index: Map) -> Value:
        """A reduction: its operand runs through the reduced dimensions besides."""
        count = len(op.results)
        dims = tuple(op.attributes["dimensions"])
        if sorted(dims) != sorted(self._reduced) or op.operands[0].type.shape != self._shape:
            raise NotAffineError
        identity = self.result.space.identity
        kept = iter(index)
        wide = tuple(identity[dim] if dim in dims else next(kept) for dim in range(len(self._shape)))
        if wide != identity:
            raise NotAffineError
        operands = [self.value(operand, wide) for operand in op.operands[:count]]
        operands += [self.value(operand, ()) for operand in op.operands[count:]]
        copies = tuple(Value(result.type, result.name) for result in op.results)
        self.result.ops.append(Op(op.name, tuple(operands), copies, op.attributes, op.regions, op.location))
        for result, copy in zip(op.results, copies, strict=True):
            self._known[result, index] = copy
            self.result.deps[copy] = frozenset(axis for i in index for axis, _ in i.terms)
        return self._known[value, index]

    def value(self, value: Value, index: Map) -> Value:
        key = (value, index)
        if key not in self._known:
            self._known[key] = self._resolve(value, index)
        return self._known[key]

    def _resolve(self, value: Value, index: Map) -> Value:
        op = self._makers.get(value)
        if op is None:
            return self._leaf(value, value, flat(index, value.type.shape))
        if op.name == "iota":
            return self._leaf(value, op, index[int(op.attributes["iota_dimension"])])
        if op.name == "constant":
            return self._leaf(value, op, flat(index, value.type.shape))
        if op.name == "reduce":
            return self._reduce(op, value, index)
        maps = operand_maps(op, index, self.result.space)
        operands = tuple(self.value(operand, m) for operand, m in zip(op.operands, maps, strict=True))
        if op.name in VIEWS:
            return operands[0]
        copy = Value(value.type, value.name)
        self.result.ops.append(Op(op.name, operands, (copy,), op.attributes, op.regions, op.location))
        self.result.deps[copy] = frozenset().union(*(self.result.deps[operand] for operand in operands))
        return copy

    def _leaf(self, value: Value, source: Value | Op, index: Index) -> Value:
        copy = Value(value.type, value.name)
        self.result.leaves.append(Leaf(copy, source, index))
        self.result.deps[copy] = frozenset(axis for axis, _ in index.terms)
        return copy
