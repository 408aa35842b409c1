"""Python's operators on tensors: all refused, but for what asks whether an option was given."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki.core.errors import FrontendError
from tests.together import together

pytestmark = pytest.mark.filterwarnings("ignore:.*return.nothing:nki.report.NkiWarning")  # kernels for one line

X = np.arange(32, dtype=np.float32).reshape(4, 8)
BINARY = [getattr(operator, name) for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
    "lt", "le", "gt", "ge", "eq", "ne",
)]  # fmt: skip


def result(body: Callable[[Any], Any]) -> Any:
    """What a body computes with a tile, in the trace of a kernel."""
    found = []

    def kernel(a: Any) -> None:
        found.append(body(nl.load(a)))

    nki.simulate(kernel)(X)
    return found[0]


def refusal(body: Callable[[Any], Any]) -> FrontendError:
    with pytest.raises(FrontendError) as caught:
        result(body)
    return caught.value


@together("symbol", BINARY)
def test_two_operands(symbol: Callable[[Any, Any], Any]) -> None:
    for other in (1, 2.5, np.float32(1), X):
        assert refusal(lambda tile, other=other: symbol(tile, other)).code == "tensor.arithmetic"
    assert refusal(lambda tile: symbol(tile, tile)).code == "tensor.arithmetic"
    assert refusal(lambda tile: symbol(3, tile)).code == "tensor.arithmetic"


@pytest.mark.parametrize("symbol", [operator.neg, operator.invert, operator.abs], ids=lambda f: f.__name__)
def test_one_operand(symbol: Callable[[Any], Any]) -> None:
    assert refusal(symbol).code == "tensor.arithmetic"


@pytest.mark.parametrize("kind", [int, float, operator.index, range], ids=lambda f: f.__name__)
def test_python_numbers(kind: Callable[[Any], Any]) -> None:
    assert refusal(kind).code == "tensor.python-value"


def test_the_fix_names_the_function_with_the_operands_in_order() -> None:
    assert refusal(lambda tile: tile - 2).fix == "write nl.subtract(x, 2)"
    assert refusal(lambda tile: 2 - tile).fix == "write nl.subtract(2, x)"
    assert refusal(lambda tile: tile @ tile).fix == "write nl.matmul(x, y)"


IN_PLACE = [getattr(operator, name) for name in (
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor", "ilshift",
    "irshift",
)]  # fmt: skip


@pytest.mark.parametrize("symbol", IN_PLACE, ids=lambda function: function.__name__)
def test_in_place(symbol: Callable[[Any, Any], Any]) -> None:
    error = refusal(lambda tile: symbol(tile[:, 0:4], 3))
    assert error.code == "tensor.arithmetic" and "= with float32[4, 4] in sbuf" in error.message
    assert re.fullmatch(r"write x\[\.\.\.\] = (nl\.floor\()?nl\.\w+\(x, (1 / )?3\)+", error.fix)


A = np.array([[7, -7, 0, 41, 8], [49, -3, 98, 5, -8]])
PYTHON: list[tuple[Callable[[Any, Any], Any], Any, np.dtype[Any]]] = [
    (function, other, np.dtype(dtype))
    for function in (operator.truediv, operator.floordiv)
    for dtype in (np.float32, np.int32)
    for other in (2, -2, 0.25, np.float32(4))
] + [
    (operator.pow, 2, np.dtype(np.float32)),
    (operator.pow, 2, np.dtype(np.int32)),
    (operator.floordiv, 49, np.dtype(np.int32)),
    (operator.floordiv, 41, np.dtype(np.int32)),
]


@together("symbol, other, dtype", PYTHON)
def test_what_is_advised_computes_what_python_does(symbol: Any, other: Any, dtype: np.dtype[Any]) -> None:
    """The advice itself is executed; the reference is NumPy in float64."""

    def kernel(a: Any) -> Any:
        x = nl.load(a)
        with pytest.raises(FrontendError) as caught:
            symbol(x, other)
        value = eval(caught.value.fix.removeprefix("write "), {"nl": nl, "x": x})
        out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(out, value)
        return out

    expected = symbol(A.astype(np.float64), float(other))
    assert np.array_equal(nki.simulate(kernel)(A.astype(dtype)), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("number", [None, 24, -6])
def test_what_is_advised_for_tiles_that_divide(dtype: Any, number: int | None) -> None:
    """Of a number, and of another tile, by powers of two, whose reciprocals are exact."""
    divisors = np.array([[1, 2, 4, 8, 16], [1, 2, 4, 8, 2]])

    def kernel(a: Any, b: Any) -> Any:
        x, y = nl.load(a), nl.load(b)
        results = []
        for symbol in (operator.truediv, operator.floordiv):
            with pytest.raises(FrontendError) as caught:
                symbol(x if number is None else number, y)
            names = {"x": x, "y": y} if number is None else {"x": y}
            out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
            nl.store(out, eval(caught.value.fix.removeprefix("write "), {"nl": nl, **names}))
            results.append(out)
        return results

    quotient, floored = nki.simulate(kernel)(A.astype(dtype), divisors.astype(dtype))
    top = A if number is None else number
    assert np.array_equal(quotient, (top / divisors).astype(np.float32))
    assert np.array_equal(floored, (top // divisors).astype(np.float32))


def test_nothing_is_issued_before_an_operator_in_place_is_refused() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        with pytest.raises(FrontendError):
            tile[...] += 1
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    compiled = nki.jit(kernel)
    np.testing.assert_array_equal(compiled(X), X)
    assert [issued.instruction.name for issued in compiled.report.programs[0].body.walk()] == ["dma_copy", "dma_copy"]


def test_operands_in_hbm_are_loaded_first() -> None:
    def fix(body: Callable[[Any, Any], Any]) -> str:
        with pytest.raises(FrontendError) as caught:
            nki.simulate(lambda a: body(a, nl.load(a)))(X)
        return caught.value.fix

    assert fix(lambda hbm, tile: hbm + 1) == "write nl.add(nl.load(x), 1)"
    assert fix(lambda hbm, tile: tile + hbm) == "write nl.add(x, nl.load(y))"
    assert fix(lambda hbm, tile: 2 - hbm) == "write nl.subtract(2, nl.load(x))"
    assert fix(lambda hbm, tile: -hbm) == "write nl.negative(nl.load(x))"
    assert fix(operator.iadd) == "write x[...] = nl.add(nl.load(x), y)"


def test_every_function_that_a_fix_names_exists() -> None:
    for symbol in [*BINARY, operator.neg, operator.invert, operator.abs]:
        unary = symbol in (operator.neg, operator.invert, operator.abs)
        fix = refusal(symbol if unary else lambda tile, symbol=symbol: symbol(tile, 1)).fix
        names = [part.partition("(")[0] for part in fix.split("nl.")[1:]]
        assert names
        assert all(hasattr(nl, name) for name in names), fix


def test_options_may_be_compared() -> None:
    assert result(lambda tile: (tile == None, tile != None, tile == "auto")) == (False, True, False)  # noqa: E711
    assert result(lambda tile: tile in {tile: 1})
    assert result(lambda tile: [tile].index(tile)) == 0
