"""Products, transposes and shuffles against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki.beta1.isa as nisa
import nki.beta1.language as nl
from nki.beta1.decorators import jit
from nki.compiler import CompileConfig
from nki.driver.launch import trace_only
from nki.options import from_environment
from nki.passes.context import Context
from nki.passes.pipeline import compile_programs
from nki.target.load import load_target
from tests.beta1.isa.instructions import both, computed, floats, integers, refused

BF16 = ml_dtypes.bfloat16


def test_nc_matmul_keeps_free_dimensions():
    a, b = floats(96, 64), floats(96, 4, 20)
    found = computed(nisa.nc_matmul, a, b)
    assert found.dtype == np.float32 and np.allclose(found, np.einsum("km,kab->mab", a, b), rtol=1e-5)


def test_nc_matmul_of_tiles_in_psum():
    a, b = floats(64, 96), floats(96, 64)
    found = computed(lambda x, y: nisa.nc_matmul(nisa.nc_transpose(x), y), a, b)
    assert np.allclose(found, a @ b, rtol=1e-5)


def accumulating(x, y):
    out = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.shared_hbm)
    i_k, i_m, i_n = nl.arange(128)[:, None], nl.arange(64)[None, :], nl.arange(96)[None, :]
    i_o = nl.arange(64)[:, None]
    sums = nl.zeros((64, 96), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(3):
        inside = k * 128 + i_k < x.shape[0]
        left = nl.load(x[k * 128 + i_k, i_m], mask=inside)
        right = nl.load(y[k * 128 + i_k, i_n], mask=inside)
        sums[i_o, i_n] += nisa.nc_matmul(left[i_k, i_m], right[i_k, i_n], mask=inside)
    nl.store(out, sums)
    return out


def test_products_accumulate_over_a_masked_contraction():
    a, b = floats(320, 64), floats(320, 96)
    assert np.allclose(both(accumulating, a, b), a.T @ b, rtol=1e-5)


def test_accumulating_products_are_one_instruction_each():
    target, options = load_target("trn2"), from_environment()
    (tracer,) = trace_only(jit(accumulating).launch(), (floats(320, 64), floats(320, 96)), {}, target, options)
    (program,) = compile_programs([tracer.program], Context(target, options, CompileConfig())).programs
    names = [each.instruction.name for each in program.body.walk()]
    assert names.count("nc_matmul") == 3 and "memset" not in names and "tensor_tensor" not in names


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_sums_begin_where_nothing_was_added(target):
    a, b = floats(128, 64), floats(128, 96)

    def body(x, y):
        fresh = nl.ndarray((64, 96), nl.float32, buffer=nl.psum)
        ones = nl.full((64, 96), 1.0, nl.float32, buffer=nl.psum)
        parts = nl.zeros((64, 96), nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(2):
            fresh[...] += nisa.nc_matmul(x, y)
        ones += nisa.nc_matmul(x, y)
        i_m, i_n = nl.mgrid[0:64, 0:40]
        parts[i_m, i_n] += nisa.nc_matmul(x, y[:, 0:40])
        parts[i_m, 40 + i_n] += nisa.nc_matmul(x, y[:, 40:80])
        parts[i_m, i_n] += nisa.nc_matmul(x, y[:, 0:40])
        parts += nisa.nc_matmul(x, y)
        return fresh, ones, parts

    fresh, ones, parts = computed(body, a, b, target=target)
    product = a.T @ b
    assert np.allclose(fresh, 2 * product, rtol=1e-5) and np.allclose(ones, 1 + product, rtol=1e-5)
    assert np.allclose(parts, product * np.where(np.arange(96) < 40, 3, np.where(np.arange(96) < 80, 2, 1)), rtol=1e-5)


def test_masks_of_operands():
    a, b = floats(128, 64), floats(128, 96)

    def kernel(x, y):
        out = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.shared_hbm)
        i_k, i_m, i_n = nl.arange(128)[:, None], nl.arange(64)[None, :], nl.arange(96)[None, :]
        sums = nl.full((64, 96), 5.0, nl.float32)
        left, right = nl.load(x), nl.load(y)
        product = nisa.nc_matmul(left[i_k, i_m][(i_k < 100) & (i_m < 32)], right[i_k, i_n][i_n < 50])
        sums[nl.arange(64)[:, None], i_n] = product
        sums[...] = nisa.nc_matmul(left, right, mask=(i_k < 64) & (i_n >= 90))
        nl.store(out, sums)
        return out

    wanted = np.full((64, 96), 5, np.float32)
    wanted[:32, :50] = a[:100, :32].T @ b[:100, :50]
    wanted[:, 90:] = a[:64].T @ b[:64, 90:]
    assert np.allclose(both(kernel, a, b), wanted, rtol=1e-5)


def test_a_product_that_a_mask_leaves_out_adds_nothing():
    a, b = floats(128, 64), floats(128, 96)

    def body(x, y):
        sums = nl.ndarray((64, 96), nl.float32, buffer=nl.psum)
        sums[...] = nisa.nc_matmul(x, y)
        for k in nl.affine_range(3):
            sums[...] += nisa.nc_matmul(x, y, mask=k < 1)
        return sums

    assert np.allclose(computed(body, a, b), 2 * (a.T @ b), rtol=1e-5)


def test_parts_of_the_array_and_pairs_of_rows():
    a, b = floats(64, 64), floats(64, 96)
    found = computed(lambda x, y: nisa.nc_matmul(x, y, tile_position=(64, 0), tile_size=(64, 64)), a, b)
    assert np.allclose(found, a.T @ b, rtol=1e-5)
    a, b = floats(64, 2, 32).astype(ml_dtypes.float8_e5m2), floats(64, 2, 96).astype(ml_dtypes.float8_e5m2)
    found = computed(lambda x, y: nisa.nc_matmul(x, y, perf_mode="double_row_gen3"), a, b)
    wide = [each.astype(np.float32) for each in (a, b)]
    assert found.shape == (32, 96) and np.allclose(found, np.einsum("kpm,kpn->mn", *wide), rtol=1e-5)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_product_with_an_identity_matrix_moves(target):
    a = floats(96, 64).astype(BF16)

    def body(x):
        i_p, i_f = nl.mgrid[0:96, 0:96]
        ones = nisa.memset((96, 96), 1.0, nl.bfloat16)
        return nisa.nc_matmul(x, nisa.affine_select(i_p == i_f, ones, 0.0), is_transpose=True)

    found = computed(body, a, target=target)
    assert found.dtype == (np.float32 if target == "trn1" else BF16) and np.array_equal(found, a.T.astype(found.dtype))


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("kind", [np.float32, BF16, np.int32, np.uint8])
def test_nc_transpose(kind, target):
    a = integers(96, 3, 20, high=200).astype(kind)
    found = computed(lambda x: nisa.nc_transpose(x, engine=nisa.tensor_engine), a, target=target)
    assert found.dtype == kind and np.array_equal(found, a.reshape(96, 60).T)
    small = integers(32, 20, high=200).astype(kind)
    assert np.array_equal(computed(nisa.nc_transpose, small, target=target), small.T)


def test_transposes_of_psum_in_another_dtype_and_where_a_mask_is_true():
    a = floats(96, 64)

    def body(x):
        i_p, i_f = nl.mgrid[0:96, 0:64]
        made = nl.full((64, 96), 9.0, nl.float32)
        made[...] = nisa.nc_transpose(x[i_p, i_f], mask=(i_p < 70) & (i_f < 33))
        corner = nl.full((64, 96), 9.0, nl.float32)
        corner[...] = nisa.nc_transpose(x[i_p, i_f], mask=i_p >= i_f)
        return nisa.nc_transpose(nisa.nc_transpose(x), dtype=nl.bfloat16), made, corner

    twice, made, corner = computed(body, a)
    assert twice.dtype == BF16 and np.array_equal(twice, a.astype(BF16))
    columns, rows = np.indices((64, 96))
    assert np.array_equal(made, np.where((rows < 70) & (columns < 33), a.T, 9))
    assert np.array_equal(corner, np.where(rows >= columns, a.T, 9))


def test_nc_stream_shuffle():
    a, b = floats(128, 40), floats(128, 40)
    order = [(i * 5 + 3) % 32 for i in range(31)] + [255]

    def body(x, y):
        i_p, i_f = nl.mgrid[0:128, 0:40]
        nisa.nc_stream_shuffle(x, y, order, mask=(i_p < 64) & (i_f < 30))
        return y

    source = np.array([q * 32 + order[i] if i < 31 else -1 for q in range(4) for i in range(32)])
    wanted = np.where((source >= 0)[:, None], a[source], b)
    rows, columns = np.indices(a.shape)
    assert np.array_equal(computed(body, a, b), np.where((rows < 64) & (columns < 30), wanted, b))


def test_nc_stream_shuffle_in_place_and_of_one_row():
    a = floats(32, 40)

    def body(x):
        wide = nl.ndarray((32, 40), dtype=nl.float32)
        nisa.nc_stream_shuffle(src=x[0:1, :], dst=wide, shuffle_mask=[0] * 32)
        nisa.nc_stream_shuffle(src=x, dst=x, shuffle_mask=[(i - 1) % 32 for i in range(32)])
        return wide, x

    wide, moved = computed(body, a)
    assert np.array_equal(wide, np.repeat(a[:1], 32, 0)) and np.array_equal(moved, np.roll(a, 1, 0))


@pytest.mark.parametrize(
    ("code", "words", "body"),
    [
        ("beta1.num_partition_mismatch", "moving[32, 40]", lambda x: nisa.nc_matmul(x, x[0:32])),
        ("beta1.argument", "perf_mode", lambda x: nisa.nc_matmul(x, x, perf_mode="fast")),
        ("beta1.argument", "expected operand 'moving'", lambda x: nisa.nc_matmul(x, 3.0)),
        (
            "beta1.unsupported_expression_in_mask",
            "joins two axes",
            lambda x: nisa.nc_matmul(x, x, mask=nl.arange(64)[:, None] >= nl.arange(40)[None, :]),
        ),
        ("nc_stream_shuffle.mask", "", lambda x: nisa.nc_stream_shuffle(x, x, [0, 1])),
    ],
)
def test_what_is_refused(code, words, body):
    error = refused(body, floats(64, 40))
    assert error.code == code and words in str(error) and error.fix
