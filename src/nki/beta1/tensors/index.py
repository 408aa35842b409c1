"""Index expressions: affine in the positions along the axes of an access, made by ``nl.arange`` and ``nl.mgrid``.

An `Index` is ``const + sum(steps[axis] * position along axis)``. It has a shape as an array has one, with axes of size
1 where it says nothing, and broadcasts as NumPy does. Loop variables and program ids are Python's ints while a kernel
is traced, so that all that is affine in them is affine here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from nki.beta1.errors import Beta1TypeError, condition_on_arange, refused
from nki.beta1.tensors.conjunction import joined
from nki.beta1.tensors.mask import Comparison, Mask
from nki.core.shown import shown

Shape = tuple[int, ...]


class Index:
    """An affine expression of the positions along the axes of an access.

    Attributes:
        const: its value at position 0 of every axis.
        shape: extent of every axis; 1 where it does not vary.
        steps: how much it grows along each axis.
    """

    __slots__ = ("const", "shape", "steps")
    __array_ufunc__ = None  # NumPy's integers leave the operators to this class

    def __init__(self, const: int, shape: Shape, steps: Shape) -> None:
        self.const = const
        self.shape = shape
        self.steps = steps

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        ends = [step * (size - 1) for step, size in zip(self.steps, self.shape, strict=True)]
        return self.const + sum(min(end, 0) for end in ends), self.const + sum(max(end, 0) for end in ends)

    def __getitem__(self, key: Any) -> Index:
        """Axes put in with None, all of an axis with ``:``, a part of one with a slice."""
        keys = list(key) if isinstance(key, tuple) else [key]
        given = sum(each is not None and each is not Ellipsis for each in keys)
        if Ellipsis not in keys:
            keys.append(Ellipsis)
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (self.ndim - given)
        const, sizes, steps, axis = self.const, [], [], 0
        for each in keys:
            if each is None:
                sizes.append(1)
                steps.append(0)
                continue
            if axis == self.ndim:
                raise _not_subscripted(self, key)
            start, size, step = _part(each, self.shape[axis], self, key)
            const += start * self.steps[axis]
            if size is not None:
                sizes.append(size)
                steps.append(step * self.steps[axis] if size > 1 else 0)
            axis += 1
        return Index(const, tuple(sizes), tuple(steps))

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise refused(
            "cannot_assign_to_index",
            "an index tensor does not support item assignment",
            "make a tile of it with nisa.iota(expression, dtype=nl.int32), and assign to that",
            kind=Beta1TypeError,
        )

    def __add__(self, other: Any) -> Any:
        if type(other) is int:  # as most are: loop variables, and what is computed with them
            return Index(self.const + other, self.shape, self.steps)
        return self._combined(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is int:
            return Index(self.const - other, self.shape, self.steps)
        return self._combined(other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._combined(other, operator.add)

    def __neg__(self) -> Index:
        return Index(-self.const, self.shape, tuple(-step for step in self.steps))

    def __pos__(self) -> Index:
        return self

    def __mul__(self, other: Any) -> Any:
        factor = _integer(other)
        if factor is None:
            if isinstance(other, Index):
                if other.bounds[0] == other.bounds[1]:
                    return self._over(other.shape) * other.const
                if self.bounds[0] == self.bounds[1]:
                    return other._over(self.shape) * self.const
                raise _not_affine("the product of two index tensors")
            return NotImplemented
        return Index(self.const * factor, self.shape, tuple(step * factor for step in self.steps))

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        divisor = _integer(other)
        if divisor is None or divisor == 0:
            return NotImplemented if divisor is None else _divided_by_zero()
        if all(step % divisor == 0 for step in self.steps):
            return Index(self.const // divisor, self.shape, tuple(step // divisor for step in self.steps))
        low, high = (bound // divisor for bound in self.bounds)
        if low == high:
            return Index(low, self.shape, (0,) * self.ndim)
        raise _not_affine(f"an index tensor from {self.bounds[0]} to {self.bounds[1]}, divided by {divisor}")

    def __mod__(self, other: Any) -> Any:
        divisor = _integer(other)
        if divisor is None or divisor == 0:
            return NotImplemented if divisor is None else _divided_by_zero()
        return self - (self // divisor) * divisor

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, -1, -1, ">=")

    def __le__(self, other: Any) -> Any:
        return self._compared(other, -1, 0, ">=")

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, 1, -1, ">=")

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, 1, 0, ">=")

    def __eq__(self, other: Any) -> Any:
        return self._compared(other, 1, 0, "==")

    def __ne__(self, other: Any) -> Any:
        return self._compared(other, 1, 0, "!=")

    __hash__ = object.__hash__

    def __index__(self) -> int:
        if all(size == 1 for size in self.shape):
            return self.const
        raise refused(
            "control_flow_condition_depending_on_arange",
            f"an index tensor of shape {list(self.shape)} is used as one number",
            "use it in the index of a tensor, or in a mask",
            kind=Beta1TypeError,
        )

    __int__ = __index__

    def __bool__(self) -> bool:
        if all(size == 1 for size in self.shape):
            return self.const != 0
        raise condition_on_arange()

    def __repr__(self) -> str:
        return f"Index(const={self.const}, shape={list(self.shape)}, steps={list(self.steps)})"

    def _over(self, shape: Shape) -> Index:
        """The expression itself, with more axes in front and the extents of `shape`."""
        if self.shape == shape:
            return self
        sizes = broadcast_shapes(self.shape, shape)
        return Index(self.const, sizes, (0,) * (len(sizes) - self.ndim) + self.steps)

    def over(self, shape: Shape) -> Index:
        """The expression itself, with the axes of `shape`, which it broadcasts to."""
        return self._over(shape)

    def _combined(self, other: Any, function: Callable[[int, int], int]) -> Any:
        number = _integer(other)
        if number is not None:
            return Index(function(self.const, number), self.shape, self.steps)
        if not isinstance(other, Index):
            return NotImplemented
        one, two = self._over(other.shape), other._over(self.shape)
        return Index(function(one.const, two.const), one.shape, tuple(map(function, one.steps, two.steps)))

    def _compared(self, other: Any, sign: int, more: int, relation: str) -> Any:
        """Whether ``sign * (self - other) + more`` is in the relation to 0."""
        number = other if type(other) is int else _integer(other)
        if number is None and isinstance(other, float) and other.is_integer():
            number = int(other)
        if number is not None:
            const, shape, steps = self.const - number, self.shape, self.steps
        elif isinstance(other, Index):
            difference = self - other
            const, shape, steps = difference.const, difference.shape, difference.steps
        else:
            return NotImplemented
        if sign < 0:
            const, steps = -const, tuple([-step for step in steps])
        return Mask(joined((Comparison(const + more, shape, steps, relation),), 2))


class Grid(tuple[Index, ...]):
    """What ``nl.mgrid[...]`` gives: one index tensor for each axis, also by the names p, x, y, z, w."""

    p = property(operator.itemgetter(0))
    x = property(operator.itemgetter(1))
    y = property(operator.itemgetter(2))
    z = property(operator.itemgetter(3))
    w = property(operator.itemgetter(4))


class MGrid:
    """``nl.mgrid[0:128, 0:512]``: a dense grid of index tensors, as `numpy.mgrid`."""

    def __getitem__(self, key: Any) -> Grid:
        parts = key if isinstance(key, tuple) else (key,)
        found = []
        for axis, part in enumerate(parts):
            if not isinstance(part, slice):
                raise refused(
                    "unsupported_mgrid", f"nl.mgrid[...] got {part!r}", "write slices: nl.mgrid[0:128, 0:512]"
                )
            start, stop, step = (
                _plain(value, default)
                for value, default in zip((part.start, part.stop, part.step), (0, None, 1), strict=True)
            )
            size = len(range(start, stop, step))
            sizes, steps = [1] * len(parts), [0] * len(parts)
            sizes[axis], steps[axis] = size, step if size > 1 else 0
            found.append(Index(start, tuple(sizes), tuple(steps)))
        shape = tuple(each.shape[axis] for axis, each in enumerate(found))
        return Grid(each.over(shape) for each in found)


def arange(*args: Any) -> Index:
    """``arange(stop)`` or ``arange(start, stop)``: the index tensor of one axis, as `numpy.arange`."""
    if not 1 <= len(args) <= 3:
        raise refused(
            "arange", f"nl.arange got {len(args)} arguments", "write nl.arange(stop) or nl.arange(start, stop)"
        )
    numbers = [_plain(value, None) for value in args]
    found = range(*numbers)
    return Index(found.start, (len(found),), (found.step if len(found) > 1 else 0,))


@lru_cache(maxsize=1 << 12)  # shapes alone; every index asks for the same few
def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all of them broadcast to. Raises Beta1Error."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = ", ".join(str(list(shape)) for shape in shapes)
        raise refused(
            "failed_to_broadcast",
            f"index tensors and tiles of shapes {text} do not broadcast to one shape",
            "give each axis its place with None: nl.arange(128)[:, None], nl.arange(512)[None, :]",
        ) from None


def _integer(value: Any) -> int | None:
    if isinstance(value, Index | Mask):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _plain(value: Any, default: int | None) -> int:
    number = default if value is None else _integer(value)
    if number is None and isinstance(value, Index):
        number = int(value)
    if number is None:
        raise refused("arange", f"an index tensor is made of {value!r}", "use ints, loop variables and program ids")
    return number


def _part(key: Any, size: int, index: Index, whole: Any) -> tuple[int, int | None, int]:
    """Start, extent and step of a part of an axis; the extent is None if the axis goes."""
    if isinstance(key, slice):
        found = range(size)[key]
        return found.start, len(found), found.step
    number = _integer(key)
    if number is None:
        raise _not_subscripted(index, whole)
    return range(size)[number], None, 1


def _not_subscripted(index: Index, key: Any) -> Exception:
    return refused(
        "index_subscript",
        f"an index tensor of shape {list(index.shape)} is subscripted with [{_written(key)}]",
        "put axes in with None: nl.arange(128)[:, None]",
        kind=Beta1TypeError,
    )


def _written(key: Any) -> str:
    """A subscript as its author wrote it."""
    if isinstance(key, tuple):
        return ", ".join(map(_written, key))
    if isinstance(key, slice):
        start, stop, step = ("" if bound is None else str(bound) for bound in (key.start, key.stop, key.step))
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
    if key is None or key is Ellipsis:
        return "None" if key is None else "..."
    return shown(key)


def _not_affine(what: str) -> Exception:
    return refused(
        "unsupported_expression_in_index",
        f"{what} is not affine",
        "split the axis in two: nl.arange(a)[:, None, None] * b + nl.arange(b)[None, :, None]",
        rule="an index is a sum of constants times nl.arange, nl.mgrid, loop variables and program ids",
    )


def _divided_by_zero() -> NoReturn:
    raise ZeroDivisionError("index tensor divided by zero")
