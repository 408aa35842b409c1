"""The memory of the simulated device: host memory under another device name, exchanged without a copy.

PyTorch makes tensors of a foreign device from DLPack capsules, so that their storage is real and views, in-place
operators and kernels see the same bytes. The capsules' device is set here; nothing else is changed in them.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from nki.interop.torch.devices import DEVICE as DEVICE
from nki.interop.torch.devices import current
from nki.interop.torch.memory_stats import count

# DLDeviceType of the DLPack specification, 1.0.
_CPU, _EXTENSION = 1, 12


class _DLTensor(ctypes.Structure):
    """The start of DLTensor: all that is read or written here."""

    _fields_ = (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def on_device(tensor: torch.Tensor, index: int | None = None) -> torch.Tensor:
    """A tensor on a device, the current one unless its number is given, with the memory of a CPU tensor."""
    return count(_relabelled(tensor, _EXTENSION, current() if index is None else index))


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor with the memory of a tensor on the device."""
    return _relabelled(tensor, _CPU, 0)


def _relabelled(tensor: torch.Tensor, device_type: int, index: int) -> torch.Tensor:
    tensor = tensor.detach()
    conjugate, negative = tensor.is_conj(), tensor.is_neg()
    _flag(tensor, False, False)  # DLPack has the bytes only
    capsule: Any = torch._C._to_dlpack(tensor)
    head = _DLTensor.from_address(_pointer(capsule, b"dltensor"))
    head.device_type, head.device_id = device_type, index
    made = torch._C._from_dlpack(capsule)
    _flag(made, conjugate, negative)
    return made


def _flag(tensor: torch.Tensor, conjugate: bool, negative: bool) -> None:
    if tensor.is_conj() != conjugate:
        torch._C._set_conj(tensor, conjugate)
    if tensor.is_neg() != negative:
        torch._C._set_neg(tensor, negative)
