"""Kernels of the first NKI: functions that are launched on grids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from nki.beta1.errors import Beta1TypeError, refused
from nki.beta1.front_end import Beta1FrontEnd
from nki.beta1.tracing.grid import as_numbers, cores_of, from_numbers, grid_of
from nki.core.errors import ExecutionError
from nki.core.shown import shown
from nki.driver.launch import Launch
from nki.kernel import Kernel

_OWN = Beta1FrontEnd()
FRONT_ENDS: dict[Any, Beta1FrontEnd] = {}
"""Front ends of functions that are launched as kernels of the first NKI, though they are written in another language:
those that libraries serve, which models undecorate and decorate again."""


class Beta1Kernel(Kernel[...]):
    """A kernel of the first NKI: call it, or ``kernel[grid]`` first."""

    def grid_constant(self, grid: Any) -> Any:
        return as_numbers(grid_of(grid, self.func.__name__))

    def on(self, constant: Any) -> Beta1Kernel:
        axes = from_numbers(constant)
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

    def compiled_for(self, target: str) -> Beta1Kernel:
        """The kernel for another target, for example "trn2"."""
        return self._launched(target=target)

    def of_function(self, function: Callable[..., Any]) -> Beta1Kernel:
        """The kernel of another function, which is one of the first NKI, launched as this one."""
        grid = cast(Beta1FrontEnd, self._launch.front_end).grid
        return Beta1Kernel(replace(self._launch, function=function, front_end=Beta1FrontEnd(grid)))

    def _launched(self, **changes: Any) -> Beta1Kernel:
        return Beta1Kernel(replace(self._launch, **changes), self.cache, self.derivative)


def kernel_of(function: Any, target: str = "") -> Beta1Kernel:
    """The kernel of a function, or of what was made of one; for a target if one is named. Raises Beta1Error."""
    found = function if isinstance(function, Beta1Kernel) else getattr(function, "kernel", None)
    if isinstance(found, Beta1Kernel):
        return found.compiled_for(target) if target else found
    if not hasattr(function, "__code__"):
        today = isinstance(function, Kernel)
        raise refused(
            "argument",
            f"a kernel of the first NKI is made of {shown(function)}",
            "call it as it is, or in a kernel" if today else "decorate a function",
            rule="it is a kernel of today" if today else "kernels are functions of Python",
            kind=Beta1TypeError,
        )
    return Beta1Kernel(Launch(function, front_end=FRONT_ENDS.get(function, _OWN), target=target))
