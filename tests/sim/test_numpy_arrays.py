"""The array namespace: defined orders against plain loops, integers against Python's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki.core.dtypes import int32, uint32
from nki.isa import alu
from nki.sim.numpy_arrays import NumpyArrays
from nki.sim.products import matmul_blas, matmul_ordered
from nki.spec.operator import Operator
from tests.together import together

X = NumpyArrays()
F = np.float32


def lanes_and_tree(values: list[np.float32], combine: Any, identity: float) -> np.float32:
    """The documented order, one element at a time."""
    lanes = [F(identity)] * 16
    filled = [False] * 16
    for i, value in enumerate(values):
        lanes[i % 16] = combine(lanes[i % 16], value) if filled[i % 16] else value
        filled[i % 16] = True
    for half in (8, 4, 2, 1):
        lanes = [combine(lanes[i], lanes[i + half]) for i in range(half)]
    return lanes[0]


@together("count", [1, 2, 15, 16, 17, 31, 32, 33, 100, 513])
@together(
    "operator, combine",
    [(alu.ADD, lambda a, b: F(a + b)), (alu.MULTIPLY, lambda a, b: F(a * b)), (alu.MAXIMUM, max), (alu.MINIMUM, min)],
)
def test_reductions_have_the_documented_order(operator: Operator, combine: Any, count: int) -> None:
    a = np.random.default_rng(count).uniform(0.5, 1.5, (3, count)).astype(F)
    got = X.reduce(operator, a)
    assert got.shape == (3, 1)
    for row in range(3):
        assert got[row, 0] == lanes_and_tree(list(a[row]), combine, operator.identity or 0.0)


def test_the_order_does_not_depend_on_the_memory_layout() -> None:
    a = np.random.default_rng(5).standard_normal((64, 500)).astype(F)
    wide = np.zeros((64, 1000), F)
    wide[:, ::2] = a
    for other in (np.asfortranarray(a), wide[:, ::2], a[:, ::-1][:, ::-1]):
        assert X.reduce(alu.ADD, other).tobytes() == X.reduce(alu.ADD, a).tobytes()


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (128, 128, 512), (96, 64, 200), (128, 100, 1000)])
def test_both_matmuls_are_close_to_float64(shape: tuple[int, int, int]) -> None:
    k, m, n = shape
    r = np.random.default_rng(k)
    a, b = r.standard_normal((k, m)).astype(F), r.standard_normal((k, n)).astype(F)
    exact = a.T.astype(np.float64) @ b.astype(np.float64)
    bound = 2.0**-24 * (k + 2) * (np.abs(a.T).astype(np.float64) @ np.abs(b).astype(np.float64))
    for result in (matmul_blas(a, b), matmul_ordered(a, b)):
        assert result.dtype == F
        assert (np.abs(result - exact) <= bound).all()


def test_the_ordered_matmul_is_one_rounding_per_step() -> None:
    from fractions import Fraction

    r = np.random.default_rng(2)
    a, b = r.standard_normal((9, 2)).astype(F), r.standard_normal((9, 3)).astype(F)
    got = matmul_ordered(a, b)
    for m in range(2):
        for n in range(3):
            acc = F(0)
            for k in range(9):
                exact = Fraction(float(acc)) + Fraction(float(a[k, m])) * Fraction(float(b[k, n]))
                acc = F(float(exact))
            assert got[m, n] == acc


def test_blas_does_not_see_the_layout_or_the_padding() -> None:
    r = np.random.default_rng(3)
    a, b = r.standard_normal((64, 32)).astype(F), r.standard_normal((64, 48)).astype(F)
    wide = np.zeros((64, 480), F)
    wide[:, ::10] = b
    assert matmul_blas(a, b).tobytes() == matmul_blas(np.asfortranarray(a), wide[:, ::10]).tobytes()
    assert matmul_blas(a, b)[:, :5].tobytes() == matmul_blas(a, b[:, :5]).tobytes()
    b[0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        result = matmul_blas(a, b)
    assert np.isinf(result[:, 0]).all()
    assert np.isfinite(result[:, 1:]).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_integers_wrap_as_32_bit_numbers(a: int, b: int) -> None:
    for name, exact in (("add", a + b), ("subtract", a - b), ("multiply", a * b), ("maximum", max(a, b))):
        got = X.integer(name, np.array([[a]], np.int32), np.array([[b]], np.int32), int32)
        assert int(got[0, 0]) == (exact + 2**31) % 2**32 - 2**31
    u, v = a % 2**32, b % 2**32
    got = X.integer("add", np.array([[u]], np.uint32), np.array([[v]], np.uint32), uint32)
    assert int(got[0, 0]) == (u + v) % 2**32


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int32, np.uint32])
def test_shifts_are_logical_and_run_empty(dtype: Any) -> None:
    bits = np.dtype(dtype).itemsize * 8
    value = np.array([[-3 % 2**bits]], f"u{bits // 8}").view(dtype)
    for count in (0, 1, bits - 1, bits, bits + 5):
        left = X.bitwise("left_shift", value, dtype(min(count, 100)))
        right = X.bitwise("right_shift", value, dtype(min(count, 100)))
        raw = -3 % 2**bits
        assert int(left.view(f"u{bits // 8}")[0, 0]) == (raw << count) % 2**bits
        assert int(right.view(f"u{bits // 8}")[0, 0]) == raw >> count
