"""``for i in nl.dynamic_range(...)`` in all places where a function can be."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.language import dynamic_range as rows_of
from tests.frontend.kernels.accepted.case import Case, X, number


def output(a: Any) -> Any:
    return nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)


def double_row(out: Any, a: Any, i: Any) -> None:
    row = nl.ndarray((1, a.shape[1]), a.dtype)
    nisa.dma_copy(dst=row, src=a.select(0, i))
    nisa.dma_copy(dst=out.select(0, i), src=nl.multiply(row, 2))


def plain(a: Any, n: Any) -> Any:
    out = output(a)
    for i in nl.dynamic_range(1, nisa.scalar_load(nl.load(n)), 2):
        double_row(out, a, i)
    return out


def register_bounds(a: Any, n: Any) -> Any:
    out = output(a)
    start, stop = nisa.register_alloc(1), nisa.register_alloc()
    nisa.register_load(stop, nl.load(n))
    for i in nl.dynamic_range(start, stop, step=2):
        double_row(out, a, i)
    return out


def by_access_pattern(a: Any, n: Any) -> Any:
    out = output(a)
    size = a.shape[1]
    for i in rows_of(1, nisa.register_alloc(nl.load(n)), 2):
        row = nl.ndarray((1, size), a.dtype)
        nisa.dma_copy(dst=row, src=a.ap([[size, 1], [1, size]], scalar_offset=i))
        nisa.tensor_scalar(dst=row, data=row, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out.ap([[size, 1], [1, size]], scalar_offset=i), src=row)
    return out


class Doubler:
    """Loops in methods, class methods and properties."""

    def __init__(self, a: Any) -> None:
        self.a = a
        self.out = output(a)

    def run(self, n: Any) -> Any:
        for i in nl.dynamic_range(1, n, 2):
            self.step(i)
        else:  # noqa: PLW0120
            self.finished = True
        return self.out

    def step(self, i: Any) -> None:
        double_row(self.out, self.a, i)

    @classmethod
    def of(cls, a: Any, n: Any) -> Any:
        return cls(a).run(n)


def method(a: Any, n: Any) -> Any:
    return Doubler.of(a, nisa.scalar_load(nl.load(n)))


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def nested_function_with_decorator_and_default(a: Any, n: Any) -> Any:
    out = output(a)
    count = nisa.scalar_load(nl.load(n))

    @traced
    def go(step: int = 2) -> None:
        first = 1
        for i in nl.dynamic_range(first, count, step):
            double_row(out, a, i)

    {"go": go}["go"]()
    return out


@nki.jit
def inner_kernel(out: Any, a: Any, count: Any) -> None:
    for i in nl.dynamic_range(1, count, 2):
        double_row(out, a, i)


def other_kernel(a: Any, n: Any) -> Any:
    out = output(a)
    inner_kernel(out, a, nisa.scalar_load(nl.load(n)))
    return out


def generator(a: Any, n: Any) -> Any:
    out = output(a)

    def indices(count: Any) -> Iterator[Any]:
        for i in nl.dynamic_range(1, count, 2):  # noqa: UP028
            yield i

    for i in indices(nisa.scalar_load(nl.load(n))):
        double_row(out, a, i)
    return out


def dead_and_equal_names(a: Any, n: Any) -> Any:
    """Names of before may be bound again where nobody reads what they held, or to the same constant."""
    out = output(a)
    row = nl.load(a[0:1])
    nisa.dma_copy(dst=out[0:1], src=nl.multiply(row, 0))
    i, factor = 0, 2
    for i in nl.dynamic_range(1, nisa.scalar_load(nl.load(n)), 2):
        row = nl.ndarray((1, a.shape[1]), a.dtype)
        nisa.dma_copy(dst=row, src=a.select(0, i))
        for _ in range(3):
            if _ == 1:
                break
        nisa.dma_copy(dst=out.select(0, i), src=nl.multiply(row, factor))
        factor = 2
    row = nl.load(a[0:1])
    return out


def odd_rows(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    result = np.zeros_like(a)
    result[1 : int(n[0, 0]) : 2] = 2 * a[1 : int(n[0, 0]) : 2]
    return result


def nested(a: Any, n: Any) -> Any:
    """Row i is its own value times the number of pairs (j, k) with j <= i and k < n."""
    out = output(a)
    count = nisa.scalar_load(nl.load(n))
    for i in nl.dynamic_range(a.shape[0]):
        total = nl.zeros((1, a.shape[1]), a.dtype)
        row = nl.ndarray((1, a.shape[1]), a.dtype)
        nisa.dma_copy(dst=row, src=a.select(0, i))
        for _ in nl.dynamic_range(i + 1):
            for _ in nl.dynamic_range(count):
                nisa.tensor_tensor(dst=total, data1=total, data2=row, op=nl.add)
        nisa.dma_copy(dst=out.select(0, i), src=total)
    return out


def counted(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    return a * (1 + np.arange(len(a), dtype=a.dtype))[:, None] * int(n[0, 0])


COUNTS = [(X, number(n)) for n in (0, 1, 2, 7)]
CASES = [
    *(
        Case(kernel, COUNTS, odd_rows)
        for kernel in (
            plain,
            register_bounds,
            by_access_pattern,
            method,
            nested_function_with_decorator_and_default,
            other_kernel,
            generator,
            dead_and_equal_names,
        )
    ),
    Case(nested, [(X, number(n)) for n in (0, 1, 3)], counted),
]
