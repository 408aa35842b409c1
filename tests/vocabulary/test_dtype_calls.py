"""Dtypes are no functions: a kernel that calls one is told what to write."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.support import both, rejection

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def one(dtype: Any) -> Any:
    return dtype(1)


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16, nl.int32], ids=repr)
def test_a_call_is_told_what_to_write(dtype: Any) -> None:
    def kernel(a: Any) -> Any:
        return nl.add(nl.load(a), one(dtype))

    error = rejection(kernel, X)
    assert error.code == "dtype.call" and isinstance(error, TypeError)
    assert error.fix == "write the plain number, or nl.full((1, 1), number, dtype) for a tensor"
    inner, outer = error.location.frames
    assert linecache.getline(inner.file, inner.line)[inner.column : inner.end_column] == "dtype(1)"
    assert linecache.getline(outer.file, outer.line)[outer.column : outer.end_column] == "one(dtype)"


def test_dtypes_stay_objects_that_are_not_callable() -> None:
    assert not callable(nl.float32)


def test_other_mistakes_of_python_are_left_alone() -> None:
    def kernel(a: Any) -> Any:
        return one("text")

    for run in (nki.simulate(kernel), nki.jit(kernel)):
        with pytest.raises(TypeError, match=r"^'str' object is not callable$"):
            run(X)


def test_what_the_message_says_works() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        column = nl.full((4, 1), 2, nl.float32)
        nisa.dma_copy(dst=out, src=nl.multiply(nl.add(nl.load(a), 1), column))
        return out

    np.testing.assert_array_equal(both(kernel, X), (X + 1) * 2)
