"""Intervals against all the numbers that they stand for."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nki.passes.lint.interval import Interval, combined, constant, of_values, progression

NUMBERS = st.integers(-(1 << 26), 1 << 26)
STEPS = st.lists(st.tuples(st.integers(-(1 << 22), 1 << 22), st.integers(1, 5)), max_size=3)


def members(start: int, steps: list[tuple[int, int]]) -> list[int]:
    ranges = [[step * k for k in range(count)] for step, count in steps]
    return [start + sum(parts) for parts in product(*ranges)]


@given(NUMBERS, STEPS)
def test_a_progression_has_its_ends_and_its_unit(start: int, steps: list[tuple[int, int]]) -> None:
    values, found = members(start, steps), progression(start, steps)
    assert (found.low, found.high, found.reached) == (min(values), max(values), True)
    assert all(value % found.unit == 0 for value in values)


@given(NUMBERS, STEPS)
def test_what_rounds_is_lost_by_float32(start: int, steps: list[tuple[int, int]]) -> None:
    """One way only: a finding is certain, while numbers below an end may be lost unnoticed only beyond it."""
    values, found = members(start, steps), progression(start, steps)
    lost = any(int(np.float32(value)) != value for value in values)
    if lost:
        assert found.rounds


@given(STEPS, st.sampled_from(["add", "subtract", "multiply", "maximum", "minimum"]), st.integers(-9, 9))
def test_operators_with_a_number_are_exact(steps: list[tuple[int, int]], op: str, number: int) -> None:
    compute = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum}.get(
        op, np.minimum
    )
    values = compute(np.array(members(7, steps), np.int64), number)
    found = combined(op, progression(7, steps), constant(number))
    assert found is not None
    assert (found.low, found.high, found.reached) == (values.min(), values.max(), True)
    assert not (values % found.unit).any()


@given(STEPS, STEPS, st.sampled_from(["add", "subtract", "multiply"]))
def test_two_tensors_stay_inside_but_may_not_reach_the_ends(
    first: list[tuple[int, int]], second: list[tuple[int, int]], op: str
) -> None:
    a, b = members(3, first), members(-5, second)
    compute = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}[op]
    values = compute.outer(np.array(a, np.int64), np.array(b, np.int64))
    found = combined(op, progression(3, first), progression(-5, second))
    assert found is not None
    assert found.low <= values.min() and values.max() <= found.high
    assert found.reached == (len(set(a)) == 1 or len(set(b)) == 1)


def test_what_is_not_known_stays_unknown() -> None:
    assert combined("add", None, constant(1)) is None
    assert combined("power", constant(2), constant(3)) is None
    assert constant(float("nan")) is None
    assert constant(float("inf")) is None
    assert of_values(np.array([1.0, np.nan], np.float32)) is None
    assert of_values(np.array([True])) is None


def test_arrays() -> None:
    assert of_values(np.array([[4, -12], [8, 0]], np.int32)) == Interval(-12, 8, True, 4)
    assert of_values(np.array([1.5, -2.0], np.float32)) == Interval(-2.0, 1.5, True, 0)
    assert of_values(np.zeros(3, np.int32)).rounds is False  # type: ignore[union-attr]


def test_limits() -> None:
    """A value above a limit is certain only if an end occurs, or if all are above."""
    assert Interval(0, 90, True, 0).surely_above(89)
    assert not Interval(0, 90, False, 0).surely_above(89)
    assert Interval(90, 95, False, 0).surely_above(89)
    assert not progression(0, [(1, (1 << 24) + 1)]).rounds
    assert progression(0, [(1, (1 << 24) + 2)]).rounds
