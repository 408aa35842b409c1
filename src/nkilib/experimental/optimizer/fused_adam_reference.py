"""A step of Adam and of AdamW in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def adam_kernel_reference(
    param_ptr: NDArray,
    grad_ptr: NDArray,
    exp_avg_ptr: NDArray,
    exp_avg_sq_ptr: NDArray,
    max_exp_avg_sq_ptr: NDArray | None,
    step_size_ptr: NDArray,
    inv_bc2_sqrt_ptr: NDArray,
    wd_factor_ptr: NDArray,
    numel: int,
    beta1: float,
    beta2: float,
    eps: float,
    amsgrad: bool = False,
) -> tuple[NDArray, ...]:
    """See `adam_kernel`."""
    grad = grad_ptr.astype(np.float64) + float(wd_factor_ptr[0, 0]) * param_ptr.astype(np.float64)
    largest = max_exp_avg_sq_ptr if amsgrad else None
    numbers = (float(step_size_ptr[0, 0]), float(inv_bc2_sqrt_ptr[0, 0]), beta1, beta2, eps)
    return _step(param_ptr, grad, exp_avg_ptr, exp_avg_sq_ptr, largest, 1.0, *numbers)


def adamw_kernel_reference(
    param_ptr: NDArray,
    grad_ptr: NDArray,
    exp_avg_ptr: NDArray,
    exp_avg_sq_ptr: NDArray,
    max_exp_avg_sq_ptr: NDArray | None,
    step_size_ptr: NDArray,
    inv_bc2_sqrt_ptr: NDArray,
    wd_factor_ptr: NDArray,
    numel: int,
    beta1: float,
    beta2: float,
    eps: float,
    amsgrad: bool = False,
) -> tuple[NDArray, ...]:
    """See `adamw_kernel`."""
    largest = max_exp_avg_sq_ptr if amsgrad else None
    numbers = (float(step_size_ptr[0, 0]), float(inv_bc2_sqrt_ptr[0, 0]), beta1, beta2, eps)
    grad = grad_ptr.astype(np.float64)
    return _step(param_ptr, grad, exp_avg_ptr, exp_avg_sq_ptr, largest, float(wd_factor_ptr[0, 0]), *numbers)


def _step(
    param: NDArray,
    grad: NDArray,
    first: NDArray,
    second: NDArray,
    largest: NDArray | None,
    kept: float,
    step: float,
    correction: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> tuple[NDArray, ...]:
    dtype = param.dtype
    m = beta1 * first.astype(np.float64) + (1 - beta1) * grad
    v = beta2 * second.astype(np.float64) + (1 - beta2) * grad**2
    below = v if largest is None else np.maximum(largest.astype(np.float64), v)
    new = param.astype(np.float64) * kept - step * m / (np.sqrt(below) * correction + eps)
    found = [new, m, v] if largest is None else [new, m, v, below]
    return tuple(each.astype(dtype) for each in found)
