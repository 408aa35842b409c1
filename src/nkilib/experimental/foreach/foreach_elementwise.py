"""Elementwise operations of optimizers on tensors of any shape, with scalars that are known when the model runs.

Layouts: any shape, taken as its `numel` elements; a scalar comes 128 times, as (128, 1). Dtypes: bfloat16, float16 or
float32; arithmetic is float32, results round once to the dtype of the first tensor. Limits: none.

Plan: blocks of 128 partitions with kilobytes each; Vector needs one pass, of addcmul and lerp two, and the square root
one of Scalar, so that transfers bound them. No engine divides; the inverses of a tensor take Vector eight cycles for an
element, which bound those two. The cores of the launch divide the elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import flat
from nkilib.streaming import result, sbuf


@nki.jit
def add_scalar_kernel(data: nl.NkiTensor, scalar_tensor: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``data + scalar``."""
    return _with_scalar(nl.add, data, scalar_tensor, numel)


@nki.jit
def sub_scalar_kernel(data: nl.NkiTensor, scalar_tensor: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``data - scalar``."""
    return _with_scalar(nl.subtract, data, scalar_tensor, numel)


@nki.jit
def mul_scalar_kernel(data: nl.NkiTensor, scalar_tensor: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``data * scalar``."""
    return _with_scalar(nl.multiply, data, scalar_tensor, numel)


@nki.jit
def div_scalar_kernel(data: nl.NkiTensor, scalar_tensor: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``data / scalar``, as the product with the inverse, which rounds twice."""
    return _with_scalar(nl.multiply, data, scalar_tensor, numel, inverse=True)


@nki.jit
def add_tensor_kernel(data1: nl.NkiTensor, data2: nl.NkiTensor, alpha_tensor: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``data1 + alpha * data2``."""
    return _scaled(nl.add, data1, data2, alpha_tensor, numel)


@nki.jit
def sub_tensor_kernel(data1: nl.NkiTensor, data2: nl.NkiTensor, alpha_tensor: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``data1 - alpha * data2``."""
    return _scaled(nl.subtract, data1, data2, alpha_tensor, numel)


@nki.jit
def mul_tensor_kernel(data1: nl.NkiTensor, data2: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``data1 * data2``."""
    return _of_two(data1, data2, numel, inverse=False)


@nki.jit
def div_tensor_kernel(data1: nl.NkiTensor, data2: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``data1 / data2``, as the product with the inverse, which rounds twice."""
    return _of_two(data1, data2, numel, inverse=True)


@nki.jit
def addcdiv_kernel(
    data: nl.NkiTensor, data1: nl.NkiTensor, data2: nl.NkiTensor, value_tensor: nl.NkiTensor, numel: int
) -> nl.NkiTensor:
    """``data + value * (data1 / data2)``."""
    return _combined(data, data1, data2, value_tensor, numel, inverse=True)


@nki.jit
def addcmul_kernel(
    data: nl.NkiTensor, data1: nl.NkiTensor, data2: nl.NkiTensor, value_tensor: nl.NkiTensor, numel: int
) -> nl.NkiTensor:
    """``data + value * (data1 * data2)``."""
    return _combined(data, data1, data2, value_tensor, numel, inverse=False)


@nki.jit
def lerp_kernel(data: nl.NkiTensor, end: nl.NkiTensor, weight_tensor: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``data + weight * (end - data)``."""
    flat.checked(numel, {"weight_tensor": weight_tensor}, data=data, end=end)
    weight = flat.scalar(weight_tensor)

    def compute(into: Any, start: Any, stop: Any) -> None:
        way = sbuf(start.shape, nl.float32)
        nisa.tensor_tensor(dst=way, data1=stop, data2=start, op=nl.subtract)
        _multiply_add(way, weight, start, into)

    return _each(compute, numel, data, end)


@nki.jit
def sqrt_kernel(data: nl.NkiTensor, numel: int) -> nl.NkiTensor:
    """``sqrt(data)``; elements are not negative."""
    flat.checked(numel, data=data)

    def compute(into: Any, tile: Any) -> None:
        nisa.activation(dst=into, op=nl.sqrt, data=tile)

    return _each(compute, numel, data)


# ---------------------------------------------------------------------------------------------------------------- forms


def _each(compute: Callable[..., None], numel: int, *tensors: Any) -> Any:
    """A tensor like the first one, with ``compute(into, *tiles)`` done for every block."""
    out = result(tensors[0].shape, tensors[0].dtype)
    for block in flat.blocks(numel, out.dtype):
        found = list(flat.tiles(block, *tensors))
        into = sbuf(found[0].shape, out.dtype)
        compute(into, *found)
        flat.put(block, out, into)
    return out


def _with_scalar(op: Any, data: Any, scalar_tensor: Any, numel: int, inverse: bool = False) -> Any:
    """``data <op> scalar``, or of its inverse."""
    flat.checked(numel, {"scalar_tensor": scalar_tensor}, data=data)
    scalar = flat.scalar(scalar_tensor)
    if inverse:
        nisa.reciprocal(dst=scalar, data=scalar)

    def compute(into: Any, tile: Any) -> None:
        nisa.tensor_scalar(dst=into, data=tile, op0=op, operand0=scalar[: tile.shape[0]], engine=nisa.engine.vector)

    return _each(compute, numel, data)


def _of_two(data1: Any, data2: Any, numel: int, inverse: bool) -> Any:
    """``data1 * data2``, or with the inverse of data2."""
    flat.checked(numel, data1=data1, data2=data2)

    def compute(into: Any, first: Any, second: Any) -> None:
        nisa.tensor_tensor(dst=into, data1=first, data2=_inverse(second) if inverse else second, op=nl.multiply)

    return _each(compute, numel, data1, data2)


def _scaled(op: Any, data1: Any, data2: Any, alpha_tensor: Any, numel: int) -> Any:
    """``data1 <op> alpha * data2``."""
    flat.checked(numel, {"alpha_tensor": alpha_tensor}, data1=data1, data2=data2)
    alpha = flat.scalar(alpha_tensor)

    def compute(into: Any, first: Any, second: Any) -> None:
        _multiply_add(second, alpha, first, into, op)

    return _each(compute, numel, data1, data2)


def _combined(data: Any, data1: Any, data2: Any, value_tensor: Any, numel: int, inverse: bool) -> Any:
    """``data + value * (data1 * data2)``, or with the inverse of data2."""
    flat.checked(numel, {"value_tensor": value_tensor}, data=data, data1=data1, data2=data2)
    value = flat.scalar(value_tensor)

    def compute(into: Any, base: Any, first: Any, second: Any) -> None:
        both = sbuf(first.shape, nl.float32)
        second = _inverse(second) if inverse else second
        nisa.tensor_tensor(dst=both, data1=first, data2=second, op=nl.multiply)
        _multiply_add(both, value, base, into)

    return _each(compute, numel, data, data1, data2)


def _inverse(tile: Any) -> Any:
    """By Vector, in eight cycles for an element: for every number, where the function of Scalar has a range."""
    inverse = sbuf(tile.shape, nl.float32)
    nisa.reciprocal(dst=inverse, data=tile)
    return inverse


def _multiply_add(tile: Any, scalar: Any, base: Any, into: Any, op: Any = nl.add) -> None:
    """``into = base <op> tile * scalar``."""
    nisa.scalar_tensor_tensor(
        dst=into,
        data=tile,
        op0=nl.multiply,
        operand0=scalar[: tile.shape[0]],
        op1=op,
        operand1=base,
        reverse1=op is nl.subtract,
    )
