"""Calls of kernels whose authors said what the derivative is (`Kernel.defvjp`), as `jax.custom_vjp` around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from nki.driver.derivative import DifferentiableCall
from nki.frontend.values import leaves_of
from nki.interop.jax.call import traced_call
from nki.kernel import Kernel


def differentiable_call(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results as arrays of the program that JAX is tracing, with a derivative. Raises like `traced_call`."""
    call = DifferentiableCall(kernel, args, kwargs)
    function = jax.custom_vjp(_primal(kernel, call))
    function.defvjp(lambda *arrays: call.forward(arrays), _backward(call))
    return function(*call.arrays)


def _primal(kernel: Kernel, call: DifferentiableCall) -> Any:
    def primal(*arrays: Any) -> Any:
        arguments = call.arguments(arrays)
        return traced_call(kernel, *arguments) if has_tracer(*arguments) else kernel.run(*arguments)

    primal.__name__ = call.name
    return primal


def _backward(call: DifferentiableCall) -> Any:
    def backward(residuals: Any, gradient: Any) -> tuple[Any, ...]:
        found = call.backward(residuals, jax.tree.map(_known, gradient))
        return tuple(
            each if each is None else jax.numpy.asarray(each, array.dtype)
            for each, array in zip(found, call.arrays, strict=True)
        )

    return backward


def _known(gradient: Any) -> Any:
    """None in the place of what JAX has for the gradient of integers."""
    return None if gradient.dtype == jax.dtypes.float0 else gradient


def has_tracer(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an array has no value yet."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves_of((*args, *kwargs.values())))
