"""tensor_scalar over shapes, dtypes, operands and special values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.spec.engine import engine
from tests.isa.elementwise_cases import (
    APPROXIMATE,
    BITVEC,
    EXACT,
    FLOATS,
    SAME_SIZE,
    SEEDS,
    SHAPES,
    SMALL_INTEGERS,
    TORCH,
    UNARY_WITH_TORCH,
    WIDE_INTEGERS,
    WITH_TORCH,
    agrees,
    counts,
    floats,
    integers,
    nearest,
    on_bits,
    saturated,
    tensor,
)
from tests.isa.elementwise_reference import wrapped
from tests.isa.tiles import empty, load, store
from tests.support import both

COLUMN = "column"


def scaled(steps: Any, dtype: Any, place: Any = nl.sbuf, **options: Any) -> Any:
    """A kernel with (op, operand, reverse) twice; `COLUMN` stands for a column of the second argument."""

    def kernel(a: Any, columns: Any) -> Any:
        table, result = load(columns), empty((a.shape[0], math.prod(a.shape[1:])), dtype, place)
        values = []
        for i, (op, operand, reverse) in enumerate(steps):
            values += [op, table[:, i : i + 1] if isinstance(operand, str) else operand, reverse]
        nisa.tensor_scalar(result, load(a), *values, **options)
        return store(result.reshape(a.shape))

    return kernel


NUMBERS = st.sampled_from([0, 1, -3, 2.5, -0.0, 1e-40, 3.4028235e38, 1e39, float("inf"), float("nan"), 2**31, True])
OPERANDS = st.one_of(st.just(COLUMN), NUMBERS)
BINARY_STEP = st.tuples(st.sampled_from(list(WITH_TORCH)), OPERANDS, st.booleans())
UNARY_STEP = st.tuples(st.sampled_from(list(UNARY_WITH_TORCH)), st.sampled_from([None, 0, 0.0]), st.booleans())
STEP = st.one_of(BINARY_STEP, UNARY_STEP)


def with_torch(step: Any, data: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    op, operand, reverse = step
    if op in UNARY_WITH_TORCH:
        return UNARY_WITH_TORCH[op](data)
    with np.errstate(over="ignore"):
        other = column.expand_as(data) if operand == COLUMN else torch.full_like(data, float(np.float32(operand)))
    return WITH_TORCH[op](*((other, data) if reverse else (data, other))).to(torch.float32)


@given(STEP, SHAPES, st.sampled_from(FLOATS), SEEDS, st.sampled_from([nl.sbuf, nl.psum]))
def test_one_step_agrees_with_torch(step: Any, shape: Any, dtype: Any, seed: int, place: Any) -> None:
    a, columns = floats(seed, shape, dtype), floats(seed + 1, (shape[0], 2), np.float32)
    into = list(TORCH)[seed % 3]
    got = both(scaled([step], into, place), a, columns, target="trn3")
    column = tensor(columns[:, 0]).reshape(-1, 1, 1)
    agrees(got, with_torch(step, tensor(a), column), into, step[0] in APPROXIMATE)


EXACT_STEP = st.tuples(st.sampled_from([op for op in WITH_TORCH if op not in APPROXIMATE]), OPERANDS, st.booleans())


@given(EXACT_STEP, EXACT_STEP, SHAPES, st.sampled_from(FLOATS), SEEDS, st.sampled_from(["vector", "scalar"]))
def test_two_steps_round_to_float32_in_between(
    first: Any, second: Any, shape: Any, dtype: Any, seed: int, runs_on: str
) -> None:
    """Zeros of either sign may leave the first step, which only a division by them would show."""
    a, columns = floats(seed, shape, dtype), floats(seed + 1, (shape[0], 2), np.float32)
    got = both(scaled([first, second], np.float32, engine=engine[runs_on]), a, columns, target="trn3")
    step = with_torch(first, tensor(a), tensor(columns[:, 0]).reshape(-1, 1, 1))
    wanted = with_torch(second, step, tensor(columns[:, 1]).reshape(-1, 1, 1))
    agrees(got, wanted, np.float32, False)


WHOLE = st.integers(-300, 300)


@pytest.mark.filterwarnings("ignore:.*lint.integer-precision:nki.report.NkiWarning")
@given(
    st.sampled_from(list(EXACT)),
    st.sampled_from(list(EXACT)),
    st.tuples(WHOLE, st.booleans(), WHOLE, st.booleans()),
    SHAPES,
    st.sampled_from([*SMALL_INTEGERS, *WIDE_INTEGERS]),
    st.sampled_from([*SMALL_INTEGERS, *WIDE_INTEGERS]),
    SEEDS,
)
def test_integers_pass_through_float32_and_saturate(
    op0: Any, op1: Any, numbers: Any, shape: Any, dtype: Any, into: Any, seed: int
) -> None:
    a = integers(seed, shape, dtype)
    operand0, reverse0, operand1, reverse1 = numbers

    def calculate(op: Any, value: Fraction, operand: int, reverse: bool) -> Fraction:
        pair = (Fraction(operand), value) if reverse else (value, Fraction(operand))
        return nearest(Fraction(EXACT[op](*pair)))

    steps = [(op0, operand0, reverse0), (op1, operand1, reverse1)]
    got = both(scaled(steps, into), a, np.zeros((shape[0], 2), np.float32))
    wanted = []
    for n in a.ravel().tolist():
        value = calculate(op0, nearest(Fraction(n)), operand0, reverse0)
        wanted.append(saturated(calculate(op1, value, operand1, reverse1), into))
    assert got.ravel().tolist() == wanted


@given(
    st.lists(st.tuples(st.sampled_from([*BITVEC, "invert"]), st.booleans(), st.booleans()), min_size=1, max_size=2),
    SHAPES,
    st.sampled_from(SAME_SIZE),
    st.tuples(*[st.integers(0, 1)] * 3),
    SEEDS,
)
def test_two_bitvec_steps(steps: Any, shape: Any, kinds: Any, signs: Any, seed: int) -> None:
    dtype, into, other = (kinds[sign] for sign in signs)
    width = np.iinfo(dtype).bits
    a = integers(seed, shape, dtype)
    columns = (counts if seed % 2 else integers)(seed + 1, (shape[0], 2), other)
    r = np.random.default_rng(seed + 2)
    arguments, wanted = [], a.ravel().tolist()
    for i, (name, is_column, reverse) in enumerate(steps):
        operand: Any = (
            COLUMN if is_column else int(r.choice([r.integers(0, width + 2), -(2 ** (width - 1)), 2**width - 1]))
        )
        operand = None if name == "invert" else operand
        arguments.append((getattr(nl, name), operand, reverse))
        rows = [int(n) for n in columns[:, i]] if operand == COLUMN else [operand or 0] * shape[0]
        others = [n for n in rows for _ in range(shape[1] * shape[2])]
        swap = reverse and name != "invert"
        pairs = zip(others, wanted, strict=True) if swap else zip(wanted, others, strict=True)
        wanted = [on_bits(name, x, y, width) for x, y in pairs]
    got = both(scaled(arguments, into), a, columns)
    assert got.ravel().tolist() == [wrapped(n, into) for n in wanted]
