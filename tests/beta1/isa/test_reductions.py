"""Reductions, scans and statistics against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki.beta1.isa as nisa
import nki.beta1.language as nl
from tests.beta1.isa.instructions import both, computed, floats, integers, refused

BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("op", "wanted"), [(np.add, np.sum), (nl.max, np.max), (np.amin, np.min), (np.multiply, np.prod)]
)
def test_tensor_reduce(op, wanted):
    a = floats(128, 6, 8)
    found = computed(lambda x: nisa.tensor_reduce(op, x, axis=[2]), a)
    assert found.shape == (128, 6) and np.allclose(found, wanted(a, 2), rtol=1e-5)
    found = computed(lambda x: nisa.tensor_reduce(op, x, axis=(1, 2), keepdims=True), a)
    assert found.shape == (128, 1, 1) and np.allclose(found, wanted(a, (1, 2), keepdims=True), rtol=1e-5)


def test_tensor_reduce_negated_into_another_dtype():
    a = floats(64, 40)
    found = computed(lambda x: nisa.tensor_reduce(np.max, x, axis=1, negate=True, dtype=nl.bfloat16), a)
    assert found.dtype == BF16 and np.array_equal(found[:, 0], -(a.max(1).astype(BF16)))


def test_tensor_reduce_over_a_middle_axis_and_of_bits():
    a = integers(64, 5, 8, high=1 << 20)
    assert np.array_equal(
        computed(lambda x: nisa.tensor_reduce(np.bitwise_or, x, axis=1), a), np.bitwise_or.reduce(a, 1)
    )


def test_what_a_mask_leaves_out_takes_no_part():
    a = floats(128, 60)

    def kernel(x):
        out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.mgrid[0:128, 0:60]
        tile, total = nl.load(x), nl.full((128, 1), -1.0, nl.float32)
        total[:, 0] = nisa.tensor_reduce(np.add, tile, axis=1, mask=(i_p < 96) & (i_f >= 7))
        nl.store(out, total)
        return out

    wanted = np.where(np.arange(128) < 96, a[:, 7:].sum(1), -1)
    assert np.allclose(both(kernel, a)[:, 0], wanted, rtol=1e-5)


def test_tensor_partition_reduce_of_psum():
    a = floats(64, 96)
    found = computed(lambda x: nisa.tensor_partition_reduce(np.add, nisa.nc_transpose(x)), a)
    assert found.shape == (1, 64) and np.allclose(found[0], a.sum(1), rtol=1e-5)

    def masked(x):
        i_p = nl.arange(64)[:, None]
        return nisa.tensor_partition_reduce(np.max, x, mask=i_p < 10)

    assert np.array_equal(computed(masked, a)[0], a[:10].max(0))


@pytest.mark.parametrize(("reverse", "op"), [(False, np.add), (True, np.add), (False, np.max), (False, np.subtract)])
def test_tensor_scalar_reduce(reverse, op):
    a, c = floats(128, 64), floats(128, 1)

    def body(x, y):
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        made = nisa.tensor_scalar_reduce(
            data=x, op0=np.subtract, operand0=y, reduce_op=op, reduce_res=total[:, 0], reverse0=reverse
        )
        return made, total

    made, total = computed(body, a, c)
    wanted = c - a if reverse else a - c
    assert np.array_equal(made, wanted)
    expected = {"add": wanted.sum(1), "subtract": 2 * wanted[:, 0] - wanted.sum(1)}.get(op.__name__, wanted.max(1))
    assert np.allclose(total[:, 0], expected, rtol=1e-4, atol=1e-5)


def _scan(a, b, start):
    found, state = np.empty_like(a), start
    for i in range(a.shape[1]):
        state = found[:, i] = a[:, i] * state + b[:, i]
    return found


def test_tensor_tensor_scan_goes_on_from_a_column():
    a, b, c = floats(64, 50, high=0.9), floats(64, 50), floats(64, 1)

    def body(x, y, z):
        made = nl.ndarray((64, 50), dtype=nl.float32)
        made[:, 0:20] = nisa.tensor_tensor_scan(x[:, 0:20], y[:, 0:20], z, np.multiply, np.add)
        made[:, 20:50] = nisa.tensor_tensor_scan(
            x[:, 20:50], y[:, 20:50], initial=made[:, 19], op0=np.multiply, op1=np.add
        )
        return made

    assert np.allclose(computed(body, a, b, c), _scan(a, b, c[:, 0]), rtol=1e-5)


def test_a_masked_scan_is_shorter():
    a, b = floats(64, 50, high=0.9), floats(64, 50)

    def body(x, y):
        made = nl.zeros((64, 50), dtype=nl.float32)
        made[...] = nisa.tensor_tensor_scan(x, y, 1, np.multiply, np.add, mask=nl.arange(50)[None, :] < 30)
        return made

    found = computed(body, a, b)
    assert np.allclose(found[:, :30], _scan(a, b, np.float32(1))[:, :30], rtol=1e-5) and not found[:, 30:].any()


def test_statistics_of_pieces():
    a = floats(128, 700)

    def body(x):
        stats = nl.ndarray((128, 12), dtype=nl.float32)
        i_p, i_f, i_s = nl.arange(128)[:, None], nl.arange(512)[None, :], nl.arange(6)[None, :]
        for i in nl.affine_range(2):
            stats[i_p, i * 6 + i_s] = nisa.bn_stats(x[i_p, i * 512 + i_f], mask=i * 512 + i_f < 700, dtype=nl.float32)
        return nisa.bn_aggr(stats)

    found = computed(body, a)
    assert np.allclose(found[:, 0], a.mean(1), rtol=1e-5) and np.allclose(found[:, 1], a.var(1), rtol=1e-4)


@pytest.mark.parametrize(
    ("code", "words", "body"),
    [
        (
            "beta1.unsupported_expression_in_mask",
            "joins two axes",
            lambda x: nisa.tensor_reduce(np.add, x, axis=1, mask=nl.arange(64)[:, None] >= nl.arange(40)[None, :]),
        ),
        (
            "beta1.unsupported_expression_in_mask",
            "joins two axes",
            lambda x: nisa.bn_stats(x, mask=nl.arange(64)[:, None] >= nl.arange(40)[None, :]),
        ),
        (
            "beta1.argument",
            "reduce_res",
            lambda x: nisa.tensor_scalar_reduce(data=x, op0=np.add, operand0=1.0, reduce_op=np.add, reduce_res=None),
        ),
        ("beta1.argument", "no operator", lambda x: nisa.tensor_reduce("add", x, axis=1)),
        ("beta1.mask_shape", "", lambda x: nisa.tensor_reduce(np.add, x, axis=1, mask=nl.arange(64)[None, :] < 3)),
        ("tensor_reduce.operator", "reduces", lambda x: nisa.tensor_reduce(np.power, x, axis=1)),
    ],
)
def test_what_is_refused(code, words, body):
    error = refused(body, floats(64, 40))
    assert error.code == code and words in str(error) and error.fix
