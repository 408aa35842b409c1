"""What ``tensor[key]`` means: for each dimension of the tensor an affine map from the positions of the access."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from nki.beta1.errors import Beta1IndexError, refused
from nki.beta1.tensors.index import Index, broadcast_shapes
from nki.beta1.tensors.scalar import RunTimeIndex, RunTimeValue, Scalar, as_scalar
from nki.core.access import DynamicSlice
from nki.core.shown import shown

Shape = tuple[int, ...]

_new_tuple = tuple.__new__  # what the constructor of a named tuple calls


class Axis(NamedTuple):
    """The index of one dimension: ``start + sum(steps[axis] * position along axis)``, over the axes of an access.

    Attributes:
        tile: what is added at run time; None if all is known.
    """

    start: int
    steps: Shape
    tile: RunTimeValue | None = None


class Limit(NamedTuple):
    """A dimension of a part, which a part of that part would reach outside of, had no mask cut it.

    Attributes:
        axis: the index of the dimension.
        dim, size: which one it is, and its extent.
    """

    axis: Axis
    dim: int
    size: int


class Access(NamedTuple):
    """A part of a tensor: its shape, and the index of every dimension of the tensor.

    Attributes:
        limits: of the parts that it is a part of; what an instruction takes of it has to be inside of them.
    """

    shape: Shape
    axes: tuple[Axis, ...]
    limits: tuple[Limit, ...] = ()

    @staticmethod
    @lru_cache(maxsize=1 << 12)  # a shape says all of it; kernels have few shapes, and many accesses
    def of_whole(shape: Shape) -> Access:
        """All of a tensor; the same object for the same shape."""
        return Access(shape, tuple([Axis(0, unit(dim, len(shape))) for dim in range(len(shape))]))

    def then(self, inner: Access) -> Access:
        """The part of this part that `inner` means."""
        if self is Access.of_whole(self.shape):
            return inner
        found = self.mapped(inner.shape, lambda axis: _composed(axis, inner))
        beyond = [
            Limit(axis, dim, size)
            for dim, (axis, size) in enumerate(zip(inner.axes, self.shape, strict=True))
            if axis.tile is None and not _inside(inner.bounds(axis, None), size)
        ]
        return found._replace(limits=(*found.limits, *beyond)) if beyond else found

    def mapped(self, shape: Shape, change: Callable[[Axis], Axis]) -> Access:
        """The access in another shape, given what becomes of each index."""
        limits = tuple([limit._replace(axis=change(limit.axis)) for limit in self.limits])
        return Access(shape, tuple([change(axis) for axis in self.axes]), limits)

    def check(self, box: Sequence[tuple[int, int]] | None, sizes: Shape, name: str) -> None:
        """Raise Beta1Error if a box reaches outside of a tensor of these sizes, or of a part that this is a part of."""
        limits = [(axis, dim, size) for dim, (axis, size) in enumerate(zip(self.axes, sizes, strict=True))]
        for axis, dim, size in [*limits, *self.limits] if self.limits else limits:
            low, high = self.bounds(axis, box)
            if (low < 0 or high >= size) and axis.tile is None:
                raise out_of_bounds(name, dim, low, high, size)

    def bounds(self, axis: Axis, box: Sequence[tuple[int, int]] | None) -> tuple[int, int]:
        """The smallest and the largest index of a dimension, in a box of the access."""
        low = high = axis.start
        for at, step in enumerate(axis.steps):
            if not step:
                continue
            first, after = (0, self.shape[at]) if box is None else box[at]
            one, two = step * first, step * (after - 1)
            low, high = (low + one, high + two) if one < two else (low + two, high + one)
        return low, high


@lru_cache(maxsize=1 << 8)  # ints alone; every subscript asks for the same few
def unit(dim: int, rank: int, step: int = 1) -> Shape:
    """Steps of an index that varies along one axis."""
    return tuple([step if axis == dim else 0 for axis in range(rank)])


def _inside(bounds: tuple[int, int], size: int) -> bool:
    return bounds[0] >= 0 and bounds[1] < size


def _composed(axis: Axis, inner: Access) -> Axis:
    steps: Shape = (0,) * len(inner.shape)
    start, tile = axis.start, axis.tile
    for factor, part in zip(axis.steps, inner.axes, strict=True):
        if not factor:
            continue
        start += factor * part.start
        if part.tile is not None:
            tile = _added(tile, part.tile, factor)
        more = part.steps if factor == 1 else tuple([factor * each for each in part.steps])
        steps = tuple(map(operator.add, steps, more)) if any(steps) else more
    return Axis(start, steps, tile)


def _added(own: RunTimeValue | None, more: RunTimeValue, factor: int) -> RunTimeValue:
    """What is added at run time to the index of a part of a part."""
    if more.is_number and (own is None or own.is_number):
        scaled = more.value * factor
        return RunTimeValue(scaled if own is None else own.value + scaled)
    if own is not None or factor != 1:
        raise refused(
            "copy_dynamic_indirect_indices_not_natively_supported",
            "an index of run time is put on top of another one",
            "add both indices to one tile first",
        )
    return more


def access_of(key: Any, shape: Shape, keep: int | None, name: str) -> Access:
    """The access of a subscript.

    Args:
        key: what stands in the brackets.
        shape: of what is subscripted.
        keep: the axis that stays if its index is an int, as that of partitions does.
        name: for messages.
    """
    if type(key) is tuple and len(key) <= len(shape):
        found = _affine(key, shape)
        if found is not None:
            return found
    keys = list(key) if isinstance(key, tuple) else [key]
    if len(keys) > len(shape) and (given := sum([each is not None and each is not Ellipsis for each in keys])) > len(
        shape
    ):
        raise refused(
            "too_many_indices",
            f"{name}{list(shape)} has {len(shape)} dimensions, the index has {given}",
            f"give at most {len(shape)} indices",
            kind=Beta1IndexError,
        )
    if any([type(each) not in _PLAIN and _is_advanced(each) and not _is_one(each) for each in keys]):
        return _advanced(keys, shape)
    return _basic(keys, shape, keep, name)


_PLAIN = frozenset((int, slice, type(None), type(Ellipsis)))


def _is_one(key: Any) -> bool:
    """Whether an index is one number of run time, which stands where an int may stand."""
    return is_tile(key) and all(size == 1 for part in key.run_time_index() for size in part.shape)


def _is_advanced(key: Any) -> bool:
    return (isinstance(key, Index) and key.ndim > 0) or is_tile(key)


def is_tile(key: Any) -> bool:
    """Whether an index is the values of a tensor, alone or with an index expression added."""
    return hasattr(key, "run_time_index")


def _basic(keys: list[Any], shape: Shape, keep: int | None, name: str) -> Access:
    given = sum([each is not None and each is not Ellipsis for each in keys])
    at = next((position for position, each in enumerate(keys) if each is Ellipsis), len(keys))
    keys[at : at + 1] = [slice(None)] * (len(shape) - given)
    sizes: list[int] = []
    placed: list[tuple[int, int, int | None, RunTimeValue | None]] = []
    for each in keys:
        if each is None:
            sizes.append(1)
            continue
        dim = len(placed)
        tile: RunTimeValue | None = None
        start: int
        size: int | None
        if type(each) not in _PLAIN and is_tile(each):
            index, tile = each.run_time_index()
            start, size, step = index.const, None, 1
        elif isinstance(each, slice | DynamicSlice) and _is_moved(each):
            start, size, step, tile = _moved(each, shape[dim])
        else:
            start, size, step = _part(each, shape, dim, name)
        if size is None and dim == keep:
            size = 1
        placed.append((start, step, None if size is None else len(sizes), tile))
        if size is not None:
            sizes.append(size)
    rank = len(sizes)
    axes = [Axis(start, unit(-1 if at is None else at, rank, step), tile) for start, step, at, tile in placed]
    return Access(tuple(sizes), tuple(axes))


def _part(key: Any, shape: Shape, dim: int, name: str) -> tuple[int, int | None, int]:
    """Start, extent and step of one dimension; an int has no extent."""
    size = shape[dim]
    if isinstance(key, DynamicSlice):
        key = slice(key.start, key.start + key.size)
    if isinstance(key, slice):
        found = _positions(key, size)
        if not found:
            raise refused(
                "empty_slice",
                f"{found.start}:{found.stop} of dimension {dim} of tensor `{name}`{list(shape)} holds no element",
                "bound the loop by the size of the tensor, so that every slice has one element at least",
                kind=Beta1IndexError,
            )
        return found.start, len(found), found.step
    number = _integer(key)
    if number < -size:
        raise out_of_bounds(name, dim, number, number, size)
    return number % size if number < 0 else number, None, 1


def _is_moved(key: slice | DynamicSlice) -> bool:
    """Whether a slice begins or ends at a number of run time."""
    return isinstance(key.start, Scalar) or isinstance(getattr(key, "stop", None), Scalar)


def _moved(key: slice | DynamicSlice, size: int) -> tuple[int, int, int, RunTimeValue | None]:
    """Start, extent and step of a slice that begins at a number of run time, and that number without its constant."""
    start: Any = as_scalar(0 if key.start is None else key.start)
    step = 1 if isinstance(key, DynamicSlice) or key.step is None else _integer(key.step)
    if isinstance(key, DynamicSlice):
        extent: Any = as_scalar(key.size)
    else:
        stop: Any = as_scalar(size if key.stop is None else key.stop)
        extent = None if start is None or stop is None else stop - start
    if start is None or extent is None or not extent.known or extent.const < 1 or step < 1:
        raise refused(
            "unsupported_index",
            "a slice has an extent that is known when the kernel runs alone, none, or a step backward",
            "write nl.ds(start, size) with an int for the size",
            rule="the shape of a tile is known while the kernel is traced",
        )
    index, moved = RunTimeIndex(start).run_time_index()
    return index.const, len(range(0, extent.const, step)), step, moved


def _positions(key: slice, size: int) -> range:
    """The positions of a slice. What lies behind the end stays in it: a mask may leave that out."""
    if key.start is None and key.stop is None and key.step is None:
        return range(size)
    start, stop, step = (None if v is None else _integer(v) for v in (key.start, key.stop, key.step))
    if (step or 1) < 0 or (start or 0) < 0 or (stop or 0) < 0:
        return range(size)[slice(start, stop, step)]
    return range(start or 0, size if stop is None else stop, step or 1)


def _integer(key: Any) -> int:
    if type(key) is int:
        return key
    try:
        return operator.index(key)
    except TypeError:
        fix = "use ints, slices, nl.ds, nl.arange and nl.mgrid"
        raise refused(
            "unsupported_index",
            f"a tensor is indexed with {shown(key)}",
            "divide with //, which gives an int" if isinstance(key, float) else fix,
        ) from None


def _advanced(keys: list[Any], shape: Shape) -> Access:
    if any(isinstance(each, slice | DynamicSlice) or each is None for each in keys):
        raise refused(
            "unsupported_mixing_basic_advanced_tensor_indexing",
            "mixing basic tensor indexing and advanced tensor indexing is not supported",
            "write nl.arange for every dimension, or slices for every dimension",
        )
    if Ellipsis in [each for each in keys if not _is_advanced(each)]:
        keys = [each for each in keys if _is_advanced(each) or each is not Ellipsis]
    parts = [each.run_time_index() if is_tile(each) else (each, None) for each in keys]
    indices = [each if isinstance(each, Index) else Index(_integer(each), (), ()) for each, _ in parts]
    sizes = broadcast_shapes(
        *(index.shape for index in indices), *(tile.shape for _, tile in parts if tile is not None)
    )
    rest = shape[len(keys) :]
    axes = []
    for index, (_, tile) in zip(indices, parts, strict=True):
        wide = index.over(sizes)
        axes.append(Axis(wide.const, wide.steps + (0,) * len(rest), tile))
    rank = len(sizes) + len(rest)
    axes += [Axis(0, unit(len(sizes) + dim, rank)) for dim in range(len(rest))]
    return Access(sizes + rest, tuple(axes))


def _affine(keys: tuple[Any, ...], shape: Shape) -> Access | None:
    """The access of index tensors and ints alone, as kernels write most; None if there are others, or ints alone."""
    starts, forms = [], []
    for each in keys:
        if type(each) is Index:
            starts.append(each.const)
            forms.append((each.shape, each.steps))
        elif type(each) is int:
            starts.append(each)
            forms.append(_ONE)
        else:
            return None
    sizes, steps = _form(tuple(forms), shape)
    if steps is None:
        return None
    if sizes == shape and not any(starts) and steps == tuple([axis.steps for axis in Access.of_whole(shape).axes]):
        return Access.of_whole(shape)
    starts += [0] * (len(steps) - len(starts))
    return Access(sizes, tuple([_new_tuple(Axis, (*axis, None)) for axis in zip(starts, steps, strict=True)]))


_ONE: tuple[Shape, Shape] = ((), ())
"""Shape and steps of an int."""


@lru_cache(maxsize=1 << 12)  # ints alone; trips of loops differ in where they start
def _form(parts: tuple[tuple[Shape, Shape], ...], shape: Shape) -> tuple[Shape, tuple[Shape, ...] | None]:
    """The shape of an access and the steps of its axes; no steps if it has no index tensor with axes."""
    if not any([own for own, _ in parts]):
        return shape, None
    sizes, rest = broadcast_shapes(*[each for each, _ in parts]), shape[len(parts) :]
    rank = len(sizes) + len(rest)
    found = [(0,) * (len(sizes) - len(own)) + steps + (0,) * len(rest) for own, steps in parts]
    return sizes + rest, (*found, *[unit(len(sizes) + dim, rank) for dim in range(len(rest))])


def out_of_bounds(name: str, dim: int, low: int, high: int, size: int) -> Exception:
    """The error for an index that reaches outside of a tensor."""
    return refused(
        "tensor_access_out_of_bound",
        f"out-of-bound access for tensor `{name}` on dimension {dim}: "
        f"index range [{low}, {high}] exceeds the dimension size of {size}",
        f"count from 0 to {size - 1}"
        if high < 0
        else f"keep the index below {size}, or leave out the rest by a mask of the instruction: mask=index < {size}",
        facts={"dimension": dim, "low": low, "high": high, "size": size},
        kind=Beta1IndexError,
    )
