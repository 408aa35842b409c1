"""Kernels notice PyTorch: from here on, a call with tensors goes through `operator.call`.

This is the one place that changes something outside of this package: what calling a kernel does.
"""

from __future__ import annotations

from typing import Any

from nki.interop.torch.operator.call import call
from nki.jit import Kernel


def _call(self: Kernel, *args: Any, **kwargs: Any) -> Any:
    return call(self, None, args, kwargs)


def install() -> None:
    """Let every kernel of the process accept tensors on the device, and tensors that are being traced."""
    Kernel.__call__ = _call  # type: ignore[method-assign]
