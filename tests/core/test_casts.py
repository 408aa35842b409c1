"""The tables behind casts, against casts of one element at a time."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from nki.core import dtypes
from nki.core.dtypes import DType
from nki.core.numerics import to_f32
from tests.together import together

BYTES = [dtypes.float8_e4m3, dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.float8_e8m0fnu]
WIDTHS = [1, 2, 7, 1024, 1025, 4096]


def one_by_one(storage: np.ndarray) -> list[float]:
    return [float(value) for value in storage.reshape(-1)]


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@together("width", WIDTHS)
def test_every_code_beside_every_other(dtype: DType, width: int) -> None:
    codes = np.random.default_rng(width).integers(0, 256, (3, width), np.uint8).view(dtype.numpy)
    got = to_f32(codes, dtype)
    assert got.dtype == np.float32
    assert got.shape == codes.shape
    assert np.array_equal(got.reshape(-1), np.array(one_by_one(codes), np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", BYTES, ids=str)
def test_all_pairs_of_codes(dtype: DType) -> None:
    first, second = np.divmod(np.arange(1 << 16), 256)
    codes = np.stack([first, second], axis=1).astype(np.uint8).reshape(256, -1).view(dtype.numpy)
    table = np.array([float(v) for v in np.arange(256, dtype=np.uint8).view(dtype.numpy)], np.float32)
    want = table[codes.view(np.uint8)]
    assert np.array_equal(to_f32(codes, dtype), want, equal_nan=True)
    assert np.array_equal(np.signbit(to_f32(codes, dtype)), np.signbit(want))


@pytest.mark.parametrize("dtype", [*BYTES, dtypes.float16, dtypes.bfloat16], ids=str)
def test_strided_storage_has_the_same_values(dtype: DType) -> None:
    bits = np.random.default_rng(3).integers(0, 256, (64, 256 * dtype.itemsize), np.uint8)
    storage = bits.view(dtype.numpy)
    for part in (storage[:, ::2], storage[:, 1:], storage[::-1], storage.T, storage[:, 100:101]):
        assert np.array_equal(to_f32(part, dtype), to_f32(part.copy(), dtype), equal_nan=True)


def test_all_float16_codes() -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    got = to_f32(codes.view(np.float16), dtypes.float16)
    want = [struct.unpack("e", struct.pack("H", code))[0] for code in codes.tolist()]
    assert np.array_equal(got, np.array(want, np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(got), codes >= 1 << 15)


def test_all_bfloat16_codes() -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    got = to_f32(codes.view(dtypes.bfloat16.numpy), dtypes.bfloat16)
    want = [struct.unpack("f", struct.pack("I", code << 16))[0] for code in codes.tolist()]
    assert np.array_equal(got, np.array(want, np.float32), equal_nan=True)
