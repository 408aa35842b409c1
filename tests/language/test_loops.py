"""Loops that unroll, loops on the device, and no_reorder."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import FrontendError, NkiError
from nki.spec.program import ForLoop, WhileLoop
from tests.language.support import normal, same
from tests.support import both, rejection
from tests.together import together

RANGES = ("affine_range", "sequential_range", "static_range", "range")


@pytest.mark.parametrize("name", RANGES)
@together("arguments", [(5,), (2, 7), (7, 2, -2), (0, 10, 3), (3, None, 2), (0,)])
def test_old_ranges_are_ranges(name: str, arguments: Any) -> None:
    with pytest.warns(DeprecationWarning, match=f"nl.{name} is deprecated; use range") as caught:
        got = getattr(nl, name)(*arguments)
    assert isinstance(got, range)
    bounds = (0, arguments[0], *arguments[2:]) if len(arguments) == 3 and arguments[1] is None else arguments
    assert list(got) == list(range(*bounds))
    assert caught[0].filename == __file__


def test_default_filters_do_not_flood() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(50):
            nl.affine_range(3)
    assert len(caught) == 1


@pytest.mark.parametrize("arguments", [(1.5,), ("3",), (0, 3, 0), (0, 3, 1.0)], ids=str)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_bounds_are_ints(arguments: Any) -> None:
    with pytest.raises(NkiError) as caught:
        nl.affine_range(*arguments)
    assert caught.value.fix


def test_dynamic_range_is_iterated_by_a_for_statement() -> None:
    error = rejection(lambda a: [list(nl.dynamic_range(4)), a][1], normal((4, 4)))
    assert isinstance(error, FrontendError) and error.code == "loop.dynamic-range"
    assert "nl.fori_loop" in error.fix


def _rows(a: Any, lower: Any, upper: Any, step: int = 1) -> Any:
    """Double every row from lower to upper."""
    out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)

    def body(i: Any) -> None:
        row = nl.ndarray((1, a.shape[1]), a.dtype)
        nisa.dma_copy(dst=row, src=a.select(0, i))
        nisa.dma_copy(dst=out.select(0, i), src=nl.multiply(row, 2))

    nl.fori_loop(lower, upper, body, step)
    return out


def _doubled(a: np.ndarray, lower: int, upper: int, step: int = 1) -> np.ndarray:
    wanted = np.zeros_like(a)
    wanted[lower:upper:step] = 2 * a[lower:upper:step]
    return wanted


@pytest.mark.parametrize(("lower", "upper", "step"), [(0, 6, 1), (1, 5, 2), (2, 2, 1), (5, 6, 3)])
def test_fori_loop(lower: int, upper: int, step: int) -> None:
    a = normal((6, 4))
    same(both(lambda x: _rows(x, lower, upper, step), a), _doubled(a, lower, upper, step))


def test_fori_loop_with_registers() -> None:
    def kernel(a: Any, bounds: Any) -> Any:
        lower, upper = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_load(lower, bounds[0:1])
        nisa.register_load(upper, bounds[1:2])
        return _rows(a, lower, upper)

    a = normal((6, 4))
    same(both(kernel, a, np.array([1, 4], np.int32)), _doubled(a, 1, 4))


def test_loops_are_kept_in_the_program() -> None:
    made = nki.jit(lambda x: _rows(x, 0, 6))
    made(normal((6, 4)))
    (loop,) = (item for item in made.report.programs[0].body.items if isinstance(item, ForLoop))
    assert (loop.lower, loop.upper, loop.step) == (0, 6, 1)


def _count_down(start: Any, a: Any, body: Any = None) -> Any:
    """Add one to a tile until a counter is 0; the counter register is loaded anew in each trip."""
    total, left = nl.zeros((1, 1), nl.int32), nl.load(a)

    def default(register: Any) -> Any:
        nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1.0)
        nisa.register_load(register, left)
        return register

    nl.while_loop(start, body or default)
    out = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
    nl.store(out, total)
    return out


@pytest.mark.parametrize("count", [0, 1, 5])
def test_while_loop(count: int) -> None:
    def kernel(a: Any) -> Any:
        start = nisa.register_alloc()
        nisa.register_load(start, nl.load(a))
        return _count_down(start, a)

    same(both(kernel, np.array([[count]], np.int32)), [[count]])


def test_while_loop_takes_the_register_that_the_body_returns() -> None:
    def kernel(a: Any) -> Any:
        total, left = nl.zeros((1, 1), nl.int32), nl.load(a)
        start = nisa.register_alloc(1)

        def body(_: Any) -> Any:
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1.0)
            following = nisa.register_alloc()
            nisa.register_load(following, left)
            return following

        nl.while_loop(start, body)
        nisa.register_store(left, start)  # unchanged by the loop
        out = nl.ndarray((1, 2), nl.int32, buffer=nl.shared_hbm)
        nl.store(out[:, 0:1], total)
        nl.store(out[:, 1:2], left)
        return out

    same(both(kernel, np.array([[4]], np.int32)), [[4, 1]])


def test_while_loop_is_kept_in_the_program() -> None:
    made = nki.jit(lambda a: _count_down(nisa.register_alloc(3), a))
    made(np.array([[3]], np.int32))
    assert sum(isinstance(item, WhileLoop) for item in made.report.programs[0].body.items) == 1


WRONG = {
    "loop.step": lambda a: nl.fori_loop(0, 4, lambda i: None, step=0),
    "loop.body": lambda a: nl.fori_loop(0, 4, None),
    "language.integer": lambda a: nl.fori_loop(0, 4.0, lambda i: None),
    "loop.result": lambda a: nl.fori_loop(0, 4, lambda i: i),
    "loop.condition": lambda a: nl.while_loop(3, lambda r: r),
    "register.python-value": lambda a: nl.fori_loop(0, 4, lambda i: not i),
}


@pytest.mark.parametrize("code", WRONG)
def test_wrong_loops(code: str) -> None:
    error = rejection(lambda a: WRONG[code](a) or a, normal((4, 4)))
    assert error.code == code and error.fix


def test_while_body_without_result() -> None:
    error = rejection(lambda a: _count_down(nisa.register_alloc(1), a, lambda r: None), np.array([[1]], np.int32))
    assert error.code == "loop.result" and error.fix


def test_no_reorder_allows_python_loops() -> None:
    def kernel(a: Any) -> Any:
        with nl.no_reorder():
            tile = nl.load(a)
            for _ in range(3):
                with nl.no_reorder():
                    tile = nl.add(tile, 1)
            out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
            nl.store(out, tile)
        return out

    a = np.float32([[1, 2]])
    same(both(kernel, a), a + 3)


@pytest.mark.parametrize(
    "loop",
    [
        lambda: nl.fori_loop(0, 4, lambda i: None),
        lambda: nl.while_loop(nisa.register_alloc(1), lambda r: r),
    ],
)
def test_no_reorder_refuses_device_loops(loop: Any) -> None:
    def kernel(a: Any) -> Any:
        with nl.no_reorder():
            loop()
        return a

    error = rejection(kernel, normal((4, 4)))
    assert error.code == "loop.no-reorder" and error.fix


def test_no_reorder_ends_with_its_block_even_after_an_error() -> None:
    def kernel(a: Any) -> Any:
        try:
            with nl.no_reorder():
                raise KeyError("mine")
        except KeyError:
            return _rows(a, 0, 6)

    a = normal((6, 4))
    same(both(kernel, a), 2 * a)
