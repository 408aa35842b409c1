"""Operators with two operands against NumPy: values, dtypes, broadcasting, regions, targets."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import nki.language as nl
from nki.core.dtypes import DType
from nki.language.combine import promoted
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, refused, same, wide, words
from tests.together import together

ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")


def few(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Small whole numbers, so that many are equal and some are 0."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_float32(name: str, target: str) -> None:
    a, b = normal((64, 40), scale=50), normal((64, 40), seed=1)
    same(on_tiles(getattr(nl, name), a, b, target=target), getattr(np, name)(a, b))


@pytest.mark.parametrize("name", [*COMPARISONS, *LOGICAL])
def test_comparisons_and_logic_give_one_or_zero(name: str) -> None:
    a, b = few((32, 64), 0), few((32, 64), 1)
    got = on_tiles(getattr(nl, name), a, b)
    assert got.dtype == np.float32
    same(got, getattr(np, name)(a, b))


def test_comparison_to_bytes() -> None:
    a, b = few((32, 64), 0), few((32, 64), 1)
    got = on_tiles(lambda x, y: nl.less(x, y, dtype=nl.uint8), a, b)
    assert got.dtype == np.uint8
    same(got, a < b)


@pytest.mark.parametrize("name", [*ARITHMETIC, "less", "greater_equal"])
@pytest.mark.parametrize("reverse", [False, True])
def test_number_on_either_side(name: str, reverse: bool) -> None:
    a = normal((48, 30), scale=3)
    function, reference = getattr(nl, name), getattr(np, name)
    if reverse:
        same(on_tiles(lambda x: function(1.25, x), a), reference(np.float32(1.25), a))
    else:
        same(on_tiles(lambda x: function(x, 1.25), a), reference(a, np.float32(1.25)))


@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16, np.int8, np.uint8, np.int16])
def test_narrow_dtypes_stay_and_round_once(dtype: Any) -> None:
    a, b = normal((32, 32), dtype, 9), normal((32, 32), dtype, 3, seed=1)
    if np.dtype(dtype).kind == "u":
        a, b = words((32, 32), dtype) // 4, words((32, 32), dtype, 1) // 4
    got = on_tiles(nl.add, a, b)
    assert got.dtype == np.dtype(dtype)
    same(got, (a.astype(np.float32) + b.astype(np.float32)).astype(dtype))


BROADCASTS = [
    ((64, 40), (64, 1)),
    ((64, 1), (64, 40)),
    ((64, 40), (1, 40)),
    ((1, 40), (64, 40)),
    ((64, 1), (1, 40)),
    ((100, 8), (1, 1)),
    ((128, 4, 6), (128, 1, 6)),
    ((128, 4, 6), (1, 4, 1)),
    ((128, 4, 6), (128, 6)),
    ((1, 6), (128, 4, 6)),
]


@pytest.mark.parametrize(("first", "second"), BROADCASTS, ids=str)
@together("dtype", [np.float32, BFLOAT16, np.int32])
def test_sizes_of_one_repeat(first: tuple[int, ...], second: tuple[int, ...], dtype: Any) -> None:
    a, b = normal(first, dtype, 90), normal(second, dtype, 9, seed=1)
    got = on_tiles(nl.subtract, a, b)
    same(got, (_spread(a, first, second) - _spread(b, second, first)).astype(dtype))


def _spread(a: np.ndarray, own: tuple[int, ...], other: tuple[int, ...]) -> np.ndarray:
    """Partitions to partitions, free dimensions aligned at the end."""
    rank = max(len(own), len(other))
    return a.reshape(own[0], *[1] * (rank - len(own)), *own[1:]).astype(np.float32)


@together("target", TARGETS)
@together("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum", "minimum", "equal", "less"])
def test_32_bit_integers_are_exact(name: str, dtype: Any, target: str) -> None:
    a, b = words((40, 24), dtype), words((40, 24), dtype, 1)
    b[:, ::3] = a[:, ::3] ^ 1  # neighbours, which float32 cannot tell apart
    same(on_tiles(getattr(nl, name), a, b, target=target), getattr(np, name)(a, b))


def test_integer_and_number_are_exact() -> None:
    a = words((16, 8), np.int32)
    same(on_tiles(lambda x: nl.add(x, 7), a), a + np.int32(7))
    same(on_tiles(lambda x: nl.subtract(2**30 + 1, x), a), np.int32(2**30 + 1) - a)
    same(on_tiles(lambda x: nl.multiply(x, 4.0), a), a * np.int32(4))


def test_wide_comparison_to_bytes_is_exact() -> None:
    a = words((16, 8), np.int32)
    same(on_tiles(lambda x, y: nl.equal(x, y, dtype=nl.uint8), a, a ^ 1), np.zeros_like(a))


def test_narrow_and_wide_integers_are_exact() -> None:
    a, b = words((16, 8), np.int32), words((16, 8), np.int16)
    same(on_tiles(nl.add, a, b), a + b)


def test_integers_in_psum_are_exact() -> None:
    a, b = words((16, 8), np.int32), words((16, 8), np.int32, 1)
    same(on_tiles(nl.add, a, b, psum=True), a + b)


def test_fraction_and_integer_tile_round_to_the_tile() -> None:
    a = np.arange(-8, 8, dtype=np.int32).reshape(1, 16)
    same(on_tiles(lambda x: nl.multiply(x, 0.5), a), np.rint(a * 0.5).astype(np.int32))
    same(on_tiles(lambda x: nl.multiply(x, 0.5, dtype=nl.float32), a), a * 0.5)


@pytest.mark.parametrize("target", TARGETS)
def test_operands_in_psum(target: str) -> None:
    a, b = normal((64, 40)), normal((64, 40), seed=1)
    same(on_tiles(nl.multiply, a, b, target=target, psum=True), a * b)


@together("target", TARGETS)
@together("dtype", [np.int8, np.uint16, np.int32, np.uint32])
@pytest.mark.parametrize("name", BITWISE)
def test_bitwise(name: str, dtype: Any, target: str) -> None:
    a, b = words((32, 20), dtype), words((32, 20), dtype, 1)
    same(on_tiles(getattr(nl, name), a, b, target=target), getattr(np, name)(a, b))


@pytest.mark.parametrize("name", BITWISE)
def test_bitwise_with_number(name: str) -> None:
    a = words((32, 20), np.int32)
    same(on_tiles(lambda x: getattr(nl, name)(x, 0x0FF0), a), getattr(np, name)(a, np.int32(0x0FF0)))


def test_shifts() -> None:
    a, count = words((32, 20), np.uint32), np.random.default_rng(2).integers(0, 32, (32, 20)).astype(np.uint32)
    same(on_tiles(nl.left_shift, a, count), np.left_shift(a, count))
    same(on_tiles(nl.right_shift, a, count), np.right_shift(a, count))
    same(on_tiles(lambda x: nl.left_shift(1, x), count), np.left_shift(np.uint32(1), count))
    same(on_tiles(lambda x: nl.right_shift(x, 9), a), np.right_shift(a, np.uint32(9)))


def test_right_shift_is_logical() -> None:
    a = np.array([[-1, -(2**31), 5]], np.int32)
    same(on_tiles(lambda x: nl.right_shift(x, 28), a), a.view(np.uint32) >> np.uint32(28))


def test_bitwise_result_in_another_dtype() -> None:
    a = words((8, 8), np.int32)
    same(on_tiles(lambda x: nl.bitwise_and(x, 0xFF, dtype=nl.uint8), a), a & 0xFF)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("psum", [False, True])
def test_power_of_tiles(target: str, psum: bool) -> None:
    a, b = np.abs(normal((32, 20))) + np.float32(0.1), normal((32, 20), seed=1)
    got = on_tiles(nl.power, a, b, target=target, psum=psum)
    np.testing.assert_allclose(got, wide(a) ** wide(b), rtol=1e-5)


def test_power_with_number() -> None:
    a = np.abs(normal((32, 20))) + np.float32(0.1)
    np.testing.assert_allclose(on_tiles(lambda x: nl.power(x, -0.5), a), wide(a) ** -0.5, rtol=1e-5)
    np.testing.assert_allclose(on_tiles(lambda x: nl.power(2, x), a), 2 ** wide(a), rtol=1e-5)


@pytest.mark.parametrize(("name", "chooses"), [("abs_max", operator.gt), ("abs_min", operator.lt)])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_magnitudes(name: str, chooses: Any, dtype: Any) -> None:
    a, b = few((32, 20), 0).astype(dtype), few((32, 20), 1).astype(dtype)
    same(on_tiles(getattr(nl, name), a, b, target="trn3"), np.where(chooses(np.abs(a), np.abs(b)), a, b))


def test_magnitudes_need_a_target_that_has_them() -> None:
    error = refused(nl.abs_max, few((8, 8), 0), few((8, 8), 1), target="trn2")
    assert error.code == "tensor_tensor.operator-target"


@pytest.mark.parametrize("target", TARGETS)
def test_divide_is_within_one_and_a_half_ulp(target: str) -> None:
    a, b = normal((64, 40), scale=100), normal((64, 40), seed=1)
    got = wide(on_tiles(nl.divide, a, b, target=target))
    exact = wide(a) / wide(b)
    assert np.abs(got - exact).max() <= 1.5 * np.spacing(np.abs(exact).astype(np.float32)).max()
    assert (np.abs(got - exact) <= 1.5 * np.spacing(np.abs(exact).astype(np.float32))).all()


def test_divide_with_numbers() -> None:
    a = normal((16, 16))
    np.testing.assert_allclose(on_tiles(lambda x: nl.divide(x, 3), a), a / 3, rtol=2e-7)
    np.testing.assert_allclose(on_tiles(lambda x: nl.divide(3, x), a), 3 / wide(a), rtol=2e-7)
    same(on_tiles(lambda x: nl.divide(x, -0.0), np.array([[1.0, -1.0, 0.0]], np.float32)), [[-np.inf, np.inf, np.nan]])


def test_divide_of_integers_rounds_in_the_result() -> None:
    a = np.array([[7, 9, -9]], np.int32)
    same(on_tiles(lambda x: nl.divide(x, 4), a), [[2, 2, -2]])


PROMOTIONS = [
    (nl.float32, nl.float32, nl.float32),
    (nl.bfloat16, nl.float32, nl.float32),
    (nl.bfloat16, nl.float16, nl.float32),
    (nl.bfloat16, nl.int32, nl.bfloat16),
    (nl.int8, nl.int32, nl.int32),
    (nl.uint8, nl.int8, nl.int16),
    (nl.uint16, nl.int16, nl.int32),
    (nl.uint32, nl.int32, nl.int32),
    (nl.bool_, nl.uint8, nl.uint8),
    (nl.bool_, nl.float16, nl.float16),
    (nl.float8_e4m3, nl.bfloat16, nl.bfloat16),
    (nl.float8_e4m3, nl.float8_e5m2, nl.float32),
    (nl.tfloat32, nl.float32, nl.float32),
]


@pytest.mark.parametrize(("a", "b", "wanted"), PROMOTIONS)
def test_dtype_of_two_dtypes(a: DType, b: DType, wanted: DType) -> None:
    assert promoted(a, b) == wanted
    assert promoted(b, a) == wanted
