"""A step of Adam and of AdamW::

    g = grad + decay * param                          Adam; AdamW has g = grad
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2                amsgrad: then largest = max(largest, v), which stands for v below
    param = param - step_size * m / (sqrt(v) * inv_bc2_sqrt + eps)
                                                      AdamW: of param * decay, where decay is 1 - rate * lambda

Layouts: tensors of any shape, taken as their `numel` elements; scalars that change from step to step come 128 times, as
(128, 1). Dtypes: bfloat16, float16 or float32 for the tensors, one for all; arithmetic is float32, results round once.
Limits: none.

Plan: transfers of four or five tensors in and three or four out bound the kernel; Vector has sums of products, Scalar
squares, square roots and inverses.

Source: Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101; Reddi et al., arXiv:1904.09237.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import flat, limits
from nkilib.streaming import result, sbuf


@nki.jit
def adam_kernel(
    param_ptr: nl.NkiTensor,
    grad_ptr: nl.NkiTensor,
    exp_avg_ptr: nl.NkiTensor,
    exp_avg_sq_ptr: nl.NkiTensor,
    max_exp_avg_sq_ptr: nl.NkiTensor | None,
    step_size_ptr: nl.NkiTensor,
    inv_bc2_sqrt_ptr: nl.NkiTensor,
    wd_factor_ptr: nl.NkiTensor,
    numel: int,
    beta1: float,
    beta2: float,
    eps: float,
    amsgrad: bool = False,
) -> tuple[nl.NkiTensor, ...]:
    """A step of Adam, whose decay is added to the gradient; the cores of the launch divide the elements.

    Args:
        param_ptr, grad_ptr, exp_avg_ptr, exp_avg_sq_ptr: parameters, their gradients, and the two moments.
        max_exp_avg_sq_ptr: the largest second moments so far, with `amsgrad`; otherwise not read, and may be None.
        step_size_ptr: (128, 1), the rate over ``1 - beta1**step``.
        inv_bc2_sqrt_ptr: (128, 1), ``1 / sqrt(1 - beta2**step)``.
        wd_factor_ptr: (128, 1), the decay.
        numel: elements of each tensor.
        beta1, beta2: decays of the moments, at least 0 and less than 1.
        eps: added to the root of the second moment.
        amsgrad: divide by the largest second moment so far.

    Returns:
        New parameters and moments, with `amsgrad` also the new largest ones, each like its argument.

    Raises:
        KernelLimit: numbers of elements, shapes of scalars, dtypes, decays outside of 0 to 1.
    """
    tensors = _Tensors(param_ptr, grad_ptr, exp_avg_ptr, exp_avg_sq_ptr, max_exp_avg_sq_ptr if amsgrad else None)
    return _step(tensors, (step_size_ptr, inv_bc2_sqrt_ptr, wd_factor_ptr), numel, (beta1, beta2, eps), False)


@nki.jit
def adamw_kernel(
    param_ptr: nl.NkiTensor,
    grad_ptr: nl.NkiTensor,
    exp_avg_ptr: nl.NkiTensor,
    exp_avg_sq_ptr: nl.NkiTensor,
    max_exp_avg_sq_ptr: nl.NkiTensor | None,
    step_size_ptr: nl.NkiTensor,
    inv_bc2_sqrt_ptr: nl.NkiTensor,
    wd_factor_ptr: nl.NkiTensor,
    numel: int,
    beta1: float,
    beta2: float,
    eps: float,
    amsgrad: bool = False,
) -> tuple[nl.NkiTensor, ...]:
    """A step of AdamW, whose decay is a factor of the parameters; the cores of the launch divide the elements.

    Args:
        wd_factor_ptr: (128, 1), 1 minus the rate times the decay.

    All else is as in `adam_kernel`.
    """
    tensors = _Tensors(param_ptr, grad_ptr, exp_avg_ptr, exp_avg_sq_ptr, max_exp_avg_sq_ptr if amsgrad else None)
    return _step(tensors, (step_size_ptr, inv_bc2_sqrt_ptr, wd_factor_ptr), numel, (beta1, beta2, eps), True)


class _Tensors(nl.NKIObject):
    """Parameters, gradients, both moments, and the largest second moments or None."""

    def __init__(self, param: Any, grad: Any, first: Any, second: Any, largest: Any) -> None:
        self.param, self.grad, self.first, self.second, self.largest = param, grad, first, second, largest


def _step(
    tensors: _Tensors, scalars: tuple[Any, ...], numel: int, numbers: tuple[float, float, float], decoupled: bool
) -> tuple[Any, ...]:
    _check(tensors, scalars, numel, numbers)
    step, correction, decay = (flat.scalar(each) for each in scalars)
    changed = [each for each in (tensors.param, tensors.first, tensors.second, tensors.largest) if each is not None]
    out = [result(each.shape, each.dtype) for each in changed]
    for block in flat.blocks(numel, tensors.param.dtype):
        param, first, second, *largest = flat.tiles(block, *changed)
        (grad,) = flat.tiles(block, tensors.grad)
        here = slice(0, block.partitions)
        if not decoupled:
            grad = _scaled_sum(param, decay[here], grad)
        first = _moment(first, grad, numbers[0])
        second = _moment(second, _squared(grad), numbers[1])
        if largest:
            largest = [_of_two(nl.maximum, largest[0], second)]
        ratio = _ratio(first, largest[0] if largest else second, correction[here], numbers[2])
        kept = _times(param, decay[here]) if decoupled else param
        found = (_scaled_sum(ratio, _negative(step[here]), kept), first, second, *largest)
        for tensor, tile in zip(out, found, strict=True):
            flat.put(block, tensor, _as(tile, tensor.dtype))
    return tuple(out)


def _check(tensors: _Tensors, scalars: tuple[Any, ...], numel: int, numbers: tuple[float, float, float]) -> None:
    names = ("param_ptr", "grad_ptr", "exp_avg_ptr", "exp_avg_sq_ptr", "max_exp_avg_sq_ptr")
    given = (tensors.param, tensors.grad, tensors.first, tensors.second, tensors.largest)
    present = {name: tensor for name, tensor in zip(names, given, strict=True) if tensor is not None}
    of_scalars = dict(zip(("step_size_ptr", "inv_bc2_sqrt_ptr", "wd_factor_ptr"), scalars, strict=True))
    flat.checked(numel, of_scalars, **present)
    limits.same_dtype(**present)
    for name, value in zip(("beta1", "beta2"), numbers, strict=False):
        limits.need(0 <= value < 1, name, value, f"{name} is at least 0 and less than 1", f"pass {name} of 0 to 1")
    limits.need(numbers[2] >= 0, "eps", numbers[2], "eps is not negative", "pass an eps of 0 or more")


def _moment(moment: Any, new: Any, beta: float) -> Any:
    """``beta * moment + (1 - beta) * new``; Scalar scales the new one."""
    share, total = sbuf(new.shape, nl.float32), sbuf(new.shape, nl.float32)
    nisa.activation(dst=share, op=nl.copy, data=new, scale=1.0 - beta)
    nisa.scalar_tensor_tensor(dst=total, data=moment, op0=nl.multiply, operand0=beta, op1=nl.add, operand1=share)
    return total


def _ratio(first: Any, second: Any, correction: Any, eps: float) -> Any:
    """``first / (sqrt(second) * correction + eps)``."""
    root, below, inverse = (sbuf(second.shape, nl.float32) for _ in range(3))
    nisa.activation(dst=root, op=nl.sqrt, data=second)
    nisa.tensor_scalar(dst=below, data=root, op0=nl.multiply, operand0=correction, op1=nl.add, operand1=eps)
    nisa.activation(dst=inverse, op=nl.reciprocal, data=below)
    return _of_two(nl.multiply, first, inverse)


def _squared(tile: Any) -> Any:
    square = sbuf(tile.shape, nl.float32)
    nisa.activation(dst=square, op=nl.square, data=tile)
    return square


def _of_two(op: Any, first: Any, second: Any) -> Any:
    both = sbuf(second.shape, nl.float32)
    nisa.tensor_tensor(dst=both, data1=first, data2=second, op=op)
    return both


def _times(tile: Any, scalar: Any) -> Any:
    product = sbuf(tile.shape, nl.float32)
    nisa.tensor_scalar(dst=product, data=tile, op0=nl.multiply, operand0=scalar, engine=nisa.engine.vector)
    return product


def _scaled_sum(tile: Any, scalar: Any, base: Any) -> Any:
    """``base + tile * scalar``."""
    total = sbuf(tile.shape, nl.float32)
    nisa.scalar_tensor_tensor(dst=total, data=tile, op0=nl.multiply, operand0=scalar, op1=nl.add, operand1=base)
    return total


def _negative(scalar: Any) -> Any:
    return _times(scalar, -1.0)


def _as(tile: Any, dtype: Any) -> Any:
    """A tile in another dtype; itself if it has it already."""
    if tile.dtype == dtype:
        return tile
    converted = sbuf(tile.shape, dtype)
    nisa.tensor_copy(dst=converted, src=tile)
    return converted
