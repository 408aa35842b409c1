"""Forms that published kernels of the first NKI use, each in a small kernel of its own, against NumPy."""

from __future__ import annotations

import numpy as np

import nki.beta1.isa as nisa
import nki.beta1.language as nl
from nki.beta1.decorators import jit
from tests.beta1.test_kernels import both


@jit
def rows_of_a_picture(x):
    out = nl.ndarray((96, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    position = nisa.iota(nl.arange(96)[:, None], dtype=nl.int32)
    row = nl.floor(position / 38, dtype=nl.int32)
    nl.store(out, nl.load(x[row, nl.arange(8)[None, :]]))
    return out


def test_integers_divide_to_fractions():
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    assert np.array_equal(both(rows_of_a_picture, x), x[np.arange(96) // 38])


@jit
def turned_by_the_vector_engine(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nisa.nc_transpose(nl.load(x), engine=nisa.vector_engine))
    return out


def test_a_transpose_that_is_too_large_for_the_vector_engine():
    x = np.arange(64 * 128, dtype=np.float32).reshape(64, 128)
    assert np.array_equal(both(turned_by_the_vector_engine, x), x.T)


@jit
def below_the_diagonal(x, y):
    out = nl.ndarray((3, 64, 96), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:64, 0:96]
    one, two = nl.load(x), nl.load(y)
    nl.store(out[0], nl.where(i_p >= i_f, one, two))
    nl.store(out[1], nl.where((i_p > i_f) & (i_f < 40), 7, two))
    nl.store(out[2], nl.where(i_f != 3, one, -1.0))
    return out


def test_where_a_comparison_of_indices_is_true():
    x, y = np.random.default_rng(1).random((2, 64, 96), np.float32)
    row, column = np.indices(x.shape)
    wanted = [
        np.where(row >= column, x, y),
        np.where((row > column) & (column < 40), 7, y),
        np.where(column != 3, x, -1),
    ]
    assert np.array_equal(both(below_the_diagonal, x, y), np.array(wanted, np.float32))


@jit
def twice_along_three_axes(x):
    out = nl.ndarray((8, 8, 8, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    made = nl.zeros((8, 8, 8, 8), dtype=x.dtype, buffer=nl.sbuf)
    i_p = nl.arange(8)[:, None, None, None, None, None, None]
    i_a, i_b = nl.arange(3)[None, :, None, None, None, None, None], nl.arange(2)[None, None, :, None, None, None, None]
    i_c, i_d = nl.arange(3)[None, None, None, :, None, None, None], nl.arange(2)[None, None, None, None, :, None, None]
    i_e, i_f = nl.arange(3)[None, None, None, None, None, :, None], nl.arange(2)[None, None, None, None, None, None, :]
    made[i_p, 1 + 2 * i_a + i_b, 1 + 2 * i_c + i_d, 1 + 2 * i_e + i_f] = (
        tile[i_p, i_a + i_b, i_c + i_d, i_e + i_f] + 2 * tile[i_p, i_a - i_b + 1, i_c - i_d + 1, i_e - i_f + 1]
    )
    nl.store(out, made)
    return out


def test_accesses_with_more_free_axes_than_an_engine_walks():
    x = np.arange(8 * 64, dtype=np.float32).reshape(8, 4, 4, 4)
    at, other = np.array([0, 1, 1, 2, 2, 3]), np.array([1, 0, 2, 1, 3, 2])
    wanted = np.zeros((8, 8, 8, 8), np.float32)
    wanted[:, 1:7, 1:7, 1:7] = x[np.ix_(range(8), at, at, at)] + 2 * x[np.ix_(range(8), other, other, other)]
    assert np.array_equal(both(twice_along_three_axes, x), wanted)


@jit
def parts_of_masked_tiles(x):
    out = nl.ndarray((4, 64, 48), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:64, 0:48]
    tile = nl.copy(nl.load(x), mask=i_p >= i_f)
    for each in range(4):
        nl.store(out[each], 0.0)
    nl.store(out[0, 0:20, 0:30], tile[20:40, 4:34])
    rows, third = nl.mgrid[0:64, 0:16]
    nl.store(out[1, rows, third], tile[rows, 3 * third])
    nl.store(out[2, 0:64, 0:48], tile.expand_dims(1)[:, 0, :])
    nl.store(out[3, 0:16, 0:48], nl.add(tile[48:64, :], 1.0))
    return out


def test_a_part_of_a_masked_tile_has_its_part_of_the_mask():
    x = np.random.default_rng(2).random((64, 48), np.float32)
    lower, wanted = np.tril(x), np.zeros((4, 64, 48), np.float32)
    wanted[0, :20, :30] = lower[20:40, 4:34]
    wanted[1, :, :16] = lower[:, ::3]
    wanted[2] = lower
    wanted[3, :16] = lower[48:] + 1
    assert np.array_equal(both(parts_of_masked_tiles, x), wanted)


@jit
def products_that_are_left_out(x, y):
    out = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(x), nl.load(y)
    sums = nl.zeros((64, 96), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        sums[...] += nl.matmul(left, right, transpose_x=True, mask=i % 2 == 0)
    turned = nl.ndarray((96, 64), dtype=nl.float32, buffer=nl.sbuf)
    turned[...] = 0.0
    turned[...] = nl.transpose(nl.copy(sums), mask=False)
    nl.store(out, nl.add(sums, nl.transpose(turned)))
    return out


def test_products_and_transposes_whose_mask_is_false():
    x, y = np.eye(64, dtype=np.float32), np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
    assert np.array_equal(both(products_that_are_left_out, x, y), 2 * y)
