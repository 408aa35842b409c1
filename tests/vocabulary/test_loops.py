"""Every loop: unrolled, or on the device with bounds and conditions in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import FrontendError
from nki.spec.program import ForLoop
from tests.support import both, rejection
from tests.together import together

X = np.arange(1, 61, dtype=np.float32).reshape(10, 6)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

BOUNDS = [(0, 10, 1), (2, 9, 1), (1, 10, 3), (4, 4, 1)]
UNROLLED = (nl.sequential_range, nl.affine_range, nl.static_range, range)
ON_THE_DEVICE = (nl.dynamic_range, nl.sequential_range, nl.affine_range)


def number(value: int) -> np.ndarray:
    return np.array([[value]], np.int32)


def doubled(start: int, stop: int, step: int) -> np.ndarray:
    wanted = np.zeros_like(X)
    for row in range(start, stop, step):
        wanted[row] = X[row] + X[row]
    return wanted


def double_row(out: Any, a: Any, i: Any) -> None:
    row = nl.ndarray((1, a.shape[1]), a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=row, src=a.select(0, i))
    nisa.tensor_tensor(row, row, row, nl.add)
    nisa.dma_copy(dst=out.select(0, i), src=row)


@together("bounds", BOUNDS)
@pytest.mark.parametrize("loop", [*UNROLLED, nl.dynamic_range], ids=lambda f: f.__name__)
def test_loops_over_numbers(loop: Any, bounds: tuple[int, int, int]) -> None:
    start, stop, step = bounds

    def kernel(a: Any) -> Any:
        out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
        for i in loop(start, stop, step):
            double_row(out, a, i)
        return out

    np.testing.assert_array_equal(both(kernel, X), doubled(*bounds))


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("loop", ON_THE_DEVICE, ids=lambda f: f.__name__)
def test_loops_between_registers(loop: Any, bounds: tuple[int, int, int]) -> None:
    start, stop, step = bounds

    def kernel(a: Any, lower: Any, upper: Any) -> Any:
        out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
        first, last = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_load(first, lower)
        nisa.register_load(last, upper)
        for i in loop(first, last, step):
            double_row(out, a, i)
        return out

    np.testing.assert_array_equal(both(kernel, X, number(start), number(stop)), doubled(*bounds))


@pytest.mark.parametrize("loop", ON_THE_DEVICE, ids=lambda f: f.__name__)
def test_one_register_is_the_end(loop: Any) -> None:
    def kernel(a: Any, upper: Any) -> Any:
        out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
        for i in loop(nisa.register_alloc(upper)):
            double_row(out, a, i)
        return out

    for count in (0, 1, 7):
        np.testing.assert_array_equal(both(kernel, X, number(count)), doubled(0, count, 1))
    made = nki.jit(kernel)
    made(X, number(7))
    assert sum(isinstance(item, ForLoop) for item in made.report.programs[0].body.items) == 1


def test_the_loop_that_is_unrolled_by_name_takes_no_register() -> None:
    def kernel(a: Any) -> Any:
        for _ in nl.static_range(nisa.register_alloc(3)):
            nl.load(a)
        return a

    error = rejection(kernel, X)
    assert isinstance(error, FrontendError)
    assert error.code == "register.python-value" and "nl.fori_loop" in error.fix


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["sequential_range", "affine_range"])
def test_a_register_in_an_old_range_names_its_successor(name: str) -> None:
    def kernel(a: Any) -> Any:
        for _ in getattr(nl, name)(nisa.register_alloc(2)):
            nl.load(a)
        return a

    with pytest.warns(DeprecationWarning, match=rf"nl\.{name} of a register .* nl\.fori_loop") as caught:
        nki.jit(kernel)(X)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("bounds", BOUNDS)
def test_fori_loop(bounds: tuple[int, int, int]) -> None:
    start, stop, step = bounds

    def kernel(a: Any, upper: Any) -> Any:
        out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.fori_loop(start, nisa.register_alloc(upper), lambda i: double_row(out, a, i), step)
        return out

    np.testing.assert_array_equal(both(kernel, X, number(stop)), doubled(*bounds))


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("form", ["statement", "computed", "function"])
def test_a_while_loop_on_a_register_from_a_tensor(form: str, count: int) -> None:
    """Adds a to the total as often as the tensor says, and counts it down."""

    def kernel(a: Any, n: Any) -> Any:
        left, total, tile = nl.load(n), nl.zeros(a.shape, a.dtype, buffer=nl.sbuf), nl.load(a)
        register = nisa.register_alloc(left)

        def body() -> None:
            nisa.tensor_tensor(total, total, tile, nl.add)
            nisa.tensor_scalar(left, left, nl.subtract, 1.0)

        def again(condition: Any) -> Any:
            body()
            nisa.register_load(condition, left)
            return condition

        if form == "statement":
            while register:
                body()
                nisa.register_load(register, left)
        elif form == "computed":
            while nisa.scalar_load(left) > 0:
                body()
        else:
            nl.while_loop(register, again)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    np.testing.assert_array_equal(both(kernel, X, number(count)), count * X)
