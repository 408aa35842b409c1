"""Which index each dimension of a value runs over, however it was transposed, reshaped and repeated on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from nki.graph.patterns import Op, Rewriter, Value, computed_alike, lossless


@dataclass(eq=False, slots=True)
class Index:
    """An index of a loop nest, of which values have dimensions; two are the same if they are the same object.

    Attributes:
        size: how many values it takes.
        parts: the slower and the faster index that it is made of, once a reshape has shown it to be two.
    """

    size: int
    parts: tuple[Index, ...] = ()

    def flat(self) -> list[Index]:
        """The indices that it consists of, slowest first; none if it takes one value."""
        if not self.parts:
            return [self] if self.size > 1 else []
        return [index for part in self.parts for index in part.flat()]

    def split(self, slower: int) -> None:
        """Make it of two, the slower of which takes `slower` values."""
        self.parts = (Index(slower), Index(self.size // slower))


Dims = list[list[Index]]
"""For each dimension of a value the indices it runs over, slowest first; none for size 1."""


class NotAligned(Exception):
    """A reshape cuts an index where it has no boundary."""


def of_shape(shape: Sequence[int]) -> Dims:
    """New indices, one for each dimension."""
    return [[Index(size)] for size in shape]


def flat(dims: Dims) -> Dims:
    """Dimensions with the parts of indices that were split in their places."""
    return [[part for index in dim for part in index.flat()] for dim in dims]


def same(one: Dims, other: Dims) -> bool:
    """Whether all dimensions run over the same indices."""
    return flat(one) == flat(other)


@dataclass(frozen=True, slots=True)
class Seen:
    """A value before it was moved.

    Attributes:
        value: what was moved.
        dims: over which indices its dimensions run.
    """

    value: Value
    dims: Dims


def unmoved(r: Rewriter, value: Value, dims: Dims, *, exact: bool = False) -> Seen:
    """What a value was before transposes, reshapes, repetition and conversions of floats.

    Args:
        exact: stop at conversions that round; else only at those to fewer bits than models compute in.

    Raises:
        NotAligned: a reshape mixes indices.
    """
    while (op := r.maker(value)) is not None and op.operands:
        before = _before(op, dims, exact)
        if before is None:
            break
        value, dims = op.operands[0], before
    return Seen(value, dims)


def _before(op: Op, dims: Dims, exact: bool) -> Dims | None:
    """The indices of the operand's dimensions; None for an operation that does more than move."""
    shape = op.operands[0].type.shape
    if op.name == "convert":
        source, result = op.operands[0].type.dtype, op.results[0].type.dtype
        kept = lossless(source, result) if exact else computed_alike(source, result)
        return (
            dims if source.is_float and source.itemsize > 1 and kept else None
        )  # bytes are not transposed like others
    if op.name == "transpose":
        order = tuple(op.attributes["permutation"])
        return [dims[order.index(dim)] for dim in range(len(shape))]
    if op.name == "broadcast_in_dim":
        places = tuple(op.attributes["broadcast_dimensions"])
        return [dims[place] if size > 1 else [] for place, size in zip(places, shape, strict=True)]
    if op.name == "reshape":
        return regrouped(dims, shape)
    return None


def regrouped(dims: Dims, shape: Sequence[int]) -> Dims:
    """Where the indices are in the dimensions of another shape; splits those that the new dimensions cut."""
    left = [index for dim in flat(dims) for index in dim]
    found: Dims = []
    for size in shape:
        taken: list[Index] = []
        while prod(index.size for index in taken) < size:
            if not left:
                raise NotAligned
            index, rest = left.pop(0), size // prod(index.size for index in taken)
            if index.size > rest:
                if index.size % rest or size % rest:
                    raise NotAligned
                index.split(rest)
                index, other = index.parts
                left.insert(0, other)
            taken.append(index)
        if prod(index.size for index in taken) != size:
            raise NotAligned
        found.append(taken)
    return found


def product_dims(op: Op) -> tuple[Dims, Dims, Dims]:
    """Indices of the dimensions of a product's operands and of its result."""
    a = op.attributes
    left, right = (of_shape(value.type.shape) for value in op.operands)
    for kind in ("batching", "contracting"):
        for one, other in zip(a[f"lhs_{kind}_dimensions"], a[f"rhs_{kind}_dimensions"], strict=True):
            right[other] = left[one]
    batch = [left[dim] for dim in a["lhs_batching_dimensions"]]
    free = [dim for side, dims in (("lhs", left), ("rhs", right)) for dim in _free(op, side, dims)]
    return left, right, [*batch, *free]


def _free(op: Op, side: str, dims: Dims) -> Dims:
    """The dimensions of an operand that are neither batches nor summed over."""
    taken = {*op.attributes[f"{side}_batching_dimensions"], *op.attributes[f"{side}_contracting_dimensions"]}
    return [dim for place, dim in enumerate(dims) if place not in taken]


def bound(op: Op, result: Dims) -> tuple[Dims, Dims]:
    """Indices of the dimensions of a product's operands, given those of its result."""
    left, right, own = product_dims(op)
    renamed = {id(mine[0]): theirs for mine, theirs in zip(own, result, strict=True)}
    one, other = ([renamed.get(id(dim[0]), dim) for dim in dims] for dims in (left, right))
    return one, other
