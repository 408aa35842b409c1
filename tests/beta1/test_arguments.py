"""Arguments that functions of the first NKI refuse: none is accepted and not looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki as today
import nki.beta1 as nki
import nki.beta1.compiler as ncc
import nki.beta1.isa as nisa
import nki.beta1.language as nl
from nki.beta1.errors import Beta1Error


def _half(idx: Any, pdim_size: int, fdim_size: int) -> tuple[int, float]:
    return 0, 0.5


CASES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "rows and columns of a product": ("num_partition_mismatch", lambda x: nl.matmul(x, x)),
    "rows of a product": ("num_partition_mismatch", lambda x: nl.matmul(x[0:32], x, transpose_x=True)),
    "an axis that is not there": ("argument", lambda x: nl.sum(x, axis=5)),
    "one before the first": ("argument", lambda x: nl.max(x, axis=-3)),
    "an axis twice": ("argument", lambda x: nl.sum(x, axis=(1, -1))),
    "half an axis": ("argument", lambda x: nl.min(x, axis=1.5)),
    "an axis of an instruction": ("argument", lambda x: nisa.tensor_reduce(np.add, x, axis=2)),
    "a new axis": ("argument", lambda x: nl.expand_dims(x, 9)),
    "no axis of the grid": ("argument", lambda x: x * nl.program_id(3)),
    "a negative one": ("argument", lambda x: x * nl.num_programs(-1)),
    "a step of 0": ("argument", lambda x: [x for _ in nl.affine_range(0, 4, 0)]),
    "text for a number": ("argument", lambda x: nl.add(x, "1")),
    "nothing for a number": ("argument", lambda x: nl.where(x > 0, None, 1.0)),
    "text for a size": ("argument", lambda x: nl.rand((128, "4"))),
    "an order without its operator": ("argument", lambda x: nisa.tensor_scalar(x, np.subtract, 1.0, reverse1=True)),
    "text for a flag": ("argument", lambda x: nisa.tensor_reduce(np.add, x, axis=1, negate="no")),
    "text for an order": ("argument", lambda x: nisa.tensor_scalar(x, np.subtract, 1.0, reverse0="no")),
    "a mask of numbers": ("argument", lambda x: x * nl.add(3, 1, mask=nl.arange(4)[None, :] < 3)),
    "numbers that Python does not compute": ("argument", lambda x: x * nl.logical_and(3, 1)),
    "a place without a byte": ("allocation", lambda x: nl.zeros(x.shape, x.dtype, buffer=ncc.psum.alloc(_half))),
    "half a place": ("allocation", lambda x: nl.zeros(x.shape, x.dtype, buffer=ncc.sbuf.alloc(_half))),
    "an engine that does not transpose": ("argument", lambda x: nisa.nc_transpose(x, engine=nisa.scalar_engine)),
}


@pytest.mark.parametrize("name", list(CASES))
def test_an_argument_is_refused(name: str) -> None:
    code, body = CASES[name]

    def kernel(a: Any) -> Any:
        return body(nl.load(a))

    with pytest.raises(Beta1Error) as caught:
        nki.jit(kernel)[2](np.ones((128, 64), np.float32))
    assert caught.value.code == f"beta1.{code}" and caught.value.fix


def test_a_grid_is_made_of_numbers() -> None:
    with pytest.raises(Beta1Error, match="got True"):
        nki.jit(lambda a: a)[True]


def test_kernels_are_made_of_functions() -> None:
    for made in (3, today.jit(lambda a: a)):
        with pytest.raises(Beta1Error, match="is made of"):
            nki.jit(made)


def test_numbers_of_python_are_computed() -> None:
    @nki.jit
    def scaled(a: Any) -> Any:
        return nl.load(a) * nl.left_shift(nl.bitwise_or(2, 1), 2)

    np.testing.assert_array_equal(scaled(np.ones((128, 4), np.float32)), np.full((128, 4), 12, np.float32))


def test_axes_count_from_the_end_too() -> None:
    @nki.jit
    def sums(a: Any) -> Any:
        return nl.sum(nl.load(a), axis=-1, keepdims=True)

    np.testing.assert_array_equal(sums(np.ones((128, 64), np.float32)), np.full((128, 1), 64, np.float32))
