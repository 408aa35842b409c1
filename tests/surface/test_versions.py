"""What `api=` and NKI_API_VERSION select, and what they do not: the tables of docs/api-versions.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import LaunchError, NkiError
from nki.options import API_VERSIONS
from tests.support import both, environment

LARGE = np.array([[2**24 + 1, -(2**31), 5]], np.int32)
ROUNDED = np.array([[2**24, -(2**31), 5]], np.int32)


def copied(a: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.load(a)))
    return out


@pytest.mark.parametrize("version", API_VERSIONS)
def test_copy_is_exact_from_0_6(version: str) -> None:
    wanted = LARGE if version >= "0.6" else ROUNDED
    np.testing.assert_array_equal(both(nki.jit(copied, api=version), LARGE), wanted)


def test_decorator_comes_before_the_environment() -> None:
    with environment(NKI_API_VERSION="0.3"):
        np.testing.assert_array_equal(both(copied, LARGE), ROUNDED)
        np.testing.assert_array_equal(both(nki.jit(copied, api="0.7"), LARGE), LARGE)


def test_a_called_kernel_keeps_its_version() -> None:
    old = nki.jit(copied, api="0.4")

    @nki.jit
    def outer(a: Any) -> Any:
        return old(a), copied(a), nki.jit(copied)(a)

    for got, wanted in zip(both(outer, LARGE), (ROUNDED, LARGE, LARGE), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_version_comes_back_after_an_error() -> None:
    @nki.jit(api="0.3")
    def fails(a: Any) -> Any:
        raise KeyError("expected")

    @nki.jit
    def outer(a: Any) -> Any:
        try:
            fails(a)
        except KeyError:
            return copied(a)

    np.testing.assert_array_equal(nki.simulate(outer)(LARGE), LARGE)


def test_unknown_version_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"jit\.api"):
        nki.jit(copied, api="0.2")


@pytest.mark.parametrize("version", API_VERSIONS)
def test_casts_to_integers_round_and_saturate_in_every_version(version: str) -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, nl.int8, buffer=nl.shared_hbm)
        tile = nl.ndarray(a.shape, nl.int8, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=nl.load(a))
        nl.store(out, tile)
        return out

    result = both(nki.jit(kernel, api=version), np.array([[2.5, 3.5, 400.0, -400.0]], np.float32))
    np.testing.assert_array_equal(result, np.array([[2, 4, 127, -128]], np.int8))


@pytest.mark.parametrize("version", API_VERSIONS)
def test_memset_of_integers_takes_ints_in_every_version(version: str) -> None:
    def kernel(a: Any) -> Any:
        nisa.memset(dst=nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf), value=2.0)
        return a

    with pytest.raises(NkiError, match=r"memset\.value-kind"):
        nki.jit(kernel, api=version)(LARGE)


@pytest.mark.parametrize("version", API_VERSIONS)
def test_dma_transpose_needs_the_rank_in_every_version(version: str) -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((128, 1, 16), a.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(dst=tile, src=a)
        return a

    with environment(NEURON_PLATFORM_TARGET_OVERRIDE="trn2"), pytest.raises(NkiError, match=r"dma_transpose\."):
        nki.jit(kernel, api=version)(np.zeros((16, 128), np.float16))


@pytest.mark.parametrize("version", API_VERSIONS)
def test_the_scale_of_quantize_mx_doubles_in_0_5(version: str) -> None:
    """Blocks of ones: the sample algorithm gives 2**(0 - 8), byte 119; since 0.5 it is twice that."""

    def kernel(a: Any) -> Any:
        packed = nl.ndarray((32, 8), nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scales = nl.ndarray((32, 8), nl.uint8, buffer=nl.sbuf)
        out = nl.ndarray((4, 8), nl.uint8, buffer=nl.shared_hbm)
        nisa.quantize_mx(dst=packed, src=nl.load(a), dst_scale=scales)
        nl.store(out, scales[0:4, :])
        return out

    ones = np.ones((32, 32), nl.bfloat16.numpy)
    scales = both(nki.jit(kernel, api=version), ones, target="trn3")
    assert set(np.unique(scales)) == {120 if version >= "0.5" else 119}


def _patterns(a: Any) -> Any:
    """Patterns that count in a slice with steps, in a slice of blocks, in one of another dtype, and past its start."""
    tile = nl.load(a)
    even, last = tile[:, 2:18:2], tile.reshape((8, 4, 6))[:, 2:4]
    halves = tile[:, 4:12].ap([[16, 8], [1, 16]], dtype=nl.bfloat16)
    views = [
        even.ap([[8, 8], [3, 2], [1, 2]]),
        even.ap([[8, 4], [-1, 8]], offset=3 * 8 + 7),
        last.ap([[12, 8], [1, 12]]),
    ]
    outs = [nl.ndarray(view.shape, view.dtype, buffer=nl.shared_hbm) for view in (*views, halves)]
    for out, view in zip(outs, (*views, halves), strict=True):
        nisa.dma_copy(dst=out, src=view)
    return tuple(outs)


@pytest.mark.parametrize("version", API_VERSIONS)
def test_patterns_count_in_views_before_0_5(version: str) -> None:
    a = np.arange(8 * 24, dtype=np.float32).reshape(8, 24)
    kernel = nki.jit(_patterns, api=version)
    if version >= "0.5":
        with pytest.raises(NkiError, match=r"access\.partition-stride"):
            kernel(a)
        return
    blocks, backwards, last, halves = both(kernel, a)
    even = a[:, 2:18:2]
    np.testing.assert_array_equal(blocks, np.stack([even[:, 0:2], even[:, 3:5]], axis=1))
    np.testing.assert_array_equal(backwards, even[3:7, ::-1])
    np.testing.assert_array_equal(last, a[:, 12:])
    np.testing.assert_array_equal(halves.view(np.uint16), np.ascontiguousarray(a[:, 4:12]).view(np.uint16))


@pytest.mark.parametrize(
    ("view", "pairs", "offset"),
    [
        ((slice(None), slice(0, 3), slice(0, 3)), [[9, 8], [1, 9]], 0),  # no equal steps
        ((slice(None), slice(0, 2)), [[12, 8], [1, 12]], 1),  # into the next partition
        ((slice(None), slice(0, 2)), [[12, 8], [-1, 2]], 0),  # into the one before
        ((slice(None), slice(0, 2)), [[11, 8], [1, 2]], 0),  # neither stride
        ((slice(0, 4), slice(0, 2)), [[12, 4], [1, 12]], 12),  # past the view's partitions
        ((slice(4, 8), slice(0, 2)), [[12, 4], [1, 12]], -12),  # before them
    ],
)
def test_other_patterns_on_views_are_refused_in_every_version(view: Any, pairs: Any, offset: int) -> None:
    def kernel(a: Any) -> Any:
        nisa.memset(nl.load(a).reshape((8, 4, 6))[view].ap(pairs, offset=offset), 0)
        return a

    with pytest.raises(NkiError, match=r"access\.partition-stride"):
        nki.jit(kernel, api="0.3")(np.zeros((8, 24), np.float32))


def test_the_first_stride_of_one_partition_of_the_tile_means_the_tile_in_every_version() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((8, 12), a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=nl.load(a)[:, 6:18].ap([[24, 8], [1, 12]], offset=6))
        return out

    a = np.arange(8 * 24, dtype=np.float32).reshape(8, 24)
    for version in API_VERSIONS:
        np.testing.assert_array_equal(both(nki.jit(kernel, api=version), a), a[:, 12:])
