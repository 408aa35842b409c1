"""What published kernels do with parts, masks and ranks of tiles, compiled and instruction by instruction."""

from __future__ import annotations

import numpy as np
import pytest

import nki.beta1.language as nl
from tests.beta1.isa.instructions import both

RANDOM = np.random.default_rng(3)


def _array(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0.1, 1, shape).astype(np.float32)


def parts_of_psum(a):
    out = nl.ndarray((3, 96, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, 0.0)
    sums = nl.zeros((96, 64), nl.float32, buffer=nl.psum)
    tile = nl.load(a)
    sums[...] = nl.copy(tile)
    nl.store(out[0, 0:10], sums[3:13])
    sums[5:37] = nl.multiply(tile[0:32], 2.0)
    sums[40:50] += tile[0:10]
    nl.store(out[1], sums)
    i_p, i_f = nl.mgrid[0:20, 0:64]
    sums[70 + i_p, i_f] = nl.copy(tile[i_p, i_f], mask=i_p >= i_f)
    nl.store(out[2], sums)
    return out


def test_any_partitions_of_psum_are_read_and_written():
    a = RANDOM.integers(-9, 9, (96, 64)).astype(np.float32)
    wanted = np.zeros((3, 96, 64), np.float32)
    wanted[0, :10], wanted[1] = a[3:13], a
    wanted[1, 5:37], wanted[1, 40:50] = 2 * a[:32], a[40:50] + a[:10]
    wanted[2] = wanted[1]
    lower = np.tri(20, 64, dtype=bool)
    wanted[2, 70:90] = np.where(lower, a[:20], wanted[1, 70:90])
    assert np.array_equal(both(parts_of_psum, a), wanted)


def transposed_under_its_diagonal(a):
    out = nl.ndarray((2, 64, 96), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, 0.0)
    i_p, i_f = nl.mgrid[0:96, 0:64]
    nl.store(out[0], nl.transpose(nl.load(a[i_p, i_f], mask=i_p >= i_f)))
    nl.store(out[1], nl.load_transpose2d(a[i_p, i_f], mask=i_p >= i_f))
    return out


@pytest.mark.filterwarnings(r"ignore:\[memory.uninitialized\]")  # what the mask leaves out is transposed, too
def test_transposes_keep_a_mask_of_two_axes():
    a = _array(96, 64)
    wanted = np.where(np.tri(96, 64, dtype=bool), a, 0).T
    assert np.array_equal(both(transposed_under_its_diagonal, a), np.stack([wanted, wanted]))


def product_of_windows(x, y):
    out = nl.ndarray((32, 3, 10), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(x), nl.load(y)
    sums = nl.zeros((32, 3, 10), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(2):
        sums += nl.matmul(left, right[:, i : i + 3, i : i + 10], transpose_x=True)
    nl.store(out, sums)
    return out


def test_the_moving_operand_of_a_product_has_several_free_dimensions():
    x, y = (RANDOM.integers(-4, 5, shape).astype(np.float32) for shape in ((64, 32), (64, 4, 11)))
    wanted = sum(np.einsum("km,kab->mab", x, y[:, i : i + 3, i : i + 10]) for i in range(2))
    assert np.array_equal(both(product_of_windows, x, y), wanted)
