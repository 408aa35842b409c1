"""The warning of 32-bit integers that float32 changes: told where a result is another number, and only there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.report import NkiWarning
from tests.support import environment
from tests.together import together

CODE = "lint.integer-precision"
BIG = 2**24


def told(body: Callable[[Any, Any], None], value: int, dtype: str, out_dtype: Any = None) -> tuple[list[str], int]:
    """The codes of the warnings of an eager call, a compiled and a native one, which agree; and the result."""
    a = np.full((4, 8), 1, dtype)
    a[2, 5] = value

    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, out_dtype or a.dtype, buffer=nl.shared_hbm)
        x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        y = nl.ndarray(a.shape, out_dtype or a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a)
        body(y, x)
        nisa.dma_copy(dst=out, src=y)
        return out

    found, results = [], []
    runs = [("0", nki.simulate(kernel)), ("0", nki.jit(kernel))]
    if dtype == "int32":
        runs.append(("always", nki.jit(kernel)))
    for native, made in runs:
        with environment(NKI_NATIVE=native), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always", NkiWarning)
            results.append(int(made(a)[2, 5]))
        found.append([item.message.finding.code for item in seen if isinstance(item.message, NkiWarning)])
    assert all(each == found[0] for each in found) and len(set(results)) == 1
    return found[0], results[0]


def scalar(op: Any, operand: float, more: Any = None) -> Callable[[Any, Any], None]:
    extra = {} if more is None else {"op1": more[0], "operand1": more[1]}
    return lambda y, x: nisa.tensor_scalar(dst=y, data=x, op0=op, operand0=operand, **extra)


def vector(op: Any) -> Callable[[Any, Any], None]:
    return lambda y, x: nisa.tensor_tensor(dst=y, data1=x, data2=x, op=op, engine=nisa.engine.vector)


@together("dtype", ["int32", "uint32"])
@pytest.mark.parametrize(
    ("body", "value", "exact"),
    [
        (scalar(nl.multiply, 3), BIG // 2 + 1, 3 * (BIG // 2 + 1)),
        (scalar(nl.multiply, 65536), 77, 77 * 65536),
        (scalar(nl.add, 1), BIG, BIG + 1),
        (scalar(nl.add, 1), BIG - 1, BIG),
        (scalar(nl.add, 2), BIG, BIG + 2),
        (scalar(nl.add, 0), BIG + 1, BIG + 1),
        (scalar(nl.add, 0), 2**31 - 128, 2**31 - 128),
        (scalar(nl.subtract, 1), BIG + 1, BIG),
        (scalar(nl.multiply, 1000, (nl.add, 7)), 20000, 20000007),
        (scalar(nl.multiply, 2.0**40), 3, 3 * 2**40),
        (vector(nl.add), BIG + 2, 2 * BIG + 4),
        (vector(nl.multiply), 5000, 25000000),
        (vector(nl.multiply), 4099, 4099**2),
    ],
)
def test_it_is_told_where_the_result_is_another_number(body: Any, value: int, exact: int, dtype: str) -> None:
    codes, result = told(body, value, dtype)
    rounded = int(np.float32(value)) != value
    assert codes == ([CODE] if result != exact or rounded else [])


@pytest.mark.parametrize(("value", "below"), [(-BIG - 1, 1), (-BIG, 1), (-(2**31), 1), (-7, 1), (BIG + 1, 0)])
def test_numbers_that_are_compared(value: int, below: int) -> None:
    codes, result = told(scalar(nl.less, 5), value, "int32", nl.uint8)
    assert result == below and codes == ([CODE] if int(np.float32(value)) != value else [])


@pytest.mark.parametrize(("value", "expected"), [(BIG - 8, []), (BIG, [CODE])])
def test_sums(value: int, expected: list[str]) -> None:
    def body(y: Any, x: Any) -> None:
        nisa.tensor_reduce(dst=y[:, 0:1], op=nl.add, data=x, axis=1)
        nisa.tensor_copy(dst=y[:, 1:8], src=x[:, 0:7])

    assert told(body, value, "int32")[0] == expected


@pytest.mark.parametrize(
    "body",
    [
        lambda y, x: nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.add),  # on GpSimd, exactly
        scalar(nl.bitwise_xor, 1),
        lambda y, x: nisa.tensor_copy(dst=y, src=x),
    ],
)
def test_exact_instructions_are_not_told(body: Any) -> None:
    assert told(body, BIG + 1, "int32")[0] == []


def test_integers_that_become_floats_are_not_told() -> None:
    assert told(scalar(nl.multiply, 0.5), 2 * BIG + 2, "int32", nl.float32)[0] == []
