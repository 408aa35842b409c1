"""``tensor.to("neuron")`` where the current device is not the first one: PyTorch asks C++ for its number.

C++ says 0, whatever the current device is. So once another one is, the device gets its number here, before the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from nki.interop.torch.devices import DEVICE, current
from nki.interop.torch.untraced import Operators

_KEYS = ("CPU", "AutogradCPU", "PrivateUse1", "AutogradPrivateUse1")
_LIBRARIES: list[torch.library.Library] = []
"""Registrations end with their library, so it is kept."""


@cache  # once for the process
def install() -> None:
    """Have copies to the device go to the current one."""
    library = Operators("aten")
    for operator in (torch.ops.aten.to.device, torch.ops.aten.to.dtype_layout):
        for key in _KEYS:
            library.impl(operator.name(), _numbered(operator), key)
    _LIBRARIES.append(library)


def _numbered(operator: Any) -> Callable[..., torch.Tensor]:
    def to(*args: Any, **kwargs: Any) -> torch.Tensor:
        named = {name: _with_number(value) for name, value in kwargs.items()}
        moved: torch.Tensor = operator.decompose(*map(_with_number, args), **named)
        return moved

    return to


def _with_number(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == DEVICE and value.index is None:
        return torch.device(DEVICE, current())
    return value
