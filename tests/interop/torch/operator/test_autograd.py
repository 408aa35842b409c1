"""Backward passes that are kernels, against PyTorch's own."""

import pytest
import torch

from nki.core.errors import LaunchError
from nki.interop.torch import nki_op
from tests.interop.torch.kernels import assign, differentiable, matrix, product


def gradients(function: object, *inputs: torch.Tensor) -> list[torch.Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    function(*leaves).sum().backward()  # type: ignore[operator]
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_gradients_are_those_of_torch(backend: str | None) -> None:
    a, b = matrix(), matrix(seed=1)

    def ours(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return differentiable(differentiable(a.sin(), b), b)

    run = torch.compile(ours, fullgraph=True, backend=backend) if backend else ours
    for found, wanted in zip(gradients(run, a, b), gradients(lambda a, b: a.sin() * b * b, a, b), strict=True):
        torch.testing.assert_close(found, wanted)


def test_gradients_are_differences() -> None:
    """Central differences in float64 of what the operator computes in float32."""
    a, b, direction = matrix(8), matrix(8, seed=1), matrix(8, seed=2)
    gradient = gradients(differentiable, a, b)[0]
    step = 2.0**-6
    above, below = (differentiable(a + sign * step * direction, b).double().sum() for sign in (1, -1))
    torch.testing.assert_close(
        (gradient * direction).double().sum(), (above - below) / (2 * step), rtol=1e-3, atol=1e-3
    )


def test_a_backward_may_be_another_operator() -> None:
    @nki_op("nki_tests::square", mutates_args=())
    def square(a: torch.Tensor) -> torch.Tensor:
        return product(a, a.clone())

    def keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    def backward(ctx, gradient):
        return 2 * differentiable(ctx.saved_tensors[0], gradient.contiguous())

    square.register_autograd(backward, setup_context=keep)
    a = matrix().requires_grad_()
    (first,) = torch.autograd.grad(square(a).sum(), a, create_graph=True)
    torch.testing.assert_close(first, 2 * a)
    (second,) = torch.autograd.grad(first.sum(), a)
    torch.testing.assert_close(second, torch.full_like(a, 2.0))


def test_a_saved_tensor_that_a_kernel_overwrites_is_noticed() -> None:
    a, b = matrix().requires_grad_(), matrix(seed=1)
    result = differentiable(a, b)
    assign(b, matrix(seed=2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_a_second_derivative_through_a_kernel_is_refused() -> None:
    """The backward would call a kernel with a tensor whose gradient is asked for."""

    @nki_op("nki_tests::square_once", mutates_args=())
    def square(a: torch.Tensor) -> torch.Tensor:
        return product(a, a.clone())

    def keep(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    square.register_autograd(lambda ctx, g: product(g.contiguous(), ctx.saved_tensors[0] * 2), setup_context=keep)
    x = matrix().requires_grad_()
    with pytest.raises(LaunchError, match="requires a gradient"):
        torch.autograd.grad(square(x).sum(), x, create_graph=True)
