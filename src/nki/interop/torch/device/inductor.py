"""Inductor has no code for the device, and says so with a sentence instead of a missing key."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from nki.core.errors import LaunchError
from nki.interop.torch.memory import DEVICE
from nki.interop.torch.user_location import user_line


@functools.cache
def refusing() -> type:
    """The class that writes code for the device, once Inductor is loaded and asks for it: it refuses to."""
    from torch._inductor.codegen.common import DeviceOpOverrides, register_device_op_overrides
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    register_device_op_overrides(DEVICE, DeviceOpOverrides())
    return type("Refusing", (PythonWrapperCodegen,), {"create": staticmethod(_refuse)})


def _refuse(*_: Any) -> NoReturn:
    raise LaunchError(
        "torch.inductor",
        f"Inductor is asked to compile a graph on the device {DEVICE}",
        rule="Inductor writes code for processors, not for this device",
        fix='write torch.compile(..., backend="neuron"), or compile for CPU tensors',
        location=user_line(),
    )
