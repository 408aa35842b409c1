"""Forms that published kernels of the first NKI use, each in a small kernel of its own, against NumPy."""

from __future__ import annotations

import numpy as np

import nki.beta1.isa as nisa
import nki.beta1.language as nl
from nki.beta1.kernel import jit
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
