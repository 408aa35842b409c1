"""Elementwise operations of optimizers in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def _wide(*tensors: NDArray) -> list[NDArray]:
    """In float64; scalars that come 128 times once."""
    return [each.astype(np.float64) for each in tensors]


def _one(tensor: NDArray) -> float:
    return float(tensor[0, 0])


def add_scalar_kernel_reference(data: NDArray, scalar_tensor: NDArray, numel: int) -> NDArray:
    """See `add_scalar_kernel`."""
    return (data.astype(np.float64) + _one(scalar_tensor)).astype(data.dtype)


def sub_scalar_kernel_reference(data: NDArray, scalar_tensor: NDArray, numel: int) -> NDArray:
    """See `sub_scalar_kernel`."""
    return (data.astype(np.float64) - _one(scalar_tensor)).astype(data.dtype)


def mul_scalar_kernel_reference(data: NDArray, scalar_tensor: NDArray, numel: int) -> NDArray:
    """See `mul_scalar_kernel`."""
    return (data.astype(np.float64) * _one(scalar_tensor)).astype(data.dtype)


def div_scalar_kernel_reference(data: NDArray, scalar_tensor: NDArray, numel: int) -> NDArray:
    """See `div_scalar_kernel`."""
    return (data.astype(np.float64) / _one(scalar_tensor)).astype(data.dtype)


def add_tensor_kernel_reference(data1: NDArray, data2: NDArray, alpha_tensor: NDArray, numel: int) -> NDArray:
    """See `add_tensor_kernel`."""
    first, second = _wide(data1, data2)
    return (first + _one(alpha_tensor) * second).astype(data1.dtype)


def sub_tensor_kernel_reference(data1: NDArray, data2: NDArray, alpha_tensor: NDArray, numel: int) -> NDArray:
    """See `sub_tensor_kernel`."""
    first, second = _wide(data1, data2)
    return (first - _one(alpha_tensor) * second).astype(data1.dtype)


def mul_tensor_kernel_reference(data1: NDArray, data2: NDArray, numel: int) -> NDArray:
    """See `mul_tensor_kernel`."""
    first, second = _wide(data1, data2)
    return (first * second).astype(data1.dtype)


def div_tensor_kernel_reference(data1: NDArray, data2: NDArray, numel: int) -> NDArray:
    """See `div_tensor_kernel`."""
    first, second = _wide(data1, data2)
    return (first / second).astype(data1.dtype)


def addcdiv_kernel_reference(
    data: NDArray, data1: NDArray, data2: NDArray, value_tensor: NDArray, numel: int
) -> NDArray:
    """See `addcdiv_kernel`."""
    base, first, second = _wide(data, data1, data2)
    return (base + _one(value_tensor) * (first / second)).astype(data.dtype)


def addcmul_kernel_reference(
    data: NDArray, data1: NDArray, data2: NDArray, value_tensor: NDArray, numel: int
) -> NDArray:
    """See `addcmul_kernel`."""
    base, first, second = _wide(data, data1, data2)
    return (base + _one(value_tensor) * (first * second)).astype(data.dtype)


def lerp_kernel_reference(data: NDArray, end: NDArray, weight_tensor: NDArray, numel: int) -> NDArray:
    """See `lerp_kernel`."""
    start, stop = _wide(data, end)
    return (start + _one(weight_tensor) * (stop - start)).astype(data.dtype)


def sqrt_kernel_reference(data: NDArray, numel: int) -> NDArray:
    """See `sqrt_kernel`."""
    return np.sqrt(data.astype(np.float64)).astype(data.dtype)
