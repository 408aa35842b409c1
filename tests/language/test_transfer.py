"""load, store, copy, load_transpose2d, gather_flattened and device_print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.language.support import BFLOAT16, TARGETS, normal, on_tiles, refused, same, words
from tests.support import both, environment, rejection
from tests.together import together


@together("shape", [(7,), (128,), (5, 1), (128, 9), (3, 4, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.int8])
def test_load_and_store_of_any_rank(shape: tuple[int, ...], dtype: Any) -> None:
    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        assert tile.buffer is nl.sbuf and tile.shape == (shape if len(shape) > 1 else (*shape, 1))
        out = nl.ndarray(shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    x = normal(shape, dtype, 20)
    same(both(kernel, x), x)


def test_load_casts() -> None:
    x = normal((16, 8), scale=40)
    got = on_tiles(nl.copy, x)
    same(got, x)

    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, nl.int16, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a, dtype=nl.bfloat16))
        return out

    same(both(kernel, x), np.rint(x.astype(BFLOAT16).astype(np.float32)).astype(np.int16))


def test_store_of_views_and_psum() -> None:
    def kernel(a: Any) -> Any:
        out = nl.zeros((2, 16, 8), nl.float32, buffer=nl.shared_hbm)
        psum = nl.ndarray((16, 8), nl.float32, buffer=nl.psum)
        nisa.tensor_copy(dst=psum, src=nl.load(a))
        nl.store(out[1], psum)
        return out

    x = normal((16, 8))
    same(both(kernel, x), np.stack([np.zeros_like(x), x]))


def test_more_than_the_partitions_is_refused_by_the_allocation() -> None:
    error = rejection(lambda a: nl.load(a), normal((129, 4)))  # noqa: PLW0108
    assert error.code == "tensor.partitions"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("psum", [False, True])
def test_copy_is_a_new_tile_with_the_same_bits(psum: bool, target: str) -> None:
    x = words((32, 16), np.int32)

    def function(tile: Any) -> Any:
        copied = nl.copy(tile)
        assert copied.buffer is nl.sbuf
        nisa.memset(dst=tile, value=0)
        return copied

    same(on_tiles(function, x, psum=psum, target=target), x)


def test_copy_casts() -> None:
    x = normal((32, 16), scale=100)
    same(on_tiles(lambda t: nl.copy(t, dtype=nl.int8), x), np.clip(np.rint(x), -128, 127).astype(np.int8))


def test_copy_of_older_versions_passes_through_float32() -> None:
    x = np.array([[2**24 + 1, 2**31 - 1, -5]], np.int32)
    with environment(NKI_API_VERSION="0.5"):
        same(on_tiles(nl.copy, x), [[2**24, 2**31 - 1, -5]])
        assert refused(nl.copy, x, psum=True).code == "language.copy-region"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.uint8, np.int32], ids=lambda d: np.dtype(d).name)
def test_load_transpose2d(dtype: Any, target: str) -> None:
    x = words((200, 96), f"u{np.dtype(dtype).itemsize}").view(dtype)

    def kernel(a: Any) -> Any:
        tile = nl.load_transpose2d(a)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    assert both(kernel, x, target=target).tobytes() == np.ascontiguousarray(x.T).tobytes()


def test_load_transpose2d_casts_and_wants_a_matrix() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.load_transpose2d(a, dtype=nl.bfloat16)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    x = normal((20, 30))
    same(both(kernel, x), x.T.astype(BFLOAT16))
    assert rejection(kernel, normal((2, 3, 4))).code == "language.rank"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.uint32, np.int32])
@pytest.mark.parametrize("psum", [False, True])
def test_gather(psum: bool, dtype: Any, target: str) -> None:
    data = normal((64, 5, 8))
    indices = np.random.default_rng(1).integers(0, 40, (64, 30)).astype(dtype)
    got = on_tiles(nl.gather_flattened, data, indices, target=target, psum=psum)
    same(got, np.take_along_axis(data.reshape(64, 40), indices.astype(np.int64), axis=1))


def test_gather_casts() -> None:
    data, indices = normal((16, 8)), np.full((16, 4), 3, np.uint32)
    got = on_tiles(lambda d, i: nl.gather_flattened(d, i, 0, nl.bfloat16), data, indices)
    same(got, np.repeat(data[:, 3:4], 4, axis=1).astype(BFLOAT16))


def test_device_print(capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(a: Any) -> Any:
        nl.device_print("values: ", nl.load(a))
        nl.device_print("input: ", a)
        return a

    x = np.array([[1.5, 2.5]], np.float32)
    for run in (nki.simulate(kernel), nki.jit(kernel)):
        run(x)
        printed = capsys.readouterr().out
        assert "values: [[1.5 2.5]]" in printed and "input: [[1.5 2.5]]" in printed
