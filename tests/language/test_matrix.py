"""matmul and transpose against NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki.language as nl
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, refused, same, wide, words
from tests.together import together


@together("target", TARGETS)
@together("transposed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.float16, ml_dtypes.float8_e5m2])
def test_matmul(dtype: Any, transposed: bool, target: str) -> None:
    x, y = normal((40, 100), dtype), normal((100, 300), dtype, seed=1)
    given = np.ascontiguousarray(x.T) if transposed else x

    def function(a: Any, b: Any) -> Any:
        product = nl.matmul(a, b, transpose_x=transposed)
        assert (product.buffer, product.dtype) == (nl.psum, nl.float32)
        return product

    got = on_tiles(function, given, y, target=target)
    np.testing.assert_allclose(got, wide(x) @ wide(y), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
def test_matmul_of_the_largest_tiles(transposed: bool) -> None:
    x, y = normal((128, 128)), normal((128, 512), seed=1)
    left = wide(x).T if transposed else wide(x)
    got = on_tiles(lambda a, b: nl.matmul(a, b, transpose_x=transposed), x, y)
    np.testing.assert_allclose(got, left @ wide(y), rtol=1e-4, atol=1e-4)


def test_matmul_from_psum_and_of_mixed_dtypes() -> None:
    x, y = normal((40, 100)), normal((100, 30), BFLOAT16, seed=1)
    got = on_tiles(nl.matmul, x, y, psum=True)
    np.testing.assert_allclose(got, wide(x) @ wide(y), rtol=1e-5, atol=1e-5)


def test_matmul_beyond_the_limits_is_refused() -> None:
    assert refused(nl.matmul, normal((64, 128)), normal((128, 513))).code == "nc_matmul.moving-size"


def test_contraction_that_does_not_fit_names_the_remedy() -> None:
    error = refused(nl.matmul, normal((100, 40)), normal((100, 30)))
    assert error.code == "language.contraction" and error.fix == "pass transpose_x=True"


@pytest.mark.parametrize("target", TARGETS)
@together("dtype", [np.float32, BFLOAT16, np.float16, np.int32, np.int16, np.uint8])
@together("shape", [(128, 128), (40, 100), (1, 7), (33, 1)])
def test_transpose(shape: tuple[int, int], dtype: Any, target: str) -> None:
    x = normal(shape, dtype, 90)
    got = on_tiles(nl.transpose, np.abs(x) if np.dtype(dtype).kind == "u" else x, target=target)
    assert got.dtype == np.dtype(dtype)
    same(got, np.abs(x).T if np.dtype(dtype).kind == "u" else x.T)


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_transpose_moves_bits(target: str) -> None:
    x = words((64, 64), np.uint32).view(np.float32)
    assert on_tiles(nl.transpose, x, target=target).tobytes() == np.ascontiguousarray(x.T).tobytes()


def test_transpose_of_psum_to_another_dtype() -> None:
    x = normal((64, 30))

    def function(tile: Any) -> Any:
        result = nl.transpose(tile, dtype=nl.bfloat16)
        assert (result.buffer, result.dtype) == (nl.psum, nl.bfloat16)
        return result

    same(on_tiles(function, x, psum=True), x.T.astype(BFLOAT16))


def test_transpose_of_more_columns_than_partitions_is_refused() -> None:
    assert refused(nl.transpose, normal((8, 129))).code == "tensor.partitions"
