"""Masks: which elements of an access an instruction computes.

A mask is a conjunction of comparisons of affine expressions with 0. Where every comparison depends on one axis, what is
true is a box, and the instruction is made for that box alone. What remains depends on two axes or more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nki.beta1.errors import Beta1ValueError, condition_on_arange, refused
from nki.beta1.tensors.conjunction import check_joined, waits

if TYPE_CHECKING:
    from nki.beta1.tensors.access import Access

Shape = tuple[int, ...]
Box = tuple[tuple[int, int], ...]
"""For each axis the first position, and the one after the last."""


class Comparison(NamedTuple):
    """An affine expression of the positions along axes, compared with 0: ``>=``, ``==`` or ``!=``.

    Attributes:
        const: the expression at position 0 of every axis.
        shape: extent of every axis; 1 where the expression does not vary.
        steps: how much it grows along each axis.
    """

    const: int
    shape: Shape
    steps: Shape
    relation: str

    def axes(self) -> list[int]:
        """The axes that it depends on, counted from the last one, which is 0."""
        return [at for at, step in enumerate(reversed(self.steps)) if step]

    def decided(self, box: Box) -> bool | None:
        """Whether it is true, or false, in all of a box; None if it is true in a part of it."""
        low, high = self._bounds(box)
        if self.relation == ">=":
            return True if low >= 0 else False if high < 0 else None
        inside = low <= 0 <= high
        if low == high:
            return (low == 0) == (self.relation == "==")
        return None if inside else self.relation == "!="

    def narrowed(self, box: Box) -> tuple[int, int] | None:
        """What of its one axis is true; None if that is not one interval."""
        (at,) = self.axes()
        low, high = box[len(box) - 1 - at]
        step, const = self.steps[-1 - at], self.const
        if self.relation == ">=":
            if step > 0:
                return min(max(low, -(const // step)), high), high
            return low, max(min(high, const // -step + 1), low)
        place, left = divmod(-const, step)
        hit = left == 0 and low <= place < high
        if self.relation == "==":
            return (place, place + 1) if hit else (low, low)
        if not hit:
            return low, high
        if place == low:
            return low + 1, high
        return (low, high - 1) if place == high - 1 else None

    def through(self, inner: Access) -> Comparison:
        """The comparison in the axes of a part, whose positions are those of `inner` here."""
        const, steps = self.const, [0] * len(inner.shape)
        for at in self.axes():
            step, axis = self.steps[-1 - at], inner.axes[-1 - at]
            if axis.tile is not None:
                raise refused(
                    "unsupported_expression_in_mask",
                    "a tile whose mask depends on an axis is indexed along that axis at run time",
                    "store the tile under its mask first",
                )
            const += step * axis.start
            steps = [own + step * more for own, more in zip(steps, axis.steps, strict=True)]
        return Comparison(const, inner.shape, tuple(steps), self.relation)

    def transposed(self, shape: tuple[int, ...]) -> Comparison:
        """The comparison in the axes of the transpose of a tile of this shape."""
        steps = (0,) * (len(shape) - len(self.steps)) + self.steps
        return Comparison(self.const, shape[::-1], steps[::-1], self.relation)

    def values(self, box: Box) -> np.ndarray:
        """Where it is true in a box."""
        total = np.full((1,) * len(box), self.const)
        for at, step in enumerate(reversed(self.steps)):
            axis = len(box) - 1 - at
            if step and axis >= 0:
                shape = [1] * len(box)
                shape[axis] = -1
                total = total + step * np.arange(*box[axis]).reshape(shape)
        compared = {">=": total >= 0, "==": total == 0, "!=": total != 0}[self.relation]
        return np.broadcast_to(compared, tuple(high - low for low, high in box))

    def _bounds(self, box: Box) -> tuple[int, int]:
        low = high = self.const
        for at, step in enumerate(reversed(self.steps)):
            axis = len(box) - 1 - at
            if not step or axis < 0:
                continue
            ends = sorted((step * box[axis][0], step * (box[axis][1] - 1)))
            low, high = low + ends[0], high + ends[1]
        return low, high


class Region(NamedTuple):
    """Where a mask is true within a shape.

    Attributes:
        box: contains all of it.
        rest: what has to hold beside; empty if the box is all of it.
    """

    box: Box
    rest: tuple[Comparison, ...] = ()

    @property
    def shape(self) -> Shape:
        return tuple(high - low for low, high in self.box)

    def transposed(self, shape: tuple[int, ...]) -> Region:
        """The region of the transpose of a tile of this shape."""
        return Region(self.box[::-1], tuple(each.transposed(shape) for each in self.rest))

    @property
    def empty(self) -> bool:
        for low, high in self.box:  # noqa: SIM110 - a loop takes a third of the time, and every instruction asks
            if low >= high:
                return True
        return False

    def boxes(self) -> Iterator[Box]:
        """Boxes that make it up, without overlap, rows of axis 0 together where they are alike."""
        if not self.rest:
            yield self.box
            return
        wanted = np.logical_and.reduce([each.values(self.box) for each in self.rest])
        yield from _boxes(wanted, tuple(low for low, _ in self.box))


class Mask:
    """A conjunction of comparisons; ``&`` joins masks."""

    __slots__ = ("comparisons",)
    __array_ufunc__ = None

    def __init__(self, comparisons: tuple[Comparison, ...]) -> None:
        self.comparisons = comparisons

    def __and__(self, other: Any) -> Any:
        if isinstance(other, Mask):
            return Mask(self.comparisons + other.comparisons)
        if isinstance(other, bool | np.bool_):
            return self if other else False
        return NotImplemented

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        for known, left in ((other, self), (self, other)):
            decided = known.decided() if isinstance(known, Mask) else known
            if isinstance(decided, bool | np.bool_):
                return True if decided else left
        raise refused(
            "unsupported_expression_in_mask",
            "a mask joins two conditions with |",
            "write one instruction for each condition; masks are joined with &",
            rule="a mask is a conjunction of comparisons of affine expressions",
        )

    __ror__ = __or__

    def decided(self) -> bool | None:
        """Whether it is true, or false, at all positions of its axes; None if it is true at some of them."""
        found = [each.decided(whole_box(each.shape)) for each in self.comparisons]
        return False if False in found else None if None in found else True

    def __bool__(self) -> bool:
        decided = self.decided()
        if decided is not None:
            return decided
        if waits(self.comparisons, 1):
            return True
        raise condition_on_arange()

    def region(self, shape: Shape) -> Region:
        """Where it is true within a shape, whose last axes are those of the mask."""
        return _region(self.comparisons, shape)

    def through(self, inner: Access) -> Mask:
        """The mask of a part of what it belongs to, in the axes of the part."""
        return Mask(tuple([each.through(inner) for each in self.comparisons]))

    def __repr__(self) -> str:
        return " & ".join(f"({each.const} + {list(each.steps)} {each.relation} 0)" for each in self.comparisons)


@lru_cache(maxsize=1 << 10)  # numbers alone; the instructions of a trip have the same masks and shapes
def _region(comparisons: tuple[Comparison, ...], shape: Shape) -> Region:
    box, rest = whole_box(shape), []
    for given in comparisons:
        each = _aligned(given, shape)
        axes = each.axes()
        if not axes:
            if not each.decided(box):
                return Region(tuple((0, 0) for _ in shape))
            continue
        narrowed = each.narrowed(box) if len(axes) == 1 else None
        if narrowed is None:
            rest.append(each)
            continue
        axis = len(shape) - 1 - axes[0]
        box = (*box[:axis], narrowed, *box[axis + 1 :])
    if any(low >= high for low, high in box):
        return Region(box)
    left = [(each, each.decided(box)) for each in rest]
    if any(decided is False for _, decided in left):
        return Region(tuple((low, low) for low, _ in box))
    return Region(box, tuple(each for each, decided in left if decided is None))


def fits(each: Comparison, shape: Shape) -> bool:
    """Whether a comparison may be one of positions in a shape, whose last axes are its own."""
    extents = each.shape
    same = all(size in (1, own) for size, own in zip(reversed(extents), reversed(shape), strict=False))
    return same and all(size == 1 for size in extents[: max(len(extents) - len(shape), 0)])


def _aligned(each: Comparison, shape: Shape) -> Comparison:
    """A comparison whose last axis is that of a shape: an index may leave out dimensions of size 1 at the end.

    Raises:
        Beta1Error: it is none of positions in the shape ("beta1.mask_shape").
    """
    found, left = each, len(shape)
    while not fits(found, shape):
        left -= 1
        if left < 0 or shape[left] != 1:
            raise refused(
                "mask_shape",
                f"a mask of shape {list(each.shape)} belongs to no access of shape {list(shape)}",
                "build the mask of the same nl.arange or nl.mgrid as the index of the tile",
                facts={"mask": list(each.shape), "shape": list(shape)},
            )
        found = found._replace(shape=(*found.shape, 1), steps=(*found.steps, 0))
    return found


@lru_cache(maxsize=1 << 10)  # a shape says all of it; kernels have few shapes, and many instructions
def whole_box(shape: Shape) -> Box:
    """The box of all elements; the same object for the same shape."""
    return tuple([(0, size) for size in shape])


@lru_cache(maxsize=1 << 10)  # as above
def whole_region(shape: Shape) -> Region:
    """The region of all elements; the same object for the same shape."""
    return Region(whole_box(shape))


def region_of(mask: Any, shape: Shape) -> Region:
    """Where ``mask=`` is true within a shape: None and True are all of it.

    Raises:
        Beta1Error: something else than a mask or a truth value ("beta1.unsupported_expression_in_mask").
    """
    check_joined()
    if mask is None:
        return whole_region(shape)
    if type(mask) is Mask:
        return mask.region(shape)
    if isinstance(mask, bool | np.bool_):
        return whole_region(shape) if mask else Region(tuple((0, 0) for _ in shape))
    raise refused(
        "unsupported_expression_in_mask",
        f"mask= got {repr(mask) if hasattr(mask, 'known') else type(mask).__name__}",
        "compare nl.arange, nl.mgrid, loop variables and program ids with numbers; for values of a tile use nl.where",
        rule="a mask is a conjunction of comparisons of affine expressions",
        kind=Beta1ValueError,
    )


def met(one: Box, two: Box) -> Box:
    """What is in both boxes; an axis along which they do not meet ends where it begins."""
    both = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, two, strict=True)]
    return tuple([(low, max(low, high)) for low, high in both])


def _boxes(wanted: np.ndarray, corner: Shape) -> Iterator[Box]:
    """Boxes of true elements: runs along the last axis, alike ones of neighbouring rows together."""
    if wanted.ndim == 1:
        edges = np.flatnonzero(np.diff(np.concatenate(([0], wanted.astype(np.int8), [0]))))
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            yield ((int(low) + corner[0], int(high) + corner[0]),)
        return
    start = 0
    for row in range(1, len(wanted) + 1):
        if row == len(wanted) or not np.array_equal(wanted[row], wanted[start]):
            for inner in _boxes(wanted[start], corner[1:]):
                yield ((start + corner[0], row + corner[0]), *inner)
            start = row
