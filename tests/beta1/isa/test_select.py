"""Choices by position and by predicates, and constants, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki.beta1.isa as nisa
import nki.beta1.language as nl
from tests.beta1.isa.instructions import both, computed, floats, integers, refused

BF16 = ml_dtypes.bfloat16
ROWS, COLUMNS = np.indices((128, 96))


@pytest.mark.parametrize(
    ("pred", "true"),
    [
        (lambda p, f: p >= f, ROWS >= COLUMNS),
        (lambda p, f: f * 2 < p + 5, COLUMNS * 2 < ROWS + 5),
        (lambda p, f: p == f, ROWS == COLUMNS),
        (lambda p, f: p - f != 3, ROWS - COLUMNS != 3),
        (lambda p, f: f < 40, COLUMNS < 40),
        (lambda p, f: 3 > 2, True),
        (lambda p, f: 3 < 2, False),
    ],
)
def test_affine_select(pred, true):
    a = floats(128, 96)

    def body(x):
        i_p, i_f = nl.mgrid[0:128, 0:96]
        return nisa.affine_select(pred(i_p, i_f), x[i_p, i_f], nl.fp32.min)

    assert np.array_equal(computed(body, a), np.where(true, a, np.finfo(np.float32).min))


def test_affine_select_from_psum_where_a_mask_is_true():
    a = floats(96, 128)

    def body(x):
        i_p, i_f = nl.arange(128)[:, None], nl.arange(96)[None, :]
        made = nl.full((128, 96), 7.0, nl.float32)
        made[i_p, i_f] = nisa.affine_select(
            pred=i_p >= i_f, on_true_tile=nisa.nc_transpose(x), on_false_value=0, mask=(i_p < 64) & (i_f >= 16)
        )
        return made

    wanted = np.where(ROWS >= COLUMNS, a.T, 0)
    assert np.array_equal(computed(body, a), np.where((ROWS < 64) & (COLUMNS >= 16), wanted, 7))


def test_range_select():
    a, low, high = floats(128, 96), integers(128, 1, high=60).astype(np.float32), np.full((128, 1), 70, np.float32)

    def body(x, b0, b1):
        best = nl.ndarray((128, 1), dtype=nl.float32)
        made = nl.ndarray((128, 96), dtype=nl.float32)
        made[...] = nisa.range_select(
            on_true_tile=x,
            comp_op0=np.greater_equal,
            comp_op1=np.less,
            bound0=b0,
            bound1=b1,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
            reduce_res=best,
            reduce_op=np.max,
            range_start=4,
        )
        return made, best

    made, best = computed(body, a, low, high)
    wanted = np.where((low <= COLUMNS + 4) & (high > COLUMNS + 4), a, np.finfo(np.float32).min)
    assert np.array_equal(made, wanted) and np.array_equal(best[:, 0], wanted.max(1))


@pytest.mark.parametrize("reverse", [False, True])
def test_select_reduce(reverse):
    a, c, p = floats(128, 96), floats(128, 1), integers(128, 96, high=2, dtype=np.bool_)

    def body(x, y, z):
        made, best = nl.ndarray((128, 96), dtype=nl.float32), nl.ndarray((128, 1), dtype=nl.float32)
        nisa.select_reduce(
            dst=made,
            predicate=z,
            on_true=x,
            on_false=y,
            reduce_res=best,
            reverse_pred=reverse,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
            reduce_op=nl.max,
        )
        return made, best

    made, best = computed(body, a, c, p)
    wanted = np.where(p != reverse, a, c)
    assert np.array_equal(made, wanted) and np.array_equal(best[:, 0], wanted.max(1))


@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.uint16, np.int32, np.float32])
@pytest.mark.parametrize("reverse", [False, True])
def test_tensor_copy_predicated(kind, reverse):
    a, b, p = floats(128, 96), floats(128, 96).astype(BF16), integers(128, 96, high=2).astype(kind)

    def body(x, y, z):
        nisa.tensor_copy_predicated(src=y, dst=x, predicate=z, reverse_pred=reverse)
        return x

    assert np.array_equal(computed(body, a, b, p), np.where((p != 0) != reverse, b.astype(np.float32), a))


def test_a_predicated_copy_of_a_number_keeps_what_a_mask_leaves_out():
    a, p = floats(128, 96), integers(128, 96, high=2, dtype=np.uint8)

    def body(x, z):
        i_p, i_f = nl.mgrid[0:128, 0:96]
        nisa.tensor_copy_predicated(src=np.float32(3), dst=x, predicate=z, mask=i_p + i_f < 80)
        nisa.tensor_copy_predicated(src=4.0, dst=x, predicate=z, mask=i_p >= 64)
        return x

    wanted = np.where((p != 0) & (ROWS + COLUMNS < 80), 3, a)
    assert np.array_equal(computed(body, a, p), np.where((p != 0) & (ROWS >= 64), 4, wanted))


def test_parts_that_begin_in_partitions_where_no_engine_does():
    a, b, p = floats(128, 96), floats(128, 96), integers(128, 96, high=2, dtype=np.uint8)

    def body(x, y, z):
        i_p, i_f = nl.mgrid[0:128, 0:96]
        nisa.tensor_copy_predicated(src=y, dst=x, predicate=z, mask=(i_p >= 5) & (i_p < 70))
        x[...] = nisa.tensor_tensor(x, y, op=np.add, mask=(i_p + i_f < 90) & (i_p >= 77))
        nisa.select_reduce(dst=x, predicate=z, on_true=y, on_false=0.5, mask=i_p >= 99)
        return x

    wanted = np.where((p != 0) & (ROWS >= 5) & (ROWS < 70), b, a)
    wanted = np.where((ROWS + COLUMNS < 90) & (ROWS >= 77), wanted + b, wanted)
    assert np.array_equal(computed(body, a, b, p), np.where(ROWS >= 99, np.where(p != 0, b, 0.5), wanted))


def test_iota():
    def kernel():
        outs = []
        for index, kind in (
            (nl.arange(0, 64)[:, None] * 3 - nl.arange(40)[None, :] + 5, nl.int32),
            (nl.mgrid[0:64, 0:4, 0:10][2], nl.float32),
            (7, np.int32),
            (nl.arange(64)[:, None], "bfloat16"),
        ):
            tile = nisa.iota(index, dtype=kind)
            out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
            nl.store(out, tile)
            outs.append(out)
        return tuple(outs)

    one, two, three, four = both(kernel)
    assert np.array_equal(one, np.arange(64)[:, None] * 3 - np.arange(40) + 5)
    assert np.array_equal(two, np.mgrid[0:64, 0:4, 0:10][2]) and two.dtype == np.float32
    assert three.tolist() == [[7]] and np.array_equal(four[:, 0], np.arange(64).astype(BF16))


def test_memset_takes_numbers_of_other_kinds():
    def kernel():
        out = nl.ndarray((32, 8), dtype=nl.int32, buffer=nl.shared_hbm)
        i_f = nl.mgrid[0:32, 0:8].x
        tile = nisa.memset(shape=[32, 8], value=np.float32(1.0), dtype=nl.int32, engine=nisa.gpsimd_engine)
        tile[...] = nisa.memset((32, 8), 5.0, np.int32, mask=i_f >= 6)
        nl.store(out, tile)
        return out

    assert np.array_equal(both(kernel), np.where(np.arange(8) >= 6, 5, 1) * np.ones((32, 1), np.int32))


@pytest.mark.parametrize(
    ("code", "words", "body"),
    [
        (
            "beta1.unsupported_expression_in_mask",
            "several comparisons",
            lambda x: nisa.affine_select((nl.arange(64)[:, None] > 3) & (nl.arange(40)[None, :] < 7), x, 0.0),
        ),
        ("beta1.unsupported_expression_in_mask", "tensor", lambda x: nisa.affine_select(x, x, 0.0)),
        ("beta1.mask_shape", "", lambda x: nisa.affine_select(nl.arange(64)[None, :] > 3, x, 0.0)),
        ("beta1.1d_arange_not_supported", "[5]", lambda x: nisa.iota(nl.arange(5), nl.int32)),
        ("beta1.argument", "expr", lambda x: nisa.iota(x, nl.int32)),
        ("beta1.argument", "engine", lambda x: nisa.memset((4, 4), 0, nl.int32, engine=3)),
        (
            "range_select.on-false-value",
            "",
            lambda x: nisa.range_select(
                on_true_tile=x, comp_op0=np.less, comp_op1=np.less, bound0=x[:, 0], bound1=x[:, 1], on_false_value=0.0
            ),
        ),
        (
            "beta1.argument",
            "'dst' of 'select_reduce'",
            lambda x: nisa.select_reduce(dst=None, predicate=x, on_true=x, on_false=0.0),
        ),
        (
            "beta1.num_partition_mismatch",
            "predicate[1, 40]",
            lambda x: nisa.tensor_copy_predicated(src=0.0, dst=x, predicate=x[0:1]),
        ),
    ],
)
def test_what_is_refused(code, words, body):
    error = refused(body, floats(64, 40))
    assert error.code == code and words in str(error) and error.fix
