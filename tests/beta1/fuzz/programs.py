"""Programs of index expressions and masks, made from a number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shape = tuple[int, ...]
SOURCES: tuple[Shape, ...] = ((140, 30), (36, 9, 11), (20, 5, 4, 6))
ROWS: Shape = (128, 3)
"""Rows of sources, which are known when the program runs."""
ROW_LIMIT = 20
RELATIONS = {
    "<": lambda a: a < 0,
    "<=": lambda a: a <= 0,
    ">": lambda a: a > 0,
    ">=": lambda a: a >= 0,
    "==": lambda a: a == 0,
    "!=": lambda a: a != 0,
}
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
REDUCTIONS = {"sum": (np.sum, 0), "max": (np.max, -np.inf), "min": (np.min, np.inf)}
"""Each with what changes no result."""
CHANGES = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
"""The functions of in-place operators."""
BOUNDS = {"greater_equal": np.greater_equal, "greater": np.greater, "less": np.less, "less_equal": np.less_equal}


@dataclass(frozen=True)
class Affine:
    """``const + sum(steps[axis] * position)``."""

    const: int
    steps: Shape

    def values(self, shape: Shape) -> np.ndarray:
        """What it is at every position."""
        grid = np.indices(shape)
        return self.const + sum(step * grid[axis] for axis, step in enumerate(self.steps))


@dataclass(frozen=True)
class Condition:
    """A comparison of an affine expression with 0."""

    index: Affine
    relation: str


@dataclass(frozen=True)
class Step:
    """One statement: what it does, to which earlier values, and with which indices, mask and arguments.

    Attributes:
        shape: of the positions that `index` and `mask` count.
    """

    kind: str
    of: tuple[int, ...] = ()
    shape: Shape = ()
    index: tuple[Any, ...] = ()
    mask: tuple[Condition, ...] = ()
    more: tuple[Any, ...] = ()


@dataclass
class Draft:
    """A program as it is made: its steps, and the shapes of their values."""

    random: random.Random
    steps: list[Step] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)

    def add(self, step: Step, shape: Shape) -> None:
        self.steps.append(step)
        self.shapes.append(shape)

    def pick(self, fits: Callable[[Shape], bool] = lambda shape: True) -> int | None:
        """One of the values so far that fit; None if there is none."""
        found = [at for at, shape in enumerate(self.shapes) if fits(shape)]
        return self.random.choice(found) if found else None

    def any(self) -> int:
        return self.random.randrange(len(self.shapes))

    def chance(self, part: float) -> bool:
        return self.random.random() < part


def program(seed: int) -> list[Step]:
    """The program of a number: loads, arithmetic, reductions, assignments, selections, products and views."""
    draft = Draft(random.Random(seed))
    _load(draft)
    for _ in range(draft.random.randint(2, 6)):
        draft.random.choice(_MAKERS)(draft)
    return draft.steps


def _shape(draft: Draft) -> Shape:
    free = [draft.random.choice((1, 2, 3, 5, 8)) for _ in range(draft.random.randint(1, 3))]
    return (draft.random.choice((1, 2, 7, 16, 32, 33, 64, 100, 128)), *free)


def _affine(draft: Draft, shape: Shape, axes: tuple[int, ...], limit: int, forward: tuple[int, ...] = (0,)) -> Affine:
    """An expression of some axes that stays within ``[0, limit)``.

    Args:
        forward: the axes along which it only grows, as partitions of a tile do.
    """
    steps, width = [0] * len(shape), 0
    for axis in draft.random.sample(axes, len(axes)):
        most = (limit - 1 - width) // max(shape[axis] - 1, 1)
        if most > 0 and draft.chance(0.8):
            step = min(draft.random.choice((1, 1, 1, 2, 3)), most)
            steps[axis] = step if shape[axis] > 1 else 0
            width += abs(steps[axis]) * (shape[axis] - 1)
    const = draft.random.randint(0, limit - 1 - width)
    for axis, step in enumerate(steps):
        if step and axis not in forward and draft.chance(0.25):
            steps[axis], const = -step, const + step * (shape[axis] - 1)
    return Affine(const, tuple(steps))


def _mask(draft: Draft, shape: Shape, *, most_axes: int = 3) -> tuple[Condition, ...]:
    """Up to two comparisons, each of one to three axes."""
    found = []
    for _ in range(draft.random.choice((0, 0, 1, 1, 2))):
        count = min(draft.random.choice((1, 1, 1, 2, 3)), len(shape), most_axes)
        steps = [0] * len(shape)
        for axis in draft.random.sample(range(len(shape)), count):
            steps[axis] = draft.random.choice((1, 1, -1, 2, -3))
        ends = [min(0, step * (size - 1)) for step, size in zip(steps, shape, strict=True)]
        tops = [max(0, step * (size - 1)) for step, size in zip(steps, shape, strict=True)]
        index = Affine(-draft.random.randint(sum(ends), sum(tops)), tuple(steps))
        found.append(Condition(index, draft.random.choice(_boxes(most_axes))))
    return tuple(found)


def _boxes(most_axes: int) -> list[str]:
    """Relations; where a mask has to leave a box, those that leave one part."""
    return [each for each in RELATIONS if most_axes > 1 or each != "!="]


def _load(draft: Draft) -> None:
    source = draft.random.randrange(len(SOURCES))
    shape = _shape(draft)
    index, mask = _of_source(draft, SOURCES[source], shape, _mask(draft, shape))
    draft.add(Step("load", (), shape, index, mask, (source,)), shape)


def _of_source(
    draft: Draft, sizes: Shape, shape: Shape, mask: tuple[Condition, ...], axes: int = 9
) -> tuple[tuple[Affine, ...], tuple[Condition, ...]]:
    """Indices of a tensor, some of which reach outside where a mask is false.

    Args:
        axes: how many of them an index that reaches outside has at most.
    """
    index, conditions = [], list(mask)
    for size in sizes:
        each = _affine(draft, shape, tuple(range(len(shape))), size, forward=())
        if draft.chance(0.2) and sum(step != 0 for step in each.steps) <= axes:
            each = Affine(each.const + draft.random.randint(1, 4), each.steps)
            conditions.append(Condition(Affine(each.const - size, each.steps), "<"))
        index.append(each)
    return tuple(index), tuple(conditions)


def _gather(draft: Draft) -> None:
    """Rows of a source that a tile of indices chooses."""
    source = draft.random.randrange(len(SOURCES))
    shape = _shape(draft)
    free = tuple(range(1, len(shape)))
    index = tuple(_affine(draft, shape, free, size) for size in SOURCES[source][1:])
    draft.add(Step("gather", (), shape, index, _mask(draft, shape), (source, draft.random.randrange(ROWS[1]))), shape)


def _binary(draft: Draft) -> None:
    one = draft.any()
    two, shape = draft.pick(lambda each: _fits(each, draft.shapes[one])), draft.shapes[one]
    assert two is not None, "a value fits itself"
    pair = (one, two) if draft.chance(0.5) else (two, one)
    draft.add(Step("binary", pair, shape, (), _mask(draft, shape), (draft.random.choice(list(BINARY)),)), shape)


def _fits(shape: Shape, wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(a in (1, b) for a, b in zip(shape, wanted, strict=True))


def _scalar(draft: Draft) -> None:
    one = draft.any()
    shape, more = draft.shapes[one], (draft.random.choice(list(BINARY)), draft.random.randint(-3, 3))
    draft.add(Step("scalar", (one,), shape, (), _mask(draft, shape), more), shape)


def _copy(draft: Draft) -> None:
    one = draft.any()
    draft.add(Step("copy", (one,), draft.shapes[one], (), _mask(draft, draft.shapes[one])), draft.shapes[one])


def _reduce(draft: Draft) -> None:
    one = draft.any()
    shape = draft.shapes[one]
    count = draft.random.randint(1, len(shape) - 1)
    axes = tuple(range(len(shape) - count, len(shape)))
    more = (draft.random.choice(list(REDUCTIONS)), axes)
    draft.add(
        Step("reduce", (one,), shape, (), _mask(draft, shape), more), (*shape[: len(shape) - count], *[1] * count)
    )


def _assign(draft: Draft) -> None:
    """A tile of one number, perhaps with blocks, and a value that a part of it is assigned, or is changed by."""
    one = draft.any()
    shape = draft.shapes[one]
    blocks = draft.random.choice(((), (), (1,), (3,), (2, 2)))
    sizes = [min(128, shape[0] + draft.random.choice((0, 0, 32, 5)))]
    sizes += [draft.random.randint(4, 12) for _ in range(draft.random.randint(1, 2))]
    for _ in range(20):
        index = [Affine(draft.random.randint(0, sizes[0] - shape[0]), (1, *[0] * (len(shape) - 1)))]
        index += [_affine(draft, shape, tuple(range(1, len(shape))), size) for size in sizes[1:]]
        places = np.ravel_multi_index(tuple(each.values(shape) for each in index), sizes)
        if np.unique(places).size == places.size:
            break
    else:
        return
    block = tuple(draft.random.randrange(size) for size in blocks)
    how = draft.random.choice(("set", "set", "computed", "masked", *CHANGES, *CHANGES))
    more = (blocks, block, how, draft.random.choice((0.0, 2.0)))
    draft.add(Step("assign", (one,), tuple(sizes), tuple(index), _mask(draft, shape), more), tuple(sizes))


def _slices(draft: Draft) -> None:
    """A part of a value by slices, some of them ``nl.ds``, and some backwards."""
    one = draft.any()
    first, parts = draft.random.randint(1, draft.shapes[one][0]), []
    parts.append((draft.random.randint(0, draft.shapes[one][0] - first), first, 1, draft.chance(0.5)))
    for size in draft.shapes[one][1:]:
        step, start = draft.random.choice((1, 1, 1, 2, 3, -1, -2)), draft.random.randrange(size)
        room = (size - 1 - start) // step if step > 0 else start // -step
        parts.append((start, draft.random.randint(1, room + 1), step, step == 1 and draft.chance(0.5)))
    shape = tuple(count for _, count, _, _ in parts)
    draft.add(Step("slices", (one,), draft.shapes[one], tuple(parts)), shape)


def _view(draft: Draft) -> None:
    """A part of a value by index expressions."""
    one = draft.any()
    sizes = draft.shapes[one]
    first = draft.random.randint(1, sizes[0])
    shape = (first, *[draft.random.choice((1, 2, 3)) for _ in range(draft.random.randint(1, 3))])
    index = [Affine(draft.random.randint(0, sizes[0] - first), (1, *[0] * (len(shape) - 1)))]
    index += [_affine(draft, shape, tuple(range(1, len(shape))), size) for size in sizes[1:]]
    draft.add(Step("view", (one,), shape, tuple(index)), shape)


def _transpose(draft: Draft) -> None:
    one = draft.pick(lambda shape: len(shape) == 2)
    if one is not None:
        shape = draft.shapes[one]
        draft.add(Step("transpose", (one,), shape, (), _mask(draft, shape)), shape[::-1])


def _load_transpose(draft: Draft) -> None:
    shape = (draft.random.choice((1, 3, 16, 33, 100)), draft.random.choice((1, 4, 17, 32)))
    index, mask = _of_source(draft, SOURCES[0], shape, _mask(draft, shape), axes=1)
    draft.add(Step("load_transpose", (), shape, index, mask, (0,)), shape[::-1])


def _product(draft: Draft) -> None:
    """The product of two tiles with the same partitions, the first of them transposed."""
    one = draft.pick(lambda shape: len(shape) == 2)
    if one is None:
        return
    two = draft.pick(lambda shape: len(shape) == 2 and shape[0] == draft.shapes[one][0])
    assert two is not None, "a value fits itself"
    shape = (draft.shapes[one][1], draft.shapes[two][1])
    draft.add(Step("product", (one, two), shape), shape)


def _where(draft: Draft) -> None:
    """One of two values, where a third one is positive."""
    one = draft.any()
    shape = draft.shapes[one]
    two, three = (draft.pick(lambda each: each == shape) for _ in range(2))
    assert two is not None and three is not None, "a value fits itself"
    draft.add(Step("where", (one, two, three), shape, (), _mask(draft, shape)), shape)


def _affine_select(draft: Draft) -> None:
    one = draft.any()
    shape = draft.shapes[one]
    chosen = next((each for each in _mask(draft, shape) if each), None)
    if chosen is not None:
        more = (chosen, draft.random.randint(-5, 5))
        draft.add(Step("affine_select", (one,), shape, (), _mask(draft, shape), more), shape)


def _range_select(draft: Draft) -> None:
    """A value where its position is between two bounds of each partition."""
    one = draft.pick(lambda shape: len(shape) == 2 and shape[1] > 1)
    if one is None:
        return
    shape = draft.shapes[one]
    more = (draft.random.choice(list(BOUNDS)), draft.random.choice(list(BOUNDS)), draft.random.randint(0, 8))
    draft.add(Step("range_select", (one,), shape, (), _mask(draft, shape, most_axes=1), more), shape)


def _iota(draft: Draft) -> None:
    shape = _shape(draft)
    index = Affine(draft.random.randint(-9, 9), tuple(draft.random.choice((0, 1, -1, 3, -4)) for _ in shape))
    draft.add(Step("iota", (), shape, (index,), _mask(draft, shape)), shape)


_MAKERS = (
    *(_load, _gather, _binary, _binary, _scalar, _copy, _reduce, _assign, _assign, _assign, _slices, _view),
    *(_transpose, _load_transpose, _product, _where, _affine_select, _range_select, _iota),
)
