"""What kernels ask when they are called: whether JAX is tracing the call, which becomes part of its program then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nki.driver import frameworks
from nki.frontend.reloaded_modules import loading_of
from nki.interop.jax.call import traced_call
from nki.interop.jax.derivative import differentiable_call, has_tracer
from nki.spec.sink import active_sink


class JaxFramework:
    """JAX, as `nki.driver.frameworks` knows it. Arrays that have values are arrays of the host."""

    def claims(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether an array has no value yet."""
        return active_sink() is None and has_tracer(args, kwargs)

    def call(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results as arrays of the program that JAX is tracing."""
        loading_of(kernel.func).tell_if_again()
        make = traced_call if kernel.derivative is None else differentiable_call
        return make(kernel, args, kwargs)


FRAMEWORK = JaxFramework()


def install() -> None:
    """Let every kernel of the process accept arrays that JAX is tracing."""
    frameworks.install(FRAMEWORK)
