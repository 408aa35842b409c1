"""What published kernels do with parts, masks and ranks of tiles, compiled and instruction by instruction."""

from __future__ import annotations

import numpy as np
import pytest

import nki.beta1.isa as nisa
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


def product_of_ragged_tiles(x, y):
    (m, k), n = x.shape, y.shape[1]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    sums = nl.zeros((32, 64), nl.int32, buffer=nl.psum)
    x_p, x_f = nl.mgrid[0:32, 0:64]
    y_p, y_f = nl.mgrid[0:64, 0:64]
    for i in nl.affine_range((k + 63) // 64):
        left = nl.load(x[x_p, i * 64 + x_f], mask=(x_p < m) & (i * 64 + x_f < k))
        right = nl.load(y[i * 64 + y_p, y_f], mask=(i * 64 + y_p < k) & (y_f < n))
        sums += nl.matmul(left[...], right[...])
    nl.store(out[x_p, x_f], nl.copy(sums, dtype=nl.float32), mask=(x_p < m) & (x_f < n))
    return out


def test_what_is_masked_out_of_a_contraction_adds_nothing():
    x, y = (RANDOM.integers(-4, 5, shape).astype(np.float32) for shape in ((30, 100), (100, 50)))
    assert np.array_equal(both(product_of_ragged_tiles, x, y), x @ y)


def scattered(x, rows):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(64)[:, None], nl.arange(8)[None, :]
    for i in nl.affine_range(2):
        place = nl.load(rows[i * 64 + i_p])
        nl.store(out[place[i_p, 0], i_f], nl.load(x[i * 64 + i_p, i_f]))
    return out


def test_trips_may_store_to_rows_that_are_known_at_run_time():
    x, rows = _array(128, 8), RANDOM.permutation(128).astype(np.int32)
    wanted = np.empty_like(x)
    wanted[rows] = x
    assert np.array_equal(both(scattered, x, rows), wanted)


def selected_of_a_part(x, bounds):
    out = nl.ndarray((2, 64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, 0.0)
    i_p, i_f = nl.mgrid[0:64, 0:32]
    part, limits = nl.load(x[i_p, i_f], mask=(i_p >= 32) & (i_f >= 9)), nl.load(bounds)
    nl.store(out[0], nisa.affine_select(i_p - 32 >= i_f, part, -1.0))
    chosen = nisa.range_select(
        on_true_tile=part, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=limits[:, 0], bound1=limits[:, 1]
    )
    nl.store(out[1], chosen)
    return out


def test_positions_of_a_selection_count_from_where_the_tile_begins():
    x = _array(64, 32)
    bounds = np.tile(np.array([11, 20], np.float32), (64, 1))
    rows, columns = np.indices(x.shape)
    there = (rows >= 32) & (columns >= 9)
    wanted = [
        np.where(rows - 32 >= columns, x, -1),
        np.where((columns >= 11) & (columns < 20), x, np.finfo(np.float32).min),
    ]
    assert np.array_equal(both(selected_of_a_part, x, bounds), [np.where(there, each, 0) for each in wanted])


def summed_of_a_part(x):
    out = nl.ndarray((3, 100, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, 7.0)
    i_p, i_f = nl.mgrid[0:100, 0:32]
    part, sums = nl.load(x[i_p, i_f], mask=(i_p < 70) & (i_f < 20)), nl.full((3, nl.par_dim(100), 1), 7.0, nl.float32)
    limit = nl.full((100, 1), 32.0, nl.float32)
    nisa.activation_reduce(nl.copy, part, reduce_op=nl.add, reduce_res=sums[0])
    nisa.tensor_scalar_reduce(data=part, op0=nl.multiply, operand0=2.0, reduce_op=nl.add, reduce_res=sums[1])
    nisa.range_select(
        on_true_tile=part, comp_op0=nl.less, comp_op1=nl.less, bound0=limit, bound1=limit, reduce_res=sums[2]
    )
    for i in range(3):
        nl.store(out[i], sums[i])
    return out


def test_a_reduction_beside_an_instruction_has_the_rows_that_it_computes():
    x = RANDOM.integers(1, 9, (100, 32)).astype(np.float32)
    part = x[:70, :20]
    wanted = np.full((3, 100), 7.0, np.float32)
    wanted[:, :70] = part.sum(1), 2 * part.sum(1), part.max(1)
    assert np.array_equal(both(summed_of_a_part, x)[..., 0], wanted)


def columns_of_blocks(x):
    out = nl.ndarray((4, 96, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, 0.0)
    tiles = nl.ndarray((2, nl.par_dim(96), 8), dtype=x.dtype)
    for i in nl.affine_range(2):
        tiles[i] = nl.load(x[i])
        tiles[i, 0:96, 3] = nl.multiply(tiles[i, 0:96, 3], 2.0)
        nl.store(out[i], tiles[i, :, 3])
    nl.store(out[2, 0:8, 0], tiles[1, 5, :])
    nl.store(out[3, 0:1], tiles[1, 5, 7])
    return out


def test_a_column_and_a_row_of_a_block_are_tiles():
    x = _array(2, 96, 8)
    found = both(columns_of_blocks, x)
    assert np.array_equal(found[:2, :, 0], 2 * x[..., 3]) and found[3, 0, 0] == x[1, 5, 7]
    assert np.array_equal(found[2, :8, 0], np.where(np.arange(8) == 3, 2, 1) * x[1, 5])


def bytes_of_blocks(x):
    out = nl.ndarray((2, 64, 32), dtype=nl.uint8, buffer=nl.shared_hbm)
    tiles = nl.ndarray((2, nl.par_dim(64), 8), dtype=x.dtype)
    for i in nl.affine_range(2):
        tiles[i] = nl.load(x[i])
        nl.store(out[i], tiles.view(nl.uint8)[i, 0:64, 0:32])
    return out


def test_blocks_are_viewed_as_another_dtype():
    x = _array(2, 64, 8)
    assert np.array_equal(both(bytes_of_blocks, x), x.view(np.uint8))


def moved_by_an_identity_of_bytes(x):
    out = nl.ndarray((2, 96, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    identity = nl.load(nl.shared_identity_matrix(96))
    for i, kind in enumerate((nl.float32, nl.bfloat16)):
        nl.store(out[i], nisa.nc_matmul(identity, nl.load(x, dtype=kind), is_stationary_onezero=True))
    return out


def test_an_identity_matrix_of_bytes_is_multiplied():
    x = RANDOM.integers(-99, 99, (96, 32)).astype(np.float32)
    assert np.array_equal(both(moved_by_an_identity_of_bytes, x), [x, x])


def pipelined(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((x.shape[0], nl.par_dim(64), 8), dtype=x.dtype)
    tiles[0] = nl.load(x[0])
    for i in nl.affine_range(x.shape[0] - 1, precise_schedule=True):
        tiles[i + 1] = nl.load(x[i + 1])
        nl.store(out[i], nl.exp(tiles[i]))
    nl.store(out[x.shape[0] - 1], nl.exp(tiles[x.shape[0] - 1]))
    return out


def test_trips_of_a_precise_schedule_use_what_earlier_ones_wrote():
    x = _array(3, 64, 8)
    assert np.allclose(both(pipelined, x), np.exp(x), rtol=1e-5)
