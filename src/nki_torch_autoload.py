"""What PyTorch calls at the end of ``import torch`` (the entry point ``torch.backends``): the name of the device.

PyTorch learns that there is a device ``neuron``, a module `torch.neuron` and a backend of `torch.distributed`. Whatever
is asked of them first loads `nki.interop.torch`; a program that uses another device never does. So this module imports
nothing of the package, and stands outside of it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import torch
import torch.distributed as dist
from torch import accelerator
from torch.utils import backend_registration

_NAME = "neuron"


def load() -> None:
    """Tell PyTorch the name of the device, where that has room for it; ``import torch`` goes on whatever happens."""
    try:
        if _has_room():
            _register()
    except Exception as error:  # noqa: BLE001 - a program that never asks for this device must not end here
        with contextlib.suppress(Warning):  # where warnings are errors
            warnings.warn(f"the device {_NAME} is not loaded by PyTorch: {error!r}", stacklevel=2)


def _has_room() -> bool:
    """Whether this device takes nothing away: PyTorch has room for one such device, and calls one the accelerator."""
    others = [entry for entry in entry_points(group="torch.backends") if entry.value != f"{__name__}:{load.__name__}"]
    known = torch._C._get_privateuse1_backend_name() != "privateuseone" or hasattr(torch, _NAME)
    return not (others or known or accelerator.current_accelerator())


def _register() -> None:
    backend_registration._setup_privateuseone_for_python_backend(_NAME, backend_module=Unloaded())
    for name in _ASKED:
        _BEFORE[name] = getattr(accelerator, name)
        setattr(accelerator, name, _loading(name))
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        library.impl("_pin_memory", _pinned, "CPU", allow_override=True)
    _LIBRARIES.append(library)
    if dist.is_available():
        dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=[_NAME])


_ASKED = (
    "current_device_idx",
    "current_device_index",
    "device_index",
    "get_memory_info",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "set_device_idx",
    "set_device_index",
    "synchronize",
)
"""What `torch.accelerator` asks C++, which knows nothing of this device: the device answers."""

_BEFORE: dict[str, Any] = {}
"""PyTorch's own functions of these names, until the device is loaded; told of the process."""


_LIBRARIES: list[torch.library.Library] = []
"""Registrations end with their library, so it is kept."""


class Unloaded:
    """`torch.neuron` until something is asked of it that the device has to answer."""

    UNLOADED = True

    def is_available(self) -> bool:
        """Whether the device is there: it is simulated."""
        return True

    def is_initialized(self) -> bool:
        """Whether somebody has used it."""
        return False

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """Random numbers of the device are those of the CPU's generator, which PyTorch seeds itself."""

    def _lazy_init(self) -> None:
        """Load the device: PyTorch calls this before it makes the first tensor there."""
        _loaded()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_loaded(), name)


def _loaded() -> Any:
    """`torch.neuron`, once the device is enabled."""
    from nki.interop.torch import enable_device  # noqa: PLC0415 - the package is what this module leaves for later

    while _BEFORE:
        name, function = _BEFORE.popitem()
        setattr(accelerator, name, function)
    enable_device()
    return getattr(torch, _NAME)


def _loading(name: str) -> Callable[..., Any]:
    """A function that loads the device, and calls what `torch.accelerator` has under its name then."""

    def function(*args: Any, **kwargs: Any) -> Any:
        _loaded()
        return getattr(accelerator, name)(*args, **kwargs)

    return function


def _pinned(tensor: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """Pin as the device does: PyTorch asks the accelerator for such memory."""
    _loaded()
    return torch.ops.aten._pin_memory(tensor, device)


def _create(options: Any, more: Any) -> Any:
    _loaded()
    from nki.interop.torch.distributed.backend import create  # noqa: PLC0415 - as above

    return create(options, more)
