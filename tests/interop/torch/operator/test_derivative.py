"""Kernels with a derivative of their author (`Kernel.defvjp`) in PyTorch, against PyTorch's own derivatives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import nki
from nki.core.errors import ExecutionError, LaunchError
from nki.interop.torch import enable_device, wrap_nki
from tests.interop import derivatives
from tests.interop.derivatives import exponential, fill_from, halves, product, with_backward
from tests.interop.torch.kernels import matrix, multiply

A, B = matrix(8), matrix(8, seed=1)


def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (product(a.sin(), b, scale=2.0) * exponential(b)).sum()


def wanted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.sin() * b * 2.0 * b.exp()).sum()


def gradients(function: Callable[..., torch.Tensor], device: str = "cpu") -> list[torch.Tensor]:
    leaves = [x.to(device).detach().requires_grad_() for x in (A, B)]
    function(*leaves).backward()
    return [leaf.grad.cpu() for leaf in leaves if leaf.grad is not None]


def same(found: Any, right: Any) -> None:
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "neuron"])
def test_a_plain_call_is_a_node_of_autograd(device: str) -> None:
    enable_device()
    same(gradients(loss, device), gradients(wanted))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "neuron"])
def test_a_graph_has_its_derivative(backend: str) -> None:
    torch.compiler.reset()
    same(gradients(torch.compile(loss, backend=backend, fullgraph=True)), gradients(wanted))


def test_a_graph_on_the_device_and_on_two_cores() -> None:
    def on_two(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (wrap_nki(product)[2](a.sin(), b, 2.0) * b.exp()).sum()

    enable_device()
    same(gradients(torch.compile(on_two, backend="neuron", fullgraph=True), "neuron"), gradients(wanted))


def test_gradients_are_differences() -> None:
    """Central differences in float64 of what the kernels compute in float32."""
    direction, step = matrix(8, seed=2), 2.0**-6
    for place, gradient in enumerate(gradients(loss)):
        ends = []
        for sign in (1, -1):
            moved = [A, B]
            moved[place] = moved[place] + sign * step * direction
            product_value = product(moved[0].sin(), moved[1], scale=2.0).double()
            ends.append((product_value * exponential(moved[1]).double()).sum())
        slope = (ends[0] - ends[1]) / (2 * step)
        torch.testing.assert_close((gradient.double() * direction).sum(), slope, rtol=1e-3, atol=1e-3)


def test_transformations_of_functions() -> None:
    batch = torch.stack([A, B])
    same(torch.func.grad(loss, (0, 1))(A, B), torch.func.grad(wanted, (0, 1))(A, B))
    over = {"in_dims": (0, None)}
    same(torch.vmap(torch.func.grad(loss), **over)(batch, B), torch.vmap(torch.func.grad(wanted), **over)(batch, B))
    ours, right = (
        torch.func.grad(lambda a, f=each: torch.vmap(f, **over)(a, B).sum())(batch)  # type: ignore[misc]
        for each in (loss, wanted)
    )
    same(ours, right)


def test_vmap_calls_the_kernel_for_one_element_after_the_other() -> None:
    batch = torch.stack([A, B], dim=1)
    same(torch.vmap(product, in_dims=(1, None))(batch, B), batch.transpose(0, 1) * B)
    twice = torch.vmap(torch.vmap(product, in_dims=(0, None)), in_dims=(None, 0))
    rows = torch.stack([A, B])
    same(twice(rows, rows), rows * rows[:, None])
    with pytest.raises(LaunchError, match="writes to an argument") as caught:
        torch.vmap(fill_from)(rows.clone(), rows)
    assert caught.value.code == "torch.vmap"


def test_second_derivatives_go_through_arguments_and_results() -> None:
    def second(function: Callable[..., torch.Tensor]) -> torch.Tensor:
        b = B.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(A, b), b, create_graph=True)
        return torch.autograd.grad(first.sum(), b)[0]

    same(second(loss), second(wanted))


def test_a_second_derivative_through_something_else_that_was_kept_is_refused() -> None:
    def forward(a: torch.Tensor, b: torch.Tensor) -> Any:
        return product(a, b), (a * 2, b)

    def backward(residuals: Any, gradient: torch.Tensor) -> Any:
        return product(gradient, residuals[1]), product(gradient, residuals[0], scale=0.5)

    kernel = with_backward(backward, forward)
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    (first,) = torch.autograd.grad(kernel(a, b).sum(), b, create_graph=True)
    same(first, A)
    with pytest.raises(ExecutionError, match="is differentiated") as caught:
        first.square().sum().backward()
    assert caught.value.code == "torch.double-backward"


def test_trees_integers_and_constants() -> None:
    pair = {"x": A.clone().requires_grad_(), "y": B.clone().requires_grad_()}
    counts = torch.ones(128, 8, dtype=torch.int32)
    found = halves(pair, counts, wanted=False)
    assert not found["rest"][1].requires_grad
    (found["sum"] * A).sum().backward()
    same(pair["x"].grad, A)
    same(pair["y"].grad, A)
    residuals, gradient, constants = derivatives.SEEN
    assert residuals[0]["x"] is pair["x"]
    assert gradient["rest"][1] is None
    assert torch.equal(gradient["rest"][0], torch.zeros_like(A))
    assert constants == {"wanted": False}


def test_gradients_come_contiguous_and_may_be_missing() -> None:
    def backward(residuals: Any, gradient: torch.Tensor) -> Any:
        assert gradient.is_contiguous()
        return {"b": gradient}

    kernel = with_backward(backward)
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    kernel(a, b).sum().backward()  # PyTorch's gradient of a sum is one number that is seen everywhere
    assert a.grad is None
    same(b.grad, torch.ones_like(B))


def test_without_need_nothing_is_kept() -> None:
    kernel = with_backward(lambda residuals, gradient: pytest.fail("nobody asked"))
    with torch.no_grad():
        assert not kernel(A.clone().requires_grad_(), B).requires_grad
    assert not kernel(A, B).requires_grad
    assert torch.equal(torch.compile(kernel, backend="aot_eager", fullgraph=True)(A, B), A * B)


def test_in_an_operator_the_operator_says_what_the_derivative_is() -> None:
    operator = nki.interop.torch.nki_op("nki_tests::with_derivative", _in_an_operator)
    with pytest.raises(LaunchError) as caught:
        operator(A.clone().requires_grad_(), B)
    assert caught.value.code == "torch.no-backward"
    assert torch.equal(multiply(A, B), operator(A, B))


def _in_an_operator(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = product(a, b)
    return found


@pytest.mark.parametrize("backend", ["", "aot_eager"])
def test_a_kernel_that_writes_to_its_arguments_has_none(backend: str) -> None:
    def write(b: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = fill_from(torch.zeros(128, 8), b)
        return found

    run = torch.compile(write, backend=backend, fullgraph=True) if backend else write
    with pytest.raises(Exception, match="writes to an argument") as caught:
        run(B.clone().requires_grad_())
    assert "torch.no-backward" in str(caught.value)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # what PyTorch loads for forward mode
def test_there_is_no_forward_mode() -> None:
    with pytest.raises(LaunchError, match="forward mode") as caught:
        torch.func.jvp(lambda a: product(a, B), (A,), (B,))
    assert caught.value.code == "torch.no-backward"


def test_without_a_derivative_a_gradient_is_refused() -> None:
    kernel = nki.jit(product.func)
    with pytest.raises(LaunchError, match=r"kernel\.defvjp") as caught:
        kernel(A.clone().requires_grad_(), B)
    assert caught.value.code == "argument.requires-grad"
    with pytest.raises(LaunchError, match=r"kernel\.defvjp") as caught:
        torch.func.grad(lambda a: kernel(a, B).sum())(A)
    assert caught.value.code == "torch.no-backward"


def test_gradients_that_do_not_fit_are_refused() -> None:
    kernel = with_backward(lambda residuals, gradient: (gradient,))
    with pytest.raises(LaunchError, match="1 gradients for 2 arguments") as caught:
        kernel(A.clone().requires_grad_(), B).sum().backward()
    assert caught.value.code == "jit.gradients"
