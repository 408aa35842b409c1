"""Operations on each of many tensors, which optimizers make of all parameters at once."""

from nkilib.experimental.foreach.foreach_elementwise import (
    add_scalar_kernel,
    add_tensor_kernel,
    addcdiv_kernel,
    addcmul_kernel,
    div_scalar_kernel,
    div_tensor_kernel,
    lerp_kernel,
    mul_scalar_kernel,
    mul_tensor_kernel,
    sqrt_kernel,
    sub_scalar_kernel,
    sub_tensor_kernel,
)
from nkilib.experimental.foreach.foreach_norm import l1_norm_kernel, l2_norm_kernel, linf_norm_kernel

__all__ = [
    "add_scalar_kernel",
    "add_tensor_kernel",
    "addcdiv_kernel",
    "addcmul_kernel",
    "div_scalar_kernel",
    "div_tensor_kernel",
    "l1_norm_kernel",
    "l2_norm_kernel",
    "lerp_kernel",
    "linf_norm_kernel",
    "mul_scalar_kernel",
    "mul_tensor_kernel",
    "sqrt_kernel",
    "sub_scalar_kernel",
    "sub_tensor_kernel",
]
