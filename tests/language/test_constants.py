"""shared_identity_matrix and shared_constant: their values, and that they are made once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, same
from tests.support import both
from tests.together import together

NOTHING = np.zeros((1, 1), np.float32)


@pytest.mark.parametrize("target", TARGETS)
@together("dtype", [nl.uint8, nl.float32, nl.bfloat16, nl.float8_e4m3, nl.int32])
@together("n", [1, 40, 128])
def test_identity(n: int, dtype: Any, target: str) -> None:
    got = on_tiles(lambda _: nl.shared_identity_matrix(n, dtype), NOTHING, target=target)
    assert got.dtype == dtype.numpy
    same(got, np.eye(n))


def test_identity_is_uint8_and_made_once_per_size_and_dtype() -> None:
    def function(_: Any) -> Any:
        first, second = nl.shared_identity_matrix(32), nl.shared_identity_matrix(n=32, dtype=nl.uint8)
        other = nl.shared_identity_matrix(32, nl.float32)
        assert first.dtype == nl.uint8
        assert first.storage is second.storage is not other.storage
        return first

    same(on_tiles(function, NOTHING), np.eye(32))


def test_identity_into_a_tile() -> None:
    def function(tile: Any) -> Any:
        assert nl.shared_identity_matrix(8, nl.float32, dst=tile) is tile
        return tile

    same(on_tiles(function, np.ones((8, 8), np.float32)), np.eye(8))


CONSTANTS = [
    np.triu(np.ones((20, 33), np.float16)),
    normal((3, 4, 5)),
    normal((7,), BFLOAT16),
    np.arange(-50, 50, dtype=np.int8).reshape(10, 10).T,
    np.array([[np.nan, -0.0, np.inf, 1e-45]], np.float32),
    np.array([2**32 - 1, 0, 5], np.uint32),
    np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2),
    np.arange(255, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu),
    np.tile(np.eye(128, dtype=np.float32), (1, 2)),
    np.array(3.5, np.float32),
]


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda c: f"{c.dtype}{list(c.shape)}")
def test_constant_has_the_bits_of_the_array(constant: np.ndarray) -> None:
    def kernel(_: Any) -> Any:
        tensor = nl.shared_constant(constant)
        assert tensor.buffer is nl.shared_hbm
        return tensor

    got = both(kernel, NOTHING)
    assert got.dtype == constant.dtype and got.shape == (constant.shape or (1,))
    assert got.tobytes() == np.ascontiguousarray(constant).tobytes()


def test_constant_of_a_file(tmp_path: Path) -> None:
    values = normal((6, 5))
    np.save(tmp_path / "values.npy", values)
    same(both(lambda _: nl.shared_constant(str(tmp_path / "values.npy")), NOTHING), values)
    (tmp_path / "broken.npy").write_bytes(b"no array")
    with pytest.raises(NkiError) as caught:
        nki.simulate(lambda _: nl.shared_constant(tmp_path / "broken.npy"))(NOTHING)
    assert caught.value.code == "constant.file"


def test_constants_are_made_once_and_one_fill_per_run() -> None:
    values = np.tile(np.repeat(np.float32([0, 1, 0, 2]), 50), 3)

    def kernel(_: Any) -> Any:
        first, second = nl.shared_constant(values), nl.shared_constant(values.copy())
        assert first.storage is second.storage
        assert nl.shared_constant(values.reshape(2, -1)).storage is not first.storage
        return first

    made = nki.jit(kernel)
    same(made(NOTHING), values)
    issued = Counter(item.instruction.name for item in made.report.programs[0].body.walk())
    assert "memset" not in issued


def test_constant_on_two_cores() -> None:
    values = np.float32([1, 2, 3, 3])

    def kernel(_: Any) -> Any:
        out = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.load(nl.shared_constant(values).reshape((1, 4))))
        nisa.core_barrier(out, (0, 1))
        return out

    same(both(kernel, NOTHING, lnc=2), np.stack([values, values]))


def test_dense_constants_are_part_of_the_program() -> None:
    dense = np.random.default_rng(3).integers(0, 2**31, (64, 4096)).astype(np.int32)

    def kernel(_: Any) -> Any:
        out = nl.ndarray(dense.shape, nl.int32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(nl.shared_constant(dense)))
        return out

    same(both(kernel, NOTHING), dense)
    made = nki.jit(kernel)
    made(NOTHING)
    (constant,) = [buffer for buffer in made.report.programs[0].body.buffers if buffer.role == "constant"]
    assert constant.data == dense.tobytes()
