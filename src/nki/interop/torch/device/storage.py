"""Storages of the device that Python code asks for by size: copies of storages, and what `torch.load` reads into.

PyTorch asks an allocator that only C++ can register, and the process ends where there is none. So such a storage is
made here, from host memory like all others.
"""

from __future__ import annotations

from typing import Any

import torch

from nki.interop.torch.memory import DEVICE, on_device


def _new(cls: type, *args: Any, **kwargs: Any) -> Any:
    device = kwargs.get("device")
    if device is None or torch.device(device).type != DEVICE:
        return torch._C.StorageBase.__new__(cls, *args, **kwargs)
    contents = args[0] if args else 0
    if isinstance(contents, int):
        return on_device(torch.empty(contents, dtype=torch.uint8, device="cpu")).untyped_storage()
    return on_device(torch.tensor(contents, dtype=torch.uint8, device="cpu")).untyped_storage()


def install() -> None:
    """Let ``torch.UntypedStorage(size, device="neuron")`` have memory."""
    torch.UntypedStorage.__new__ = _new
