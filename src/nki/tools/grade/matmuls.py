"""Counts the operations of matrix products while a NumPy function runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np


class Counter:
    """Multiplications and additions so far."""

    def __init__(self) -> None:
        self.flops = 0.0


class _Counted(np.ndarray):
    """An array whose products are counted; everything else is NumPy's."""

    counter: Counter | None = None

    def __array_finalize__(self, parent: Any) -> None:
        self.counter = getattr(parent, "counter", None)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **more: Any) -> Any:
        if ufunc is np.matmul and method == "__call__":
            _count(self.counter, _matmul(*inputs))
        found = getattr(ufunc, method)(*map(plain, inputs), **{name: plain(each) for name, each in more.items()})
        return _again(found, self.counter)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        product = _PRODUCTS.get(function)
        if product is not None:
            _count(self.counter, product(*args, **kwargs))
        return _again(function(*plain(args), **plain(kwargs)), self.counter)

    def dot(self, other: Any, out: Any = None) -> Any:
        """As `numpy.dot`, which NumPy's method is not a call of."""
        return np.dot(self, other, out)


def counted(array: np.ndarray, counter: Counter) -> np.ndarray:
    """A view of an array that counts the products which are made of it."""
    found = array.view(_Counted)
    found.counter = counter
    return found


def plain(value: Any) -> Any:
    """Arrays as NumPy's own, also in tuples, lists and dictionaries."""
    match value:
        case _Counted():
            return value.view(np.ndarray)
        case tuple() | list():
            return type(value)(plain(item) for item in value)
        case dict():
            return {name: plain(item) for name, item in value.items()}
    return value


def _again(value: Any, counter: Counter | None) -> Any:
    if isinstance(value, np.ndarray) and counter is not None:
        return counted(value, counter)
    return type(value)(_again(item, counter) for item in value) if type(value) in (tuple, list) else value


def _count(counter: Counter | None, flops: float) -> None:
    if counter is not None:
        counter.flops += flops


def _matmul(left: Any, right: Any) -> float:
    """2 m k n for each pair of matrices."""
    first, second = np.shape(left), np.shape(right)
    rows, columns = (first[-2] if len(first) > 1 else 1), (second[-1] if len(second) > 1 else 1)
    return 2.0 * prod(np.broadcast_shapes(first[:-2], second[:-2])) * rows * first[-1] * columns


def _dot(left: Any, right: Any, *_: Any, **__: Any) -> float:
    first, second = np.shape(left), np.shape(right)
    if not first or not second:
        return 0.0
    return 2.0 * prod(first) * prod(second) / first[-1]


def _inner(left: Any, right: Any, *_: Any, **__: Any) -> float:
    return _dot(left, right)


def _tensordot(left: Any, right: Any, axes: Any = 2, *_: Any) -> float:
    first, second = np.shape(left), np.shape(right)
    if isinstance(axes, int):
        return 2.0 * prod(first) * prod(second[axes:])
    summed = axes[1] if isinstance(axes[1], Sequence) else [axes[1]]
    return 2.0 * prod(first) * prod(second) / prod(second[axis] for axis in summed)


def _einsum(subscripts: Any, *operands: Any, **_: Any) -> float:
    """All combinations of indices, multiplied and added; none where a single operand is only moved."""
    if not isinstance(subscripts, str) or len(operands) < 2:
        return 0.0
    sizes: dict[str, int] = {}
    for letters, operand in zip(subscripts.partition("->")[0].replace(" ", "").split(","), operands, strict=True):
        if "." not in letters:
            sizes |= dict(zip(letters, np.shape(operand), strict=True))
    return float(len(operands)) * prod(sizes.values())


_PRODUCTS: Mapping[Callable[..., Any], Callable[..., float]] = MappingProxyType(
    {np.dot: _dot, np.inner: _inner, np.tensordot: _tensordot, np.einsum: _einsum}
)
