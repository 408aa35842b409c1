"""tensor_tensor, tensor_scalar and their kin, copies and activations, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki.beta1.isa as nisa
import nki.beta1.language as nl
from nki.beta1.errors import Beta1Error
from tests.beta1.isa.instructions import both, computed, floats, integers, refused

BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize("op", [np.add, np.subtract, np.multiply, np.maximum, np.minimum])
def test_tensor_tensor(op):
    a, b = floats(128, 96), floats(128, 96)
    assert np.array_equal(computed(lambda x, y: nisa.tensor_tensor(x, y, op=op), a, b), op(a, b))


def test_tensor_tensor_promotes():
    a, b = floats(64, 40).astype(np.float16), floats(64, 40).astype(BF16)
    found = computed(lambda x, y: nisa.tensor_tensor(x, y, op=nl.add), a, b)
    assert found.dtype == np.float32
    assert np.array_equal(found, a.astype(np.float32) + b.astype(np.float32))


def test_tensor_tensor_of_integers_is_exact():
    a, b = integers(64, 40, low=1 << 24, high=1 << 29), integers(64, 40, low=1, high=9)
    assert np.array_equal(computed(lambda x, y: nisa.tensor_tensor(x, y, op=np.add), a, b), a + b)


def test_bitvec_operands_of_two_sizes():
    a, b = integers(64, 40, high=200, dtype=np.uint8), integers(64, 40, high=60000, dtype=np.uint16)
    found = computed(lambda x, y: nisa.tensor_tensor(x, y, op=np.bitwise_and), a, b)
    assert found.dtype == np.uint16 and np.array_equal(found, a & b)


def test_tensor_tensor_where_both_are_in_psum():
    a = floats(64, 64)

    def body(x):
        one, two = nisa.nc_transpose(x), nisa.nc_transpose(x)
        return nisa.tensor_tensor(one, two, op=nl.add)

    assert np.array_equal(computed(body, a), a.T + a.T)


def test_power_of_a_tile_in_psum():
    a, b = floats(64, 64), floats(64, 64)
    found = computed(lambda x, y: nisa.tensor_tensor(nisa.nc_transpose(x), y, op=nl.power), a, b)
    assert np.allclose(found, a.T**b, rtol=1e-5)


def test_tensor_scalar_in_two_steps():
    a, column = floats(128, 300), floats(128, 1)
    found = computed(
        lambda x, c: nisa.tensor_scalar(x, op0=np.multiply, operand0=c, op1=np.subtract, operand1=2.5, reverse1=True),
        a,
        column,
    )
    assert np.array_equal(found, np.float32(2.5) - a * column)


def test_tensor_scalar_takes_columns_of_other_dtypes():
    a, column = floats(128, 64), floats(128, 1).astype(BF16)
    found = computed(lambda x, c: nisa.tensor_scalar(x, np.add, c, dtype=nl.bfloat16), a, column)
    assert found.dtype == BF16 and np.array_equal(found, (a + column.astype(np.float32)).astype(BF16))


def test_tensor_scalar_logical_not_and_bits():
    a = integers(32, 40, high=3)
    found = computed(lambda x: nisa.tensor_scalar(x, nl.logical_not, 0.0), a)
    assert np.array_equal(found, (a == 0).astype(np.int32))
    found = computed(lambda x: nisa.tensor_scalar(x, np.left_shift, 3, op1=np.bitwise_or, operand1=1), a)
    assert np.array_equal(found, (a << 3) | 1)


def test_rsqrt_of_psum():
    a = floats(64, 64)
    found = computed(lambda x: nisa.tensor_scalar(nisa.nc_transpose(x), nl.rsqrt, 0.0), a)
    assert np.allclose(found, 1 / np.sqrt(a.T), rtol=1e-5)


def test_scalar_tensor_tensor():
    a, c, b = floats(128, 64), floats(128, 1).astype(np.float16), floats(128, 64)

    def body(x, y, z):
        return nisa.scalar_tensor_tensor(data=x, op0=np.subtract, operand0=y, op1=np.multiply, operand1=z)

    assert np.array_equal(computed(body, a, c, b), (a - c.astype(np.float32)) * b)


@pytest.mark.parametrize("engine", [nisa.vector_engine, nisa.gpsimd_engine, nisa.scalar_engine, nisa.unknown_engine])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_tensor_copy_on_each_engine(engine, target):
    a = floats(128, 50)
    found = computed(lambda x: nisa.tensor_copy(x, engine=engine, dtype=nl.bfloat16), a, target=target)
    assert found.dtype == BF16 and np.array_equal(found, a.astype(BF16))


def test_reciprocal():
    a = floats(128, 50)
    assert np.array_equal(computed(nisa.reciprocal, a), 1 / a)


def test_dropout():
    a = floats(128, 400)
    found = computed(lambda x: nisa.dropout(x, prob=0.25), a)
    assert np.array_equal(found[found != 0], a[found != 0]) and 0.2 < (found == 0).mean() < 0.3
    assert not computed(lambda x: nisa.dropout(x, np.float32(1.0), dtype=nl.bfloat16), a).any()


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_activation_with_scale_and_bias(target):
    a, c = floats(128, 64), floats(128, 1).astype(BF16)
    found = computed(lambda x, b: nisa.activation(np.exp, x, bias=b, scale=0.5), a, c, target=target)
    assert np.allclose(found, np.exp(a * 0.5 + c.astype(np.float32)), rtol=1e-5)
    found = computed(lambda x: nisa.activation(nl.tanh, x, bias=0.25, scale=np.float32(2.0)), a, target=target)
    assert np.allclose(found, np.tanh(a * 2 + 0.25), rtol=1e-5)


def test_activation_sums_beside():
    a = floats(128, 64)

    def body(x):
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        powers = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        powers[...] = nisa.activation_reduce(np.exp, x, reduce_op=np.add, reduce_res=total[:, 0])
        more = nisa.activation(
            op=np.square, data=x, reduce_op=np.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reduce
        )
        return powers, more, total

    powers, more, total = computed(body, a)
    assert np.allclose(powers, np.exp(a), rtol=1e-5) and np.array_equal(more, a * a)
    assert np.allclose(total[:, 0], np.exp(a).sum(1) + (a * a).sum(1), rtol=1e-5)


def test_masked_parts_keep_what_was_there():
    a, b = floats(128, 100), floats(128, 100)

    def kernel(x, y):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        one, two = nl.load(x), nl.load(y)
        i_p, i_f = nl.mgrid[0:128, 0:100]
        inside = (i_p < 64) & (i_f >= 30)
        one[...] = nisa.tensor_tensor(one, two, op=nl.add, mask=inside)
        one[...] = nisa.tensor_scalar(one, np.multiply, 2.0, mask=i_p + i_f < 40)
        one[...] = nisa.activation(np.square, one, mask=i_p >= 96)
        nl.store(out, one)
        return out

    wanted = a.copy()
    wanted[:64, 30:] += b[:64, 30:]
    rows, columns = np.indices(a.shape)
    wanted = np.where(rows + columns < 40, wanted * 2, wanted)
    wanted[96:] **= 2
    assert np.array_equal(both(kernel, a, b), wanted)


@pytest.mark.parametrize(
    ("code", "words", "body"),
    [
        (
            "beta1.num_partition_mismatch",
            "data1[128, 64], data2[1, 64]",
            lambda x: nisa.tensor_tensor(x, x[0:1], np.add),
        ),
        (
            "beta1.activation_bias_invalid_type",
            "int32",
            lambda x: nisa.activation(np.exp, x, bias=nl.copy(x[:, 0], dtype=nl.int32)),
        ),
        (
            "beta1.activation_scale_invalid_type",
            "bfloat16",
            lambda x: nisa.activation(np.exp, x, scale=nl.copy(x[:, 0], dtype=nl.bfloat16)),
        ),
        ("beta1.activation_scale_scalar_or_vector", "[128, 64]", lambda x: nisa.activation(np.exp, x, scale=x)),
        ("beta1.argument", "no operator", lambda x: nisa.activation(len, x)),
        ("beta1.argument", "operand0", lambda x: nisa.tensor_scalar(x, np.add, x)),
        ("beta1.argument", "engine", lambda x: nisa.tensor_copy(x, engine="vector")),
        ("beta1.argument", "unexpected keyword", lambda x: nisa.reciprocal(x, fast=True)),
        (
            "beta1.argument",
            "reduce_res",
            lambda x: nisa.activation_reduce(np.exp, x, reduce_op=np.add, reduce_res=None),
        ),
    ],
)
def test_what_is_refused(code, words, body):
    error = refused(body, floats(128, 64))
    assert isinstance(error, Beta1Error) and error.code == code and words in str(error) and error.fix


def test_operands_of_other_ranks_and_repeated_rows():
    a, b, row, one = floats(128, 64), floats(128, 4, 16), floats(1, 64), floats(1, 1)

    def body(x, y, r, s):
        mixed = nisa.tensor_tensor(y, x, nl.add)
        both = nisa.scalar_tensor_tensor(
            data=y, op0=np.multiply, operand0=s.broadcast_to((128, 1)), op1=np.add, operand1=x
        )
        return mixed, both, nisa.tensor_tensor(x, r.broadcast_to((128, 64)), nl.multiply)

    mixed, both_of_them, rows = computed(body, a, b, row, one)
    wide = a.reshape(b.shape)
    assert np.array_equal(mixed, b + wide) and np.array_equal(both_of_them, b * one[0, 0] + wide)
    assert np.array_equal(rows, a * row)


def test_sums_beside_leave_out_what_a_mask_does():
    a = floats(128, 64)

    def body(x):
        total, made = nl.full((128, 1), -1.0, nl.float32), nl.zeros((128, 64), nl.float32)
        inside = (nl.arange(64)[None, :] < 10) & (nl.arange(128)[:, None] < 64)
        made[...] = nisa.activation_reduce(np.square, x, reduce_op=np.add, reduce_res=total[:, 0], mask=inside)
        return made, total

    made, total = computed(body, a)
    rows, columns = np.indices(a.shape)
    assert np.array_equal(made, np.where((rows < 64) & (columns < 10), a * a, 0))
    assert np.allclose(total[:64, 0], (a * a)[:64, :10].sum(1), rtol=1e-5) and (total[64:] == -1).all()
