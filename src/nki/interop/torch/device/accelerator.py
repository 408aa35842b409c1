"""``torch.accelerator`` for the device: PyTorch asks a guard and an allocator that only C++ can register.

The process has one accelerator, which is this device, so its functions are replaced.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch import accelerator

from nki.interop.torch.device.device_module import DeviceModule


def install() -> None:
    """Answer for the device."""
    for module in (accelerator, accelerator.memory):
        for name, function in _FUNCTIONS.items():
            if hasattr(module, name):
                setattr(module, name, function)


def _synchronize(device: Any = None, /) -> None:
    DeviceModule.synchronize(device)


def _memory_stats(device: Any = None, /) -> OrderedDict[str, Any]:
    return OrderedDict(DeviceModule.memory_stats(device))


def _get_memory_info(device: Any = None, /) -> tuple[int, int]:
    return DeviceModule.mem_get_info(device)


_FUNCTIONS = {
    "current_device_idx": DeviceModule.current_device,
    "current_device_index": DeviceModule.current_device,
    "device_index": DeviceModule.device,
    "empty_cache": DeviceModule.empty_cache,
    "get_memory_info": _get_memory_info,
    "max_memory_allocated": DeviceModule.max_memory_allocated,
    "max_memory_reserved": DeviceModule.max_memory_reserved,
    "memory_allocated": DeviceModule.memory_allocated,
    "memory_reserved": DeviceModule.memory_reserved,
    "memory_stats": _memory_stats,
    "reset_accumulated_memory_stats": DeviceModule.reset_accumulated_memory_stats,
    "reset_peak_memory_stats": DeviceModule.reset_peak_memory_stats,
    "set_device_idx": DeviceModule.set_device,
    "set_device_index": DeviceModule.set_device,
    "synchronize": _synchronize,
}
