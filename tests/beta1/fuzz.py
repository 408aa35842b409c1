"""Random programs of index expressions and masks: made from a number, run as kernels of the first NKI and in NumPy.

All numbers are small integers in float32, so that every result is exact in any order. What a mask leaves out of a new
tile is undefined: NumPy notes what is known, and only that is compared.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import nki.beta1.language as nl
from nki.beta1.decorators import jit

Shape = tuple[int, ...]
SOURCES: tuple[Shape, ...] = ((140, 30), (36, 9, 11), (20, 5, 4, 6))
BEFORE = -77.0


@dataclass(frozen=True)
class Affine:
    """``const + sum(steps[axis] * position)``."""

    const: int
    steps: Shape


@dataclass(frozen=True)
class Condition:
    """A comparison of an affine expression with 0."""

    index: Affine
    relation: str


@dataclass(frozen=True)
class Step:
    """One statement: what it does, to which earlier values, and with which indices, mask and arguments."""

    kind: str
    of: tuple[int, ...] = ()
    shape: Shape = ()
    index: tuple[Any, ...] = ()
    mask: tuple[Condition, ...] = ()
    more: tuple[Any, ...] = ()


RELATIONS = {
    "<": lambda a: a < 0,
    "<=": lambda a: a <= 0,
    ">": lambda a: a > 0,
    ">=": lambda a: a >= 0,
    "==": lambda a: a == 0,
    "!=": lambda a: a != 0,
}
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
REDUCTIONS = {"sum": np.sum, "max": np.max, "min": np.min}


# --- programs


@dataclass
class Draft:
    """A program as it is made: its steps, and the shapes of their values."""

    random: random.Random
    steps: list[Step] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)

    def add(self, step: Step, shape: Shape) -> None:
        self.steps.append(step)
        self.shapes.append(shape)

    def pick(self) -> int:
        return self.random.randrange(len(self.shapes))


def program(seed: int) -> list[Step]:
    """The program of a number: loads, arithmetic, reductions, assignments and views of tiles."""
    draft = Draft(random.Random(seed))
    _load(draft)
    makers = [_load, _binary, _binary, _scalar, _copy, _reduce, _assign, _assign, _view]
    for _ in range(draft.random.randint(2, 6)):
        draft.random.choice(makers)(draft)
    return draft.steps


def _shape(draft: Draft) -> Shape:
    free = [draft.random.choice((1, 2, 3, 5, 8)) for _ in range(draft.random.randint(1, 3))]
    return (draft.random.choice((1, 2, 7, 16, 32, 33, 64, 100, 128)), *free)


def _affine(draft: Draft, shape: Shape, axes: tuple[int, ...], limit: int) -> Affine:
    """An expression of some axes that stays within ``[0, limit)``."""
    steps, width = [0] * len(shape), 0
    for axis in draft.random.sample(axes, len(axes)):
        most = (limit - 1 - width) // max(shape[axis] - 1, 1)
        if most > 0 and draft.random.random() < 0.8:
            step = min(draft.random.choice((1, 1, 1, 2, 3)), most)
            steps[axis] = step if shape[axis] > 1 else 0
            width += abs(steps[axis]) * (shape[axis] - 1)
    const = draft.random.randint(0, limit - 1 - width)
    for axis, step in enumerate(steps):
        if step and axis and draft.random.random() < 0.15:
            steps[axis], const = -step, const + step * (shape[axis] - 1)
    return Affine(const, tuple(steps))


def _mask(draft: Draft, shape: Shape) -> tuple[Condition, ...]:
    found = []
    for _ in range(draft.random.choice((0, 0, 1, 1, 2))):
        axes = draft.random.sample(range(len(shape)), draft.random.choice((1, 1, 1, min(2, len(shape)))))
        steps = [0] * len(shape)
        for axis in axes:
            steps[axis] = draft.random.choice((1, 1, -1, 2, -3))
        ends = [min(0, step * (size - 1)) for step, size in zip(steps, shape, strict=True)]
        tops = [max(0, step * (size - 1)) for step, size in zip(steps, shape, strict=True)]
        index = Affine(-draft.random.randint(sum(ends), sum(tops)), tuple(steps))
        found.append(Condition(index, draft.random.choice(list(RELATIONS))))
    return tuple(found)


def _load(draft: Draft) -> None:
    source = draft.random.randrange(len(SOURCES))
    shape, sizes = _shape(draft), SOURCES[source]
    index, mask = [], list(_mask(draft, shape))
    for size in sizes:
        each = _affine(draft, shape, tuple(range(len(shape))), size)
        if draft.random.random() < 0.2:  # reaches outside, where the mask is false
            each = Affine(each.const + draft.random.randint(1, 4), each.steps)
            mask.append(Condition(Affine(each.const - size, each.steps), "<"))
        index.append(each)
    draft.add(Step("load", (), shape, tuple(index), tuple(mask), (source,)), shape)


def _binary(draft: Draft) -> None:
    one = draft.pick()
    fitting = [at for at, shape in enumerate(draft.shapes) if _fits(shape, draft.shapes[one])]
    two, shape = draft.random.choice(fitting), draft.shapes[one]
    pair = (one, two) if draft.random.random() < 0.5 else (two, one)
    draft.add(Step("binary", pair, shape, (), _mask(draft, shape), (draft.random.choice(list(BINARY)),)), shape)


def _fits(shape: Shape, wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(a in (1, b) for a, b in zip(shape, wanted, strict=True))


def _scalar(draft: Draft) -> None:
    one = draft.pick()
    shape, more = draft.shapes[one], (draft.random.choice(list(BINARY)), draft.random.randint(-3, 3))
    draft.add(Step("scalar", (one,), shape, (), _mask(draft, shape), more), shape)


def _copy(draft: Draft) -> None:
    one = draft.pick()
    draft.add(Step("copy", (one,), draft.shapes[one], (), _mask(draft, draft.shapes[one])), draft.shapes[one])


def _reduce(draft: Draft) -> None:
    one = draft.pick()
    shape = draft.shapes[one]
    count = draft.random.randint(1, len(shape) - 1)
    axes = tuple(range(len(shape) - count, len(shape)))
    more = (draft.random.choice(list(REDUCTIONS)), axes)
    draft.add(Step("reduce", (one,), shape, (), (), more), (*shape[: len(shape) - count], *[1] * count))


def _assign(draft: Draft) -> None:
    """A tile of zeros, perhaps with blocks, and a value that is assigned or added to a part of it."""
    one = draft.pick()
    shape = draft.shapes[one]
    blocks = draft.random.choice((0, 0, 1, 3))
    sizes = [min(128, shape[0] + draft.random.choice((0, 0, 32, 5)))]
    sizes += [draft.random.randint(4, 12) for _ in range(draft.random.randint(1, 2))]
    for _ in range(20):
        index = [Affine(draft.random.randint(0, sizes[0] - shape[0]), (1, *[0] * (len(shape) - 1)))]
        index += [_affine(draft, shape, tuple(range(1, len(shape))), size) for size in sizes[1:]]
        places = np.ravel_multi_index(tuple(values(each, shape) for each in index), sizes)
        if np.unique(places).size == places.size:
            break
    else:
        return
    block = draft.random.randrange(blocks) if blocks else None
    how = draft.random.choice(("set", "set", "add", "computed"))
    draft.add(
        Step("assign", (one,), tuple(sizes), tuple(index), _mask(draft, shape), (blocks, block, how)), tuple(sizes)
    )


def _view(draft: Draft) -> None:
    """A part of a value, by slices or by index expressions."""
    one = draft.pick()
    sizes = draft.shapes[one]
    first = draft.random.randint(1, sizes[0])
    if draft.random.random() < 0.5:
        parts = [(draft.random.randint(0, sizes[0] - first), first, 1)]
        for size in sizes[1:]:
            step = draft.random.choice((1, 1, 2, 3))
            start = draft.random.randrange(size)
            parts.append((start, draft.random.randint(1, (size - 1 - start) // step + 1), step))
        draft.add(Step("slices", (one,), sizes, tuple(parts)), tuple(count for _, count, _ in parts))
        return
    shape = (first, *[draft.random.choice((1, 2, 3)) for _ in range(draft.random.randint(1, 3))])
    index = [Affine(draft.random.randint(0, sizes[0] - first), (1, *[0] * (len(shape) - 1)))]
    index += [_affine(draft, shape, tuple(range(1, len(shape))), size) for size in sizes[1:]]
    draft.add(Step("view", (one,), shape, tuple(index)), shape)


# --- in NumPy


def values(index: Affine, shape: Shape) -> np.ndarray:
    """What an expression is at every position."""
    grid = np.indices(shape)
    return index.const + sum(step * grid[axis] for axis, step in enumerate(index.steps))


def holds(mask: tuple[Condition, ...], shape: Shape) -> np.ndarray:
    """Where a mask is true."""
    found = np.ones(shape, bool)
    for each in mask:
        found &= RELATIONS[each.relation](values(each.index, shape))
    return found


def expected(steps: list[Step], sources: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The value of every step, and where it is known."""
    made: list[tuple[np.ndarray, np.ndarray]] = []
    for step in steps:
        made.append(_EXPECTED[step.kind](step, made, sources))
    return made


def _np_load(step: Step, made: Any, sources: list[np.ndarray]) -> Any:
    source = sources[step.more[0]]
    known = holds(step.mask, step.shape)
    at = tuple(np.where(known, values(each, step.shape), 0) for each in step.index)
    return source[at], known


def _np_binary(step: Step, made: Any, sources: Any) -> Any:
    (a, known_a), (b, known_b) = made[step.of[0]], made[step.of[1]]
    return BINARY[step.more[0]](a, b), known_a & known_b & holds(step.mask, step.shape)


def _np_scalar(step: Step, made: Any, sources: Any) -> Any:
    a, known = made[step.of[0]]
    return BINARY[step.more[0]](a, np.float32(step.more[1])), known & holds(step.mask, step.shape)


def _np_copy(step: Step, made: Any, sources: Any) -> Any:
    a, known = made[step.of[0]]
    return a, known & holds(step.mask, step.shape)


def _np_reduce(step: Step, made: Any, sources: Any) -> Any:
    a, known = made[step.of[0]]
    return REDUCTIONS[step.more[0]](a, axis=step.more[1], keepdims=True), known.all(step.more[1], keepdims=True)


def _np_assign(step: Step, made: Any, sources: Any) -> Any:
    value, there = made[step.of[0]]
    out, known = np.zeros(step.shape, np.float32), np.ones(step.shape, bool)
    at = tuple(values(each, value.shape) for each in step.index)
    if step.more[2] == "computed":
        value = value + np.float32(2)
    chosen = holds(step.mask, value.shape)
    places = tuple(each[chosen] for each in at)
    out[places] = value[chosen]  # of zeros, what is added is the same as what is assigned
    known[places] = there[chosen]
    return out, known


def _np_slices(step: Step, made: Any, sources: Any) -> Any:
    at = tuple(slice(start, start + (count - 1) * by + 1, by) for start, count, by in step.index)
    return made[step.of[0]][0][at], made[step.of[0]][1][at]


def _np_view(step: Step, made: Any, sources: Any) -> Any:
    at = tuple(values(each, step.shape) for each in step.index)
    return made[step.of[0]][0][at], made[step.of[0]][1][at]


_EXPECTED = {
    "load": _np_load,
    "binary": _np_binary,
    "scalar": _np_scalar,
    "copy": _np_copy,
    "reduce": _np_reduce,
    "assign": _np_assign,
    "slices": _np_slices,
    "view": _np_view,
}


# --- as a kernel


def _axis(shape: Shape, axis: int) -> Any:
    return nl.arange(shape[axis])[tuple(slice(None) if at == axis else None for at in range(len(shape)))]


def _index(index: Affine, shape: Shape) -> Any:
    found: Any = index.const
    for axis, step in enumerate(index.steps):
        if step:
            found = found + step * _axis(shape, axis)
    return found


def _indices(index: tuple[Affine, ...], shape: Shape) -> tuple[Any, ...]:
    """All expressions; axes that none of them has are put in by adding nothing times their positions."""
    found = [_index(each, shape) for each in index]
    missing = [axis for axis in range(len(shape)) if not any(each.steps[axis] for each in index)]
    for axis in missing:
        found[-1] = found[-1] + 0 * _axis(shape, axis)
    return tuple(found)


def _condition(mask: tuple[Condition, ...], shape: Shape) -> Any:
    found: Any = None
    for each in mask:
        index = _index(each.index, shape)
        one = {
            "<": lambda i: i < 0,
            "<=": lambda i: i <= 0,
            ">": lambda i: i > 0,
            ">=": lambda i: i >= 0,
            "==": lambda i: i == 0,
            "!=": lambda i: i != 0,
        }[each.relation](index)
        found = one if found is None else found & one
    return found


def _issue(step: Step, made: list[Any], sources: tuple[Any, ...]) -> Any:
    mask = _condition(step.mask, step.shape if step.kind != "assign" else tuple(made[step.of[0]].shape))
    operands = [made[at] for at in step.of]
    if step.kind == "load":
        return nl.load(sources[step.more[0]][_indices(step.index, step.shape)], mask=mask)
    if step.kind == "binary":
        return getattr(nl, step.more[0])(*operands, mask=mask)
    if step.kind == "scalar":
        return getattr(nl, step.more[0])(operands[0], float(step.more[1]), mask=mask)
    if step.kind == "copy":
        return nl.copy(operands[0], mask=mask)
    if step.kind == "reduce":
        return getattr(nl, step.more[0])(operands[0], axis=step.more[1], keepdims=True)
    if step.kind == "slices":
        return operands[0][tuple(slice(start, start + (count - 1) * by + 1, by) for start, count, by in step.index)]
    if step.kind == "view":
        return operands[0][_indices(step.index, step.shape)]
    return _assigned(step, operands[0], mask)


def _assigned(step: Step, value: Any, mask: Any) -> Any:
    blocks, block, how = step.more
    if blocks:
        shape = (blocks, nl.par_dim(step.shape[0]), *step.shape[1:])
        tile = nl.zeros(shape, dtype=nl.float32, buffer=nl.sbuf)
        key = (block, *_indices(step.index, value.shape))
    else:
        tile = nl.zeros(step.shape, dtype=nl.float32, buffer=nl.sbuf)
        key = _indices(step.index, value.shape)
    if how == "add":
        tile[key] += nl.copy(value, mask=mask)
    elif how == "computed":
        tile[key] = nl.add(value, 2.0, mask=mask)
    else:
        tile[key] = nl.copy(value, mask=mask)
    return tile[block] if blocks else tile


@jit
def kernel(one, two, three, seed):
    steps = program(seed)
    made: list[Any] = []
    results = []
    for step in steps:
        made.append(_issue(step, made, (one, two, three)))
        shape = tuple(made[-1].shape)
        out = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, BEFORE)
        nl.store(out, made[-1])
        results.append(out)
    return tuple(results)


def sources(seed: int) -> list[np.ndarray]:
    """The tensors that programs load from."""
    drawn = np.random.default_rng(seed)
    return [drawn.integers(-3, 4, shape).astype(np.float32) for shape in SOURCES]


def differences(seed: int) -> list[str]:
    """What is wrong with a program: in either mode, at which step."""
    steps, arrays = program(seed), sources(seed)
    wanted = expected(steps, arrays)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\[memory.uninitialized\]")  # what a mask left out is copied on
        compiled = kernel(*arrays, seed)
        simulated = kernel.simulated()(*arrays, seed)
    found = []
    for at, (step, (value, known), one, two) in enumerate(zip(steps, wanted, compiled, simulated, strict=True)):
        for mode, got in (("compiled", one), ("simulated", two)):
            if not np.array_equal(np.asarray(got)[known], value[known]):
                wrong = int((np.asarray(got)[known] != value[known]).sum())
                found.append(f"{seed}: step {at} {mode}: {wrong} of {int(known.sum())} wrong in {step}")
    return found
