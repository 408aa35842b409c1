"""NKI kernels in JAX programs: what is public of it, and the registration with JAX that importing this module does.

Kernels need nothing from here to be called under `jax.jit`, `jax.vmap` and the others: the first such call loads this
module. docs/jax.md is the manual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki.interop.common.missing_framework import missing

try:
    import jax
except ModuleNotFoundError as error:
    raise missing("jax", error) from None

from nki.core.errors import LaunchError, NkiError
from nki.core.shown import shown
from nki.frontend.values import Parameters
from nki.interop.common.backend_config import TARGET
from nki.interop.jax import activity, ffi_handler, framework, primitive, profiler_ranges
from nki.interop.jax.compiled_function import CompiledFunction, compile
from nki.interop.jax.split import forget, provenance
from nki.interop.jax.xla_errors import FAILURES, kernel_errors
from nki.kernel import Kernel

__all__ = [
    "TARGET",
    "CompiledFunction",
    "compile",
    "error_behind",
    "forget",
    "install",
    "kernel_errors",
    "provenance",
    "with_vjp",
]

Forward = Callable[..., tuple[Any, Any]]
Backward = Callable[..., tuple[Any, ...]]


def with_vjp(
    kernel: Kernel, forward: Forward | None, backward: Backward, *, constants: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """A kernel that JAX can differentiate in reverse mode: `jax.custom_vjp` around it.

    Args:
        kernel: what `nki.jit` returned.
        forward: called with the kernel's arguments, returns its result and what `backward` needs; None: the kernel
            itself, and the arguments that are not in `constants`, as a tuple.
        backward: called with the constants in the order of the kernel's parameters, what `forward` kept, and the
            derivative with respect to the result; returns one derivative for each argument that is no constant.
        constants: names of parameters that are no arrays; they have no derivative.

    Raises:
        LaunchError: "jax.vjp" for something that is no kernel, or if it has no parameter of such a name.
    """
    if not isinstance(kernel, Kernel):
        raise LaunchError("jax.vjp", f"with_vjp got {shown(kernel)}", fix="decorate the function with @nki.jit")
    parameters = list(Parameters(kernel.func))
    unknown = [name for name in constants if name not in parameters]
    if unknown:
        raise LaunchError(
            "jax.vjp",
            f"{kernel.func.__name__} has no parameter {unknown[0]}",
            fix=f"name some of {', '.join(parameters)}",
        )
    positions = tuple(i for i, name in enumerate(parameters) if name in constants)

    def default(*arguments: Any) -> tuple[Any, Any]:
        return kernel(*arguments), tuple(value for i, value in enumerate(arguments) if i not in positions)

    function = jax.custom_vjp(kernel, nondiff_argnums=positions)
    function.defvjp(default if forward is None else forward, backward)
    differentiable: Callable[..., Any] = function
    return differentiable


def error_behind(error: BaseException) -> NkiError | None:
    """The error of a kernel that made XLA raise this one; None if something else did."""
    return FAILURES.behind(error)


def install() -> None:
    """Let JAX know how kernels are called; importing this module has done it, and nothing happens a second time."""
    activity.install()
    primitive.install()
    ffi_handler.install()
    profiler_ranges.install()
    framework.install()


install()
