"""Arguments that are no arrays, where a kernel uses them as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArgumentError
from tests.support import rejection


def add(a: Any, b: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a[0:128])
    nisa.dma_copy(dst=out, src=x)
    return out


def rows(a: Any, b: Any) -> Any:
    out = nl.ndarray((128, 8), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=b[0:128])
    return out


def helped(a: Any, b: Any) -> Any:
    return add(b, a)


def passed(a: Any, b: Any) -> Any:
    x = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(
        dst=x,
        src=b,
    )
    return a


def own_number(a: Any, b: Any) -> Any:
    x = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=3)
    return b


ARRAY = np.ones((128, 8), np.float32)


@pytest.mark.parametrize(
    ("kernel", "arguments", "says", "fix"),
    [
        (add, (3, 3), "a is int 3, and the kernel uses a.shape", "np.full((128, 512), 3, np.float32)"),
        (add, (2.5, ARRAY), "a is float 2.5, and", "np.full((128, 512), 2.5, np.float32)"),
        (add, ((1, 2), ARRAY), "a is tuple (1, 2)", "pass np.asarray(a, np.float32)"),
        (add, (((1, 2), (3, 4)), 3), "uses a.shape as of a tensor", "pass np.asarray(a, np.float32)"),
        (add, (None, ARRAY), "a is None", "pass an array"),
        (add, ("x", ARRAY), "a is str 'x'", "pass an array"),
        (rows, (ARRAY, 7), "b is int 7, and the kernel uses b[...]", "np.full"),
        (helped, (ARRAY, 5), "b is int 5", "np.full"),
        (passed, (ARRAY, 3), "b is int 3, and the kernel passes it on: src must be a tensor, not int 3", "np.full"),
        (passed, (ARRAY, None), "b is None, and the kernel passes it on", "pass an array"),
        (passed, (ARRAY, [1.0, 2.0]), "b is list [1.0, 2.0], and", "pass np.asarray(b, np.float32)"),
    ],
)
def test_the_argument_is_named(kernel: Any, arguments: tuple[Any, ...], says: str, fix: str) -> None:
    error = rejection(kernel, *arguments)
    assert (type(error), error.code) == (ArgumentError, "argument.no-array")
    assert says in error.message and fix in error.fix
    assert error.location.frame is not None and error.location.frame.file == __file__


def test_nested_lists_are_meant_as_arrays() -> None:
    assert "np.asarray(a, np.float32)" in rejection(add, [[1, 2], [3, 4]], ARRAY).fix


def own_mistake(a: Any, b: Any) -> Any:
    return (3).shape  # type: ignore[attr-defined]


def no_attribute_of_tensors(a: Any, b: Any) -> Any:
    return b.shap


@pytest.mark.parametrize("kernel", [own_mistake, no_attribute_of_tensors])
def test_other_errors_stay_as_they_are(kernel: Any) -> None:
    import nki

    for run in (nki.jit(kernel), nki.simulate(nki.jit(kernel))):
        with pytest.raises(AttributeError) as caught:
            run(ARRAY, 4)
        assert not isinstance(caught.value, ArgumentError)


def test_a_number_of_the_kernel_is_no_argument() -> None:
    """Also where an argument has the same value."""
    assert rejection(own_number, ARRAY, 3).code == "operand.kind"
