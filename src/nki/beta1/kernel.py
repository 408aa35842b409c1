"""``nki.jit`` of the first NKI, and what else makes a kernel of a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from nki.beta1.errors import refused
from nki.beta1.front_end import Beta1FrontEnd
from nki.beta1.tracing.grid import cores_of, grid_of
from nki.core.errors import ExecutionError
from nki.driver.launch import Launch
from nki.kernel import Kernel

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


_OWN = Beta1FrontEnd()
FRONT_ENDS: dict[Any, Beta1FrontEnd] = {}
"""Front ends of functions that are launched as kernels of the first NKI, though they are written in another language:
those that libraries serve, which models undecorate and decorate again."""


class Beta1Kernel(Kernel[...]):
    """A kernel of the first NKI: call it, or ``kernel[grid]`` first."""

    def __getitem__(self, grid: Any) -> Beta1Kernel:
        axes = grid_of(grid, self.func.__name__)
        cores = cores_of(axes)
        front_end = replace(cast(Beta1FrontEnd, self._launch.front_end), grid=axes)
        return self._launched(front_end=front_end, lnc=cores if cores > 1 else None)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call on arrays of the host, or in the body of another kernel.

        Raises:
            IndexError: a kernel that is simulated reaches outside of a tensor with an index of run time; Python's own
                error, as the first NKI's simulator has it, with the coded one as its cause.
        """
        try:
            return super().run(args, kwargs)
        except ExecutionError as error:
            if self._launch.eager and "element" in error.facts:
                element, total = error.facts["element"], error.facts["total"]
                raise IndexError(f"index {element} is out of bounds for axis 0 with size {total}") from error
            raise

    def _launched(self, **changes: Any) -> Beta1Kernel:
        return Beta1Kernel(replace(self._launch, **changes), self.cache, self.derivative)


def jit(func: Callable[..., Any] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Make a kernel of a function.

    Args:
        mode: "benchmark" times every call (`nki.benchmark`), "simulation" runs instruction by instruction; all others
            are the same, because arrays of NumPy, PyTorch and JAX are told apart when the kernel is called.
        kwargs: ``platform_target`` chooses the target, ``grid`` the grid; others are for the old compiler.
    """
    if mode not in _MODES:
        raise refused("argument", f"nki.jit got mode={mode!r}", f"write one of {', '.join(_MODES)}")
    target, grid = str(kwargs.pop("platform_target", None) or ""), kwargs.pop("grid", None)
    for name in kwargs:
        if name not in _HINTS and not (mode == "benchmark" and name in ("warmup", "iters")):
            raise refused("argument", f"nki.jit got an unexpected keyword argument {name!r}", f"omit {name}")

    def decorate(function: Callable[..., Any]) -> Any:
        made = kernel_of(function, target)
        made = made if grid is None else made[grid]
        if mode == "benchmark":
            from nki.beta1.measuring import benchmark  # noqa: PLC0415 - needs what is defined here

            return benchmark(made)
        return made.simulated() if mode == "simulation" else made

    return decorate if func is None else decorate(func)


def trace(func: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel of a function that writes to its last parameters, or that other kernels call."""
    return jit(func, "trace", **kwargs)


def kernel_of(function: Any, target: str = "") -> Beta1Kernel:
    """The kernel of a function, or of what was made of one."""
    if isinstance(function, Beta1Kernel):
        return function
    inner = getattr(function, "kernel", None)
    if isinstance(inner, Beta1Kernel):
        return inner
    return Beta1Kernel(Launch(function, front_end=FRONT_ENDS.get(function, _OWN), target=target))


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on NumPy arrays, instruction by instruction; arrays that it writes to are changed."""
    return kernel_of(kernel).simulated()(*args, **kwargs)
