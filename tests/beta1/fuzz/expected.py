"""What a program computes, in NumPy, and what of it is known: a mask leaves the rest of a new tile undefined.

All numbers are small integers in float32, so that every result is exact in any order; those that have grown too large
for that are as unknown as what a mask left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.beta1.fuzz.programs import BINARY, BOUNDS, CHANGES, REDUCTIONS, RELATIONS, Affine, Condition, Shape, Step

SMALL, FACTOR = 2.0**12, 2.0**8
Known = tuple[np.ndarray, np.ndarray]
"""A value, and where it is known."""


def expected(steps: list[Step], sources: list[np.ndarray]) -> list[Known]:
    """The value of every step."""
    made: list[Known] = []
    for step in steps:
        with np.errstate(over="ignore", invalid="ignore"):  # of what is unknown
            value, known = _STEPS[step.kind](step, [made[at] for at in step.of], sources)
        made.append((value, known & (np.abs(value) <= SMALL)))
    return made


def holds(mask: tuple[Condition, ...], shape: Shape) -> np.ndarray:
    """Where a mask is true."""
    found = np.ones(shape, bool)
    for each in mask:
        found &= RELATIONS[each.relation](each.index.values(shape))
    return found


def _at(index: tuple[Affine, ...], shape: Shape) -> tuple[np.ndarray, ...]:
    return tuple(each.values(shape) for each in index)


def _load(step: Step, given: list[Known], sources: list[np.ndarray]) -> Known:
    known = holds(step.mask, step.shape)
    at = tuple(np.where(known, each, 0) for each in _at(step.index, step.shape))
    return sources[step.more[0]][at], known


def _load_transpose(step: Step, given: list[Known], sources: list[np.ndarray]) -> Known:
    value, known = _load(step, given, sources)
    return value.T, known.T


def _gather(step: Step, given: list[Known], sources: list[np.ndarray]) -> Known:
    source, column = step.more
    rows = sources[-1][: step.shape[0], column].reshape(-1, *[1] * (len(step.shape) - 1))
    return sources[source][(rows, *_at(step.index, step.shape))], holds(step.mask, step.shape)


def _binary(step: Step, given: list[Known], sources: Any) -> Known:
    (a, known_a), (b, known_b) = given
    return BINARY[step.more[0]](a, b), known_a & known_b & holds(step.mask, step.shape)


def _scalar(step: Step, given: list[Known], sources: Any) -> Known:
    a, known = given[0]
    return BINARY[step.more[0]](a, np.float32(step.more[1])), known & holds(step.mask, step.shape)


def _copy(step: Step, given: list[Known], sources: Any) -> Known:
    return given[0][0], given[0][1] & holds(step.mask, step.shape)


def _reduce(step: Step, given: list[Known], sources: Any) -> Known:
    a, known = given[0]
    (reduce, neutral), axes = REDUCTIONS[step.more[0]], step.more[1]
    takes_part = holds(step.mask, step.shape)
    value = reduce(np.where(takes_part, a, np.float32(neutral)), axis=axes, keepdims=True)
    return value, (known | ~takes_part).all(axes, keepdims=True) & takes_part.any(axes, keepdims=True)


def _assign(step: Step, given: list[Known], sources: Any) -> Known:
    value, there = given[0]
    _, _, how, before = step.more
    out, known = np.full(step.shape, before, np.float32), np.ones(step.shape, bool)
    chosen = holds(step.mask, value.shape)
    places = tuple(each[chosen] for each in _at(step.index, value.shape))
    new = value[chosen] + np.float32(2) if how == "computed" else value[chosen]
    out[places] = CHANGES[how](out[places], new) if how in CHANGES else new
    known[places] = there[chosen]
    return out, known


def _slices(step: Step, given: list[Known], sources: Any) -> Known:
    at = np.ix_(*[start + by * np.arange(count) for start, count, by, _ in step.index])
    return given[0][0][at], given[0][1][at]


def _view(step: Step, given: list[Known], sources: Any) -> Known:
    at = _at(step.index, step.shape)
    return given[0][0][at], given[0][1][at]


def _transpose(step: Step, given: list[Known], sources: Any) -> Known:
    a, known = given[0]
    return a.T, (known & holds(step.mask, step.shape)).T


def _product(step: Step, given: list[Known], sources: Any) -> Known:
    exact = [known & (np.abs(each) <= FACTOR) for each, known in given]
    a, b = (np.where(true, each, 0) for true, (each, _) in zip(exact, given, strict=True))
    return a.T @ b, exact[0].all(0)[:, None] & exact[1].all(0)[None, :]


def _where(step: Step, given: list[Known], sources: Any) -> Known:
    (a, known_a), (b, known_b), (c, known_c) = given
    return np.where(a > 0, b, c), known_a & known_b & known_c & holds(step.mask, step.shape)


def _affine_select(step: Step, given: list[Known], sources: Any) -> Known:
    a, known = given[0]
    chosen, other = step.more
    return np.where(holds((chosen,), step.shape), a, np.float32(other)), known & holds(step.mask, step.shape)


def _range_select(step: Step, given: list[Known], sources: Any) -> Known:
    a, known = given[0]
    low, high, start = step.more
    bounds, position = sources[-1][: step.shape[0]], start + np.arange(step.shape[1])[None, :]
    chosen = BOUNDS[low](position, bounds[:, 0:1]) & BOUNDS[high](position, bounds[:, 1:2])
    return np.where(chosen, a, np.finfo(np.float32).min), known & holds(step.mask, step.shape)


def _iota(step: Step, given: list[Known], sources: Any) -> Known:
    return step.index[0].values(step.shape).astype(np.float32), holds(step.mask, step.shape)


_STEPS = {
    "load": _load,
    "load_transpose": _load_transpose,
    "gather": _gather,
    "binary": _binary,
    "scalar": _scalar,
    "copy": _copy,
    "reduce": _reduce,
    "assign": _assign,
    "slices": _slices,
    "view": _view,
    "transpose": _transpose,
    "product": _product,
    "where": _where,
    "affine_select": _affine_select,
    "range_select": _range_select,
    "iota": _iota,
}
