"""``nki.jit``, ``nki.trace`` and ``nki.simulate_kernel`` of the first NKI: what makes a kernel of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki.beta1.errors import refused
from nki.beta1.kernel import kernel_of
from nki.beta1.measuring import benchmark

_MODES = ("auto", "jax", "torchxla", "baremetal", "benchmark", "simulation", "trace", "profile")
_HINTS = frozenset(
    {
        "additional_compile_opt",
        "debug_kernel",
        "disable_copy_propagation",
        "enable_out_of_bound_check",
        "experimental_flags",
        "kernel_return",
        "show_compiler_tb",
    }
)
"""Keywords of public kernels for the old compiler, which change no result. Whether a kernel returns tensors or writes
to its parameters (`kernel_return`) is seen when it is traced."""


def jit(func: Callable[..., Any] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Make a kernel of a function.

    Args:
        mode: "benchmark" times every call (`nki.benchmark`), "simulation" runs instruction by instruction; all others
            are the same, because arrays of NumPy, PyTorch and JAX are told apart when the kernel is called.
        kwargs: ``platform_target`` chooses the target, ``grid`` the grid; ``warmup`` and ``iters`` are those of
            `nki.benchmark`, with that mode; others are for the old compiler.
    """
    if mode not in _MODES:
        raise refused("argument", f"nki.jit got mode={mode!r}", f"write one of {', '.join(_MODES)}")
    target, grid = str(kwargs.pop("platform_target", None) or ""), kwargs.pop("grid", None)
    timing = {name: kwargs.pop(name) for name in ("warmup", "iters") if mode == "benchmark" and name in kwargs}
    for name in kwargs:
        if name not in _HINTS:
            raise refused("argument", f"nki.jit got an unexpected keyword argument {name!r}", f"omit {name}")

    def decorate(function: Callable[..., Any]) -> Any:
        made = kernel_of(function, target)
        made = made if grid is None else made[grid]
        if mode == "benchmark":
            return benchmark(made, **timing)
        return made.simulated() if mode == "simulation" else made

    return decorate if func is None else decorate(func)


def trace(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel of a function that writes to its last parameters, or that other kernels call."""
    return jit(func, "trace", **kwargs)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on NumPy arrays, instruction by instruction; arrays that it writes to are changed."""
    return kernel_of(kernel).simulated()(*args, **kwargs)
