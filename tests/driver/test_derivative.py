"""`Kernel.defvjp`: what it takes, what kernels keep of it, and what becomes of its functions' results."""

from typing import Any

import numpy as np
import pytest

import nki
from nki.core.errors import LaunchError
from nki.driver.derivative import DifferentiableCall
from tests.interop.derivatives import exponential, halves, product, product_backward, with_backward

A, B = np.full((4, 8), 2, np.float32), np.full((4, 8), 3, np.float32)


def refused(kernel: Any, forward: Any, backward: Any) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        nki.jit(kernel.func).defvjp(forward, backward)
    assert caught.value.code == "jit.defvjp"
    return caught.value


def test_kernels_made_of_a_kernel_keep_its_derivative() -> None:
    assert product.derivative is not None
    kernel = nki.jit(product.func)
    assert kernel.derivative is None
    assert kernel.defvjp(None, product_backward) is kernel
    made = (kernel[2], kernel.with_schedule([]), nki.simulate(kernel), nki.simulate(kernel)[2])
    assert all(each.derivative is kernel.derivative is not None for each in made)


def test_calls_with_numpy_and_in_kernels_ignore_it() -> None:
    @nki.jit
    def twice(a: Any, b: Any) -> Any:
        return product(a, b, 2.0)

    kernel = with_backward(lambda residuals, gradient: pytest.fail("nobody asked for a derivative"))
    np.testing.assert_array_equal(kernel(A, B, 2.0), A * B * 2)
    np.testing.assert_array_equal(twice(A, B), A * B * 2)


def test_functions_that_are_no_derivative_are_refused() -> None:
    assert "forward=int 3" in str(refused(product, 3, product_backward))
    assert "pass a function as backward" in str(refused(product, None, None))
    assert "takes (gradient)" in str(refused(product, None, lambda gradient: ()))
    error = refused(product, None, lambda residuals, gradient, factor: ())
    assert "factor, which is no parameter of the kernel" in str(error)
    assert "name some of a, b, scale" in str(error)
    nki.jit(product.func).defvjp(None, lambda residuals, gradient, factor=2: ())
    nki.jit(product.func).defvjp(None, lambda *arguments: ())


def test_a_tuned_kernel_has_no_derivative() -> None:
    tuned = nki.autotune(configs=[{"scale": 1.0}])(product)
    with pytest.raises(LaunchError, match="is tuned"):
        tuned.defvjp(None, product_backward)


def test_constants_come_by_name_with_their_defaults() -> None:
    seen: list[dict[str, Any]] = []

    def everything(residuals: Any, gradient: Any, **constants: Any) -> Any:
        seen.append(constants)
        return gradient, None

    for given in ({}, {"scale": 4.0}):
        call = DifferentiableCall(with_backward(everything), (A,), {"b": B, **given})
        assert call.backward(None, A)[1] is None
    assert seen == [{"scale": 1.0}, {"scale": 4.0}]


def test_residuals_are_the_arrays_in_the_order_of_the_parameters() -> None:
    call = DifferentiableCall(product, (), {"scale": 2.0, "b": B, "a": A})
    result, residuals = call.forward(call.arrays)
    np.testing.assert_array_equal(result, A * B * 2)
    assert residuals[0] is A
    assert residuals[1] is B
    gradients = call.backward(residuals, A)
    np.testing.assert_array_equal(gradients[0], A * B * 2)
    np.testing.assert_array_equal(gradients[1], A * A * 2)


def test_gradients_of_trees_have_their_form() -> None:
    pair, counts = {"x": A, "y": B}, np.ones((4, 8), np.int32)
    call = DifferentiableCall(halves, (pair, counts), {})
    assert [each is wanted for each, wanted in zip(call.arrays, (A, B, counts), strict=True)] == [True] * 3
    x, y, nothing = call.backward((), {"sum": A, "rest": (B, None)})
    np.testing.assert_array_equal(x, A + B)
    np.testing.assert_array_equal(y, A - B)
    assert nothing is None


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ((A,), "1 gradients for 2 arguments that are arrays: a, b"),
        (A, r"backward returned a NumPy array float32\[4, 8\]"),
        ((A[:2], None), r"shape \(2, 8\) for a, which has shape \(4, 8\)"),
        ((None, 3.0), "float 3.0 for b"),
        ({"a": A, "scale": A}, "a gradient of scale, which has no array in this call"),
    ],
)
def test_gradients_that_do_not_fit_are_refused(returned: Any, message: str) -> None:
    call = DifferentiableCall(with_backward(lambda residuals, gradient: returned), (A, B), {})
    with pytest.raises(LaunchError, match=message) as caught:
        call.backward((), A)
    assert caught.value.code == "jit.gradients"
    assert "test_derivative.py" in str(caught.value)


def test_a_tree_of_another_form_is_refused() -> None:
    kernel = nki.jit(halves.func).defvjp(None, lambda residuals, gradient: ({"x": A}, None))
    call = DifferentiableCall(kernel, ({"x": A, "y": B}, A), {})
    with pytest.raises(LaunchError, match="for pair, which is a tree"):
        call.backward((), None)


def test_a_forward_returns_two_things() -> None:
    call = DifferentiableCall(with_backward(product_backward, lambda a, b, scale=1.0: A), (A, B), {})
    with pytest.raises(LaunchError, match=r"return \(result, residuals\)"):
        call.forward(call.arrays)


def test_an_array_is_no_constant() -> None:
    @nki.jit
    def shifted(a: Any, scale: Any) -> Any:
        return exponential(a)

    shifted.defvjp(None, lambda residuals, gradient, scale: (gradient,))
    assert DifferentiableCall(shifted, (A, 2.0), {}).backward((), A)[0] is A
    with pytest.raises(LaunchError, match="backward takes scale by name, which is an array in this call"):
        DifferentiableCall(shifted, (A, B), {}).backward((), A)


def test_arguments_that_do_not_fit_are_those_of_the_call() -> None:
    with pytest.raises(nki.errors.ArgumentError) as caught:
        DifferentiableCall(product, (A,), {"factor": 2})
    assert caught.value.code == "call.kernel-arguments"
