"""The launch grid, and the sizes of the hardware inside and outside of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.language.support import normal, same
from tests.support import both, environment

KIB = 1024
PUBLISHED = {
    "pmax": 128,
    "psum_bank_fmax": 512,
    "psum_bank_fmax_bytes": 2048,
    "psum_num_banks": 8,
    "gemm_stationary_fmax": 128,
    "gemm_moving_fmax": 512,
    "bn_stats_fmax": 512,
}
SBUF_KIB = {"trn1": 192, "trn2": 224, "trn3": 256}  # per partition: 24, 28 and 32 MiB over 128 partitions


def _grid(seen: list[Any]) -> Any:
    def kernel(a: Any) -> Any:
        seen.append((nl.program_id(), nl.program_id(0), nl.num_programs(), nl.num_programs((0,)), nl.program_ndim()))
        return a

    return kernel


def test_no_grid() -> None:
    seen: list[Any] = []
    both(_grid(seen), normal((4, 4)))
    assert set(seen) == {(0, 0, 1, 1, 0)}


def test_grid_of_one() -> None:
    seen: list[Any] = []
    both(_grid(seen), normal((4, 4)), lnc=1)
    assert set(seen) == {(0, 0, 1, 1, 1)}


def test_grid_of_two() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((2, 3), nl.int32, buffer=nl.shared_hbm)
        core = nl.program_id(axis=0)
        tile = nl.zeros((1, 3), nl.int32)
        for column, value in enumerate((core, nl.num_programs(axes=0), nl.program_ndim())):
            nisa.memset(dst=tile[:, column : column + 1], value=value)
        nl.store(out[core], tile)
        nisa.core_barrier(out, (0, 1))
        return out

    same(both(kernel, normal((4, 4)), lnc=2), [[0, 2, 1], [1, 2, 1]])


@pytest.mark.parametrize("target", SBUF_KIB)
def test_sizes_inside_a_kernel(target: str) -> None:
    def kernel(a: Any) -> Any:
        for name, value in PUBLISHED.items():
            assert getattr(nl.tile_size, name) == value, name
        assert nl.tile_size.sbuf_size_bytes == 128 * SBUF_KIB[target] * KIB
        assert 0.9 * SBUF_KIB[target] * KIB < nl.tile_size.sbuf_fmax_bytes <= SBUF_KIB[target] * KIB
        assert nl.tile_size.sbuf_fmax == nl.tile_size.sbuf_fmax_bytes // 4
        assert nl.tile_size.psum_min_align >= 1 and nl.tile_size.sbuf_min_align >= 1
        return a

    both(kernel, normal((4, 4)), target=target)


def test_sizes_outside_follow_the_environment() -> None:
    for target, size in SBUF_KIB.items():
        with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target):
            assert nl.tile_size.sbuf_size_bytes == 128 * size * KIB
            assert target in repr(nl.tile_size)


def test_largest_tile_fits() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray((nl.tile_size.pmax, nl.tile_size.sbuf_fmax), nl.float32)
        nisa.memset(dst=tile[:, 0:4], value=1.0)
        out = nl.ndarray((128, 4), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile[:, 0:4])
        return out

    same(both(kernel, normal((4, 4))), np.ones((128, 4)))


@pytest.mark.parametrize(
    ("name", "instead"), [("psum_fmax", "psum_bank_fmax"), ("total_available_sbuf_size", "sbuf_fmax_bytes")]
)
def test_deprecated_sizes_warn_at_the_kernel(name: str, instead: str) -> None:
    def kernel(a: Any) -> Any:
        assert getattr(nl.tile_size, name) == getattr(nl.tile_size, instead)
        return a

    with pytest.warns(DeprecationWarning, match=f"{name} is deprecated; use {instead}") as caught:
        nki.simulate(kernel)(normal((4, 4)))
    assert caught[0].filename == __file__
