"""DMA, and copies from and to positions that are known at run time, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki.beta1.isa as nisa
import nki.beta1.language as nl
from nki.beta1.decorators import jit
from tests.beta1.isa.instructions import both, computed, floats, integers, refused

BF16 = ml_dtypes.bfloat16


def test_dma_copy_between_all_memories():
    a = floats(64, 40)

    def kernel(x):
        out = nl.ndarray((64, 40), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        one, two = nl.ndarray((64, 40), nl.float32), nl.ndarray((64, 40), nl.bfloat16)
        nisa.dma_copy(dst=one, src=x)
        nisa.dma_copy(dst=two, src=nisa.nc_transpose(nisa.nc_transpose(one)))
        nisa.dma_copy(dst=out, src=two, dge_mode=nisa.dge_mode.hwdge)
        return out

    assert np.array_equal(both(kernel, a), a.astype(BF16))


def test_dma_copy_where_a_mask_is_true_and_between_ranks():
    a, column = floats(64, 40), floats(64)

    def kernel(x, y):
        out = nl.ndarray((64, 40), dtype=nl.float32, buffer=nl.shared_hbm)
        tile, own = nl.full((64, 40), 3.0, nl.float32), nl.ndarray((64, 1), nl.float32)
        i_p, i_f = nl.mgrid[0:64, 0:40]
        nisa.dma_copy(dst=tile[i_p, i_f], src=x[i_p, i_f], mask=(i_p < 50) & (i_f >= 8))
        nisa.dma_copy(dst=own, src=y)
        nisa.dma_copy(dst=tile[0:64, 0:1], src=own)
        nisa.dma_copy(dst=out[i_p, i_f], src=tile, mask=i_p >= 0)
        nisa.dma_copy(dst=out[i_p, i_f], src=x[i_p, i_f], mask=i_p == i_f)
        return out

    rows, columns = np.indices(a.shape)
    wanted = np.where((rows < 50) & (columns >= 8), a, 3)
    wanted[:, 0] = column
    assert np.array_equal(both(kernel, a, column), np.where(rows == columns, a, wanted))


def test_rows_by_a_tile_of_indices():
    a, index = floats(200, 40), np.random.default_rng(1).permutation(200)[:64].astype(np.int32)

    def kernel(x, y):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(64)[:, None], nl.arange(40)[None, :]
        idx = nl.load(y[i_p])
        loaded = nl.load(x[idx[i_p, 0], i_f])
        copied = nl.ndarray((64, 40), nl.float32)
        nisa.dma_copy(dst=copied, src=x[idx, i_f])
        for k in nl.affine_range(4):
            i_r = nl.arange(50)[:, None]
            nl.store(out[k * 50 + i_r, i_f], nl.zeros((50, 40), nl.float32))
        nl.store(out[idx[i_p, 0], i_f], loaded + copied, mask=i_p < 60)
        return out

    wanted = np.zeros_like(a)
    wanted[index[:60]] = 2 * a[index[:60]]
    assert np.array_equal(both(kernel, a, index), wanted)


@pytest.mark.parametrize(("kind", "added"), [(np.int32, 7), (np.uint32, 0), (np.int16, 7)])
def test_rows_of_more_dimensions_and_indices_with_something_added(kind, added):
    a, index = floats(50, 3, 40), integers(32, 2, high=40, dtype=kind)

    def kernel(x, y):
        out = nl.ndarray((32, 3, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_a, i_f = nl.mgrid[0:32, 0:3, 0:40]
        j_p, j_a, j_f = nl.arange(32)[:, None, None], nl.arange(3)[None, :, None], nl.arange(40)[None, None, :]
        idx = nl.load(y)
        nl.store(out[i_p, i_a, i_f], nl.load(x[idx[j_p, 1] + added if added else idx[j_p, 1], j_a, j_f], mask=j_p < 32))
        return out

    assert np.array_equal(both(kernel, a, index), a[index[:, 1].astype(int) + added])


def test_one_index_on_a_middle_dimension_and_alone():
    a, index = floats(32, 6, 40), np.array([[4, 2]], np.int32)

    def kernel(x, y):
        out = nl.ndarray((32, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        row = nl.ndarray((6, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        idx = nl.load(y)
        i_p, i_f = nl.arange(32)[:, None], nl.arange(40)[None, :]
        nl.store(out, nl.load(x[i_p, idx[0, 0], i_f]))
        nl.store(row, nl.load(x[idx[0, 1], nl.arange(6)[:, None], i_f]))
        return out, row

    out, row = both(kernel, a, index)
    assert np.array_equal(out, a[:, 4]) and np.array_equal(row, a[2])


def test_one_index_stands_where_an_int_may():
    a, b, index = floats(6, 32, 4, 40), floats(8), np.array([[3]], np.int32)

    def kernel(x, y, z):
        outs = [nl.ndarray(size, dtype=x.dtype, buffer=nl.shared_hbm) for size in ((32, 40), (1, 1), (4, 40), (32, 3))]
        at = nl.load(z)
        nl.store(outs[0], nl.load(x[at[0, 0], :, 1, :]))
        nl.store(outs[1], nl.load(y[at]))
        nl.store(outs[2], nl.load(x[1, at[0, 0] + 4][...]))
        tile = nl.load(x[at[0, 0], :, 2])
        i_p, i_f = nl.mgrid[0:32, 0:3]
        nl.store(outs[3], nisa.tensor_copy_dynamic_src(tile[i_p, at[0, 0] + i_f]))
        nl.store(x[at[0, 0] + 1, 0:4, :, :], nl.load(x[0, 0:4]))
        return (*outs, x)

    one, two, three, four, written = both(kernel, a.copy(), b, index)
    assert np.array_equal(one, a[3, :, 1]) and np.array_equal(two, b[3:4, None]) and np.array_equal(three, a[1, 7])
    assert np.array_equal(four, a[3, :, 2, 3:6])
    wanted = a.copy()
    wanted[4, 0:4] = a[0, 0:4]
    assert np.array_equal(written, wanted)


def test_indices_outside_are_skipped():
    a, index = floats(50, 40), np.array([3, 70, 0, -1, 49, 50], np.int32)[:, None]

    def kernel(x, y):
        out = nl.ndarray((50, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        found = nl.ndarray((6, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        idx, i_f = nl.load(y), nl.arange(40)[None, :]
        tile = nl.full((6, 40), -2.0, nl.float32)
        nisa.dma_copy(dst=tile, src=x[idx, i_f], oob_mode=nisa.oob_mode.skip)
        nl.store(found, tile)
        nl.store(out, nl.zeros((50, 40), nl.float32))
        nisa.dma_copy(dst=out[idx, i_f], src=tile, oob_mode=nisa.oob_mode.skip)
        tile[...] = nl.load(x[idx, i_f], mode=nisa.oob_mode.skip)
        nl.store(out[idx, i_f], tile, mode=nisa.oob_mode.skip)
        return found, out

    found, out = both(kernel, a, index)
    inside = (index[:, 0] >= 0) & (index[:, 0] < 50)
    assert np.array_equal(found, np.where(inside[:, None], a[index[:, 0] % 50], -2))
    wanted = np.zeros_like(a)
    wanted[index[inside, 0]] = a[index[inside, 0]]
    assert np.array_equal(out, wanted)


def test_dma_copy_adds_to_rows():
    a, index = floats(32, 40), np.arange(32, dtype=np.int32)[::-1].copy()[:, None] * 2

    def kernel(x, y):
        out = nl.ndarray((64, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.ones((64, 40), nl.float32))
        nisa.dma_copy(dst=out[nl.load(y), nl.arange(40)[None, :]], src=nl.load(x), dst_rmw_op=np.add)
        nisa.dma_copy(dst=out[0:32, :], src=nl.load(x), dst_rmw_op=np.add)
        return out

    wanted = np.ones((64, 40), np.float32)
    wanted[index[:, 0]] += a
    wanted[:32] += a
    assert np.array_equal(both(kernel, a, index), wanted)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("kind", [np.float32, BF16, np.uint8])
def test_dma_transpose(kind, target):
    a = integers(48, 2, 4, 32, high=200).astype(kind)

    def kernel(x):
        square = nisa.dma_transpose(x[:, 0, 0, :])
        cube = nisa.dma_transpose(x[:, 1, :, :], axes=(2, 1, 0))
        four = nisa.dma_transpose(nl.load(x))
        return square, cube, four

    square, cube, four = both(kernel, a, target=target)
    assert np.array_equal(square, a[:, 0, 0, :].T)
    assert np.array_equal(cube, a[:, 1].transpose(2, 1, 0))
    assert np.array_equal(four, a.transpose(3, 1, 2, 0))


def test_dma_transpose_where_a_mask_is_true():
    a = floats(48, 32)

    def body(x):
        i_p, i_f = nl.mgrid[0:48, 0:32]
        made = nl.zeros((32, 48), nl.bfloat16)
        made[...] = nisa.dma_transpose(x[i_p, i_f], mask=(i_p < 40) & (i_f < 16), dtype=nl.bfloat16)
        return made

    columns, rows = np.indices((32, 48))
    assert np.array_equal(computed(body, a), np.where((rows < 40) & (columns < 16), a.T, 0).astype(BF16))


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_copies_from_a_position_of_run_time(target):
    a, index = floats(128, 50, 4), integers(1, 8, high=40)

    def body(x, y):
        made = nl.ndarray((128, 8, 4), nl.float32)
        flat = nl.ndarray((128, 8, 3), nl.bfloat16)
        i_p, _, i_f = nl.mgrid[0:128, 0:1, 0:4]
        j_p, j_f = nl.arange(128)[:, None], nl.arange(3)[None, :]
        for k in nl.affine_range(8):
            made[i_p, k, i_f] = nisa.tensor_copy_dynamic_src(x[i_p, y[0, k], i_f])
            flat[j_p, k, j_f] = nisa.tensor_copy_dynamic_src(
                x[j_p, y[0, k] + 2 + j_f, 1], engine=nisa.scalar_engine, mask=j_p < 128
            )
        return made, flat

    made, flat = computed(body, a, index, target=target)
    assert np.array_equal(made, a[:, index[0]])
    places = index[0][:, None] + 2 + np.arange(3)
    assert np.array_equal(flat, a[:, :, 1][:, places].astype(BF16))


def test_copies_to_a_position_of_run_time():
    a, index = floats(128, 8), np.array([[5, 30, 11]], np.int32)

    def body(x, y):
        made = nl.zeros((128, 40), nl.float32)
        i_p, i_f = nl.mgrid[0:128, 0:8]
        for k in nl.sequential_range(3):
            nisa.tensor_copy_dynamic_dst(dst=made[i_p, y[0, k] + i_f], src=x, mask=i_p < 64 + 32 * k)
        return made

    wanted = np.zeros((128, 40), np.float32)
    for k, at in enumerate(index[0]):
        wanted[: 64 + 32 * k, at : at + 8] = a[: 64 + 32 * k]
    assert np.array_equal(computed(body, a, index), wanted)


def _indices(*shape):
    return nl.zeros(shape, nl.int32)


@pytest.mark.parametrize(
    ("code", "words", "body"),
    [
        (
            "beta1.copy_dynamic_indirect_indices_not_natively_supported",
            "tensor_copy_dynamic_src",
            lambda x: nl.copy(nl.load(x)[nl.arange(64)[:, None], _indices(1, 1)[0, 0] + nl.arange(4)[None, :]]),
        ),
        (
            "beta1.copy_dynamic_indirect_indices_not_natively_supported",
            "dimension 0",
            lambda x: nisa.tensor_copy_dynamic_src(nl.load(x)[_indices(64, 1), nl.arange(4)[None, :]]),
        ),
        (
            "beta1.indirect_indices_free_dim",
            "varies along a free axis",
            lambda x: nl.load(
                x[nl.arange(64)[:, None], _indices(64, 4)[nl.arange(64)[:, None], nl.arange(4)[None, :]]]
            ),
        ),
        (
            "beta1.indirect_indices_free_dim",
            "along the axis of the index tile",
            lambda x: nl.load(x[_indices(40, 1)[nl.arange(40)[:, None], 0], nl.arange(40)[:, None]]),
        ),
        (
            "beta1.indirect_indices_free_dim",
            "[0, 1]",
            lambda x: nl.load(x[_indices(40, 1)[nl.arange(40)[:, None], 0], _indices(1, 1)]),
        ),
        (
            "beta1.argument",
            "no integers",
            lambda x: nl.load(x[nl.zeros((40, 1), nl.float32), nl.arange(40)[None, :]]),
        ),
        (
            "beta1.indirect_indices_are_not_supported_with_nki_api",
            "dma_transpose",
            lambda x: nisa.dma_transpose(x[_indices(32, 1), nl.arange(40)[None, :]]),
        ),
        (
            "beta1.indirect_indices_are_not_supported_with_nki_api",
            "load_transpose2d",
            lambda x: nl.load_transpose2d(x[_indices(32, 1), nl.arange(40)[None, :]]),
        ),
        ("beta1.argument", "axes", lambda x: nisa.dma_transpose(x, axes=(0, 1))),
        (
            "beta1.unsupported_memory",
            "in psum",
            lambda x: nisa.dma_copy(dst=nl.ndarray((64, 40), nl.float32, buffer=nl.psum), src=x),
        ),
        ("beta1.argument", "expected operand 'src' of 'dma_copy'", lambda x: nisa.dma_copy(dst=x, src=1.0)),
        ("beta1.argument", "multiply", lambda x: nisa.dma_copy(dst=x, src=nl.load(x), dst_rmw_op=np.multiply)),
        ("beta1.argument", "builtin_custom_op", lambda x: nisa.builtin_custom_op("f", "g", 1, 2, [x], [x])),
        (
            "beta1.unsupported_expression_in_index",
            "mul",
            lambda x: nl.load(x[_indices(64, 1) * nl.arange(64)[:, None], nl.arange(40)[None, :]]),
        ),
        ("dma_copy.element-count", "", lambda x: nisa.dma_copy(dst=nl.ndarray((64, 4), nl.float32), src=x)),
    ],
)
def test_what_is_refused(code, words, body):
    error = refused(body, floats(64, 40), tensors=True)
    assert error.code == code and words in str(error) and error.fix


@pytest.mark.parametrize("store", [False, True])
def test_an_index_outside_is_the_error_of_python_in_the_simulator(store):
    @jit(mode="simulation")
    def kernel(x, y):
        out = nl.ndarray((50, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        idx, i_f = nl.load(y), nl.arange(40)[None, :]
        if store:
            nl.store(out[idx, i_f], nl.zeros((2, 40), nl.float32))
        else:
            nl.load(x[idx, i_f])
        return out

    with pytest.raises(IndexError, match=r"^index 2040 is out of bounds for axis 0 with size 2000$") as caught:
        kernel(floats(50, 40), np.array([[3], [51]], np.int32))
    assert type(caught.value) is IndexError and "row 1 has index 51" in str(caught.value.__cause__)
