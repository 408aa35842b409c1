"""Storages of the device that Python code asks for by size: copies of storages, and what `torch.load` reads into.

PyTorch asks an allocator that only C++ can register, and the process ends where there is none. So such a storage is
made here, from host memory like all others.

FSDP takes the memory of parameters away and gives it back by resizing their storage, for which PyTorch asks C++ as
well. Here a storage keeps its size: without elements it has its addresses, but no memory.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import torch

from nki.core.errors import LaunchError
from nki.interop.torch.devices import index_of
from nki.interop.torch.memory import DEVICE, on_device
from nki.interop.torch.memory_stats import given_back, taken_back
from nki.interop.torch.user_location import user_line


def _new(cls: type, *args: Any, **kwargs: Any) -> Any:
    device = kwargs.get("device")
    if device is None or torch.device(device).type != DEVICE:
        return torch._C.StorageBase.__new__(cls, *args, **kwargs)
    contents, index = args[0] if args else 0, index_of(device)
    if isinstance(contents, int):
        return on_device(torch.empty(contents, dtype=torch.uint8, device="cpu"), index).untyped_storage()
    return on_device(torch.tensor(contents, dtype=torch.uint8, device="cpu"), index).untyped_storage()


_resized: Any = torch.UntypedStorage.resize_


def _resize(storage: Any, size: int) -> Any:
    """Take the memory of a storage away, or give it back; its contents are gone then."""
    if storage.device.type != DEVICE:
        return _resized(storage, size)
    if size > storage.nbytes():
        raise LaunchError(
            "torch.storage-size",
            f"a storage of {storage.nbytes()} bytes on {DEVICE} is to have {size}",
            rule="a storage on the device does not become larger than it was made",
            fix="make a new tensor",
            location=user_line(),
        )
    if size:
        taken_back(storage)
    elif given_back(storage):
        _release(storage.data_ptr(), storage.nbytes())
    return storage


def _release(address: int, size: int) -> None:
    """Give whole pages back to the system, which makes new ones where somebody writes again."""
    first, last = -(-address // mmap.PAGESIZE), (address + size) // mmap.PAGESIZE
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is not None and last > first and hasattr(mmap, "MADV_DONTNEED"):
        pages = ctypes.c_void_p(first * mmap.PAGESIZE), ctypes.c_size_t((last - first) * mmap.PAGESIZE)
        advise(*pages, mmap.MADV_DONTNEED)


def install() -> None:
    """Let ``torch.UntypedStorage(size, device="neuron")`` have memory, and `resize_` give it back."""
    torch.UntypedStorage.__new__ = _new
    torch.UntypedStorage.resize_ = _resize
