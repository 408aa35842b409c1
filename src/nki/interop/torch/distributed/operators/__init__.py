"""The operators of c10d for tensors of the device: PyTorch's process groups call them, whichever way a call came."""

from __future__ import annotations

import warnings

import torch

from nki.interop.torch.distributed.operators import exchange as exchange
from nki.interop.torch.distributed.operators import gather as gather
from nki.interop.torch.distributed.operators import message as message
from nki.interop.torch.distributed.operators import reduce as reduce
from nki.interop.torch.distributed.operators.registry import OPERATORS
from nki.interop.torch.untraced import Operators

_LIBRARIES: list[torch.library.Library] = []
"""Registrations end with their library, so it is kept."""


def install() -> None:
    """Let the operators of c10d take tensors of the device."""
    if _LIBRARIES:
        return
    library = Operators("c10d")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        for name, function in OPERATORS.items():
            library.impl(name, function, "PrivateUse1", allow_override=True)
    _LIBRARIES.append(library)
