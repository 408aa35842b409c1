"""The objects that ``@nki.jit`` and ``nki.simulate`` return."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from nki.core.errors import LaunchError
from nki.driver import Cache, Launch, call
from nki.report import Report
from nki.spec.sink import active_sink

# Keywords of older decorators, with what became of them; None: it has no effect here.
_OLD_KEYWORDS: dict[str, str | None] = {
    "platform_target": "set NEURON_PLATFORM_TARGET_OVERRIDE",
    "mode": "call nki.simulate(kernel), or set NKI_SIMULATOR=1",
    "debug_kernel": None,
    "show_compiler_tb": None,
    "experimental_flags": None,
    "additional_compile_opt": None,
}


class Kernel:
    """A kernel: call it, or ``kernel[lnc]`` first to choose the number of cores.

    Attributes:
        func: the undecorated function.
        report: how the last call's result was produced.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        target: str = "",
        lnc: int | None = None,
        eager: bool = False,
        cache: Cache | None = None,
    ) -> None:
        if not callable(function) or not hasattr(function, "__code__"):
            raise LaunchError(
                "jit.function",
                f"nki.jit got {type(function).__name__} {function!r}",
                rule="a kernel is a Python function",
                fix="decorate a function defined with def",
            )
        functools.update_wrapper(self, function)
        self.func = function
        self.report: Report | None = None
        self._target = target
        self._lnc = lnc
        self._eager = eager
        self._cache: Cache = {} if cache is None else cache

    def __getitem__(self, lnc: Any) -> Kernel:
        """The same kernel on `lnc` cores."""
        if isinstance(lnc, tuple) and len(lnc) == 1:
            lnc = lnc[0]
        if not isinstance(lnc, int) or isinstance(lnc, bool) or lnc < 1:
            raise LaunchError(
                "launch.grid",
                f"{self.func.__name__}[{lnc!r}]",
                rule="a grid is one positive int, the number of cores",
                fix="write kernel[2](...)",
            )
        return self._with(lnc=lnc)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active_sink() is not None:
            return self.func(*args, **kwargs)
        result, self.report = call(self.launch(), args, kwargs, self._cache)
        return result

    def launch(self) -> Launch:
        """What the driver needs to know."""
        return Launch(self.func, self._lnc, self._eager, self._target)

    def simulated(self) -> Kernel:
        """The same kernel, run eagerly."""
        return self._with(eager=True)

    def _with(self, *, lnc: int | None = None, eager: bool | None = None) -> Kernel:
        return Kernel(
            self.func,
            target=self._target,
            lnc=self._lnc if lnc is None else lnc,
            eager=self._eager if eager is None else eager,
            cache=self._cache,
        )

    def __repr__(self) -> str:
        grid = f"[{self._lnc}]" if self._lnc else ""
        return f"<nki kernel {self.func.__qualname__}{grid}>"


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a kernel of a function: ``@nki.jit`` or ``@nki.jit()``.

    Calling the kernel with NumPy, torch (CPU) or JAX arrays checks it for the target, compiles it and runs it; results
    come back in the caller's kind. ``kernel[2](...)`` runs it on two cores.
    """
    target = _old_keywords(kwargs)
    if fn is None:
        return lambda function: Kernel(function, target=target)
    return Kernel(fn, target=target)


def simulate(kernel: Any) -> Kernel:
    """The kernel in eager mode: every instruction runs as Python reaches it, so print, pdb and breakpoints work.

    Args:
        kernel: a kernel, ``kernel[lnc]``, or a plain function. The result can be subscripted as well.
    """
    if not isinstance(kernel, Kernel):
        kernel = Kernel(kernel)
    return kernel.simulated()


def _old_keywords(kwargs: dict[str, Any]) -> str:
    for name in kwargs:
        if name not in _OLD_KEYWORDS:
            raise LaunchError("jit.argument", f"nki.jit has no argument {name!r}", fix="write @nki.jit")
        instead = _OLD_KEYWORDS[name]
        warnings.warn(
            f"nki.jit: argument {name} is deprecated; {instead or 'it has no effect and can be removed'}",
            DeprecationWarning,
            stacklevel=3,
        )
    return str(kwargs.get("platform_target") or "")
