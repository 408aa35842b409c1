"""``tensor.pin_memory()`` where the device is enabled: PyTorch asks an allocator that only C++ can register.

The device's memory is host memory, so that a pinned tensor is a copy that remembers that it is one.
"""

from __future__ import annotations

import warnings
import weakref

import torch

_PINNED: dict[int, weakref.ref[torch.UntypedStorage]] = {}
"""Storages that were asked for as pinned, by their identity in C++."""


def register(aten: torch.library.Library) -> None:
    """Pin CPU tensors in Python."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators", category=UserWarning)
        aten.impl("_pin_memory", _pinned, "CPU", allow_override=True)
        aten.impl("is_pinned", _is_pinned, "CPU", allow_override=True)


def _pinned(tensor: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu").copy_(tensor)
    return remembered(made)


def remembered(tensor: torch.Tensor) -> torch.Tensor:
    """The CPU tensor, which is pinned from now on."""
    storage = tensor.untyped_storage()
    number = storage._cdata
    _PINNED[number] = weakref.ref(storage, lambda _: _PINNED.pop(number, None))
    return tensor


def _is_pinned(tensor: torch.Tensor, device: torch.device | None = None) -> bool:
    return tensor.layout == torch.strided and tensor.untyped_storage()._cdata in _PINNED
