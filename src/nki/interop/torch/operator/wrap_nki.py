"""`wrap_nki`: a kernel as a callable for models."""

from __future__ import annotations

from typing import Any

from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.interop.torch.operator.call import call
from nki.interop.torch.user_location import user_line
from nki.kernel import Kernel


class Wrapped:
    """What `wrap_nki` returns. Call it, or ``wrapped[lnc]`` first to choose the number of cores."""

    def __init__(self, kernel: Kernel, lnc: int | None = None) -> None:
        self.kernel = kernel
        self._lnc = lnc

    def __getitem__(self, lnc: Any) -> Wrapped:
        """Choose the number of cores: a number, or a tuple with one number."""
        if isinstance(lnc, tuple) and len(lnc) == 1:
            lnc = lnc[0]
        if not isinstance(lnc, int) or isinstance(lnc, bool) or lnc < 1:
            raise LaunchError(
                "launch.grid",
                f"{self.kernel.func.__name__}[{lnc}]",
                rule="a grid is one positive int, the number of cores",
                fix="write wrap_nki(kernel)[2](...)",
                location=user_line(),
            )
        return Wrapped(self.kernel, lnc)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        grid = None if self._lnc is None else self.kernel.grid_constant(self._lnc)
        return call(self.kernel, grid, args, kwargs)

    def __repr__(self) -> str:
        return f"<wrapped {self.kernel!r}>"


def wrap_nki(kernel: Any) -> Wrapped:
    """A kernel as one operation of a model, also under ``torch.compile``, ``torch.export`` and ``make_fx``.

    Tensors with values are computed at once. While a graph is traced, the kernel is traced and compiled for the shapes
    of the tensors, and the graph gets one opaque node; the kernel does not run. Symbolic sizes become numbers, so that
    a graph with other sizes is another graph.

    Args:
        kernel: a kernel made with ``nki.jit`` or ``nki.simulate``, or a plain function.

    Raises:
        LaunchError: something else ("jit.function").
        LaunchError: in a call, a tensor that requires a gradient, if the kernel has no derivative (`Kernel.defvjp`).
    """
    if isinstance(kernel, Wrapped):
        return kernel
    if isinstance(kernel, Kernel):
        return Wrapped(kernel)
    if not callable(kernel) or not hasattr(kernel, "__code__"):
        raise LaunchError(
            "jit.function",
            f"wrap_nki got {shown(kernel)}",
            rule="a kernel is a Python function",
            fix="wrap a function decorated with nki.jit",
            location=user_line(),
        )
    return Wrapped(Kernel(kernel))
