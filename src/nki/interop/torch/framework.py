"""What kernels ask when they are called: whether tensors of PyTorch are among the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from nki.driver import frameworks
from nki.frontend.values import leaves_of
from nki.interop.torch.operator.call import call, traced
from nki.kernel import launched_on
from nki.spec.sink import active_sink


class TorchFramework:
    """PyTorch, as `nki.driver.frameworks` knows it: tensors on the CPU, on the device, and without values."""

    def claims(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether it has tensors; a call in another kernel has those of that kernel."""
        if active_sink() is not None:
            return False
        return any(isinstance(leaf, torch.Tensor) for leaf in leaves_of((*args, *kwargs.values())))

    def call(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the kernel, or make the call a part of the graph that is being traced."""
        return call(kernel, None, args, kwargs)


FRAMEWORK = TorchFramework()


def _while_dynamo_traces(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return FRAMEWORK


class _Launched:
    """``kernel[grid]`` while Dynamo traces: a kernel that is made in the graph is none that a plan can hold."""

    def __init__(self, kernel: Any, constant: Any) -> None:
        self.kernel = kernel
        self.constant = constant

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return traced(self.kernel, self.constant, args, kwargs)


def _launched_while_dynamo_traces(kernel: Any, constant: Any) -> Any:
    return _Launched(kernel, constant)


@cache  # PyTorch has one table for the process, and refuses a second entry
def install() -> None:
    """Let every kernel accept tensors on the device, and tensors that are being traced; once per process.

    What Dynamo traces is PyTorch's, so that it need not follow what other frameworks look at.
    """
    frameworks.install(FRAMEWORK)
    torch.compiler.substitute_in_graph(frameworks.framework_of)(_while_dynamo_traces)
    torch.compiler.substitute_in_graph(launched_on)(_launched_while_dynamo_traces)
