"""``nki.jit`` of the first NKI, and what else makes a kernel of a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nki.beta1.front_end import Beta1FrontEnd
from nki.beta1.tracing.grid import cores_of, grid_of
from nki.driver.launch import Launch
from nki.kernel import Kernel


class Beta1Kernel(Kernel[...]):
    """A kernel of the first NKI: call it, or ``kernel[grid]`` first."""

    def __getitem__(self, grid: Any) -> Beta1Kernel:
        axes = grid_of(grid, self.func.__name__)
        cores = cores_of(axes)
        return self._launched(front_end=Beta1FrontEnd(axes), lnc=cores if cores > 1 else None)

    def _launched(self, **changes: Any) -> Beta1Kernel:
        return Beta1Kernel(replace(self._launch, **changes), self.cache, self.derivative)


def jit(func: Callable[..., Any] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Make a kernel of a function."""

    def decorate(function: Callable[..., Any]) -> Beta1Kernel:
        return Beta1Kernel(Launch(function, front_end=Beta1FrontEnd(), target=_TARGETS.get(platform, platform)))

    platform = str(kwargs.get("platform_target") or "")
    return decorate if func is None else decorate(func)


_TARGETS: dict[str, str] = {}


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on NumPy arrays, instruction by instruction."""
    found = kernel if isinstance(kernel, Beta1Kernel) else jit(kernel)
    return found.simulated()(*args, **kwargs)
