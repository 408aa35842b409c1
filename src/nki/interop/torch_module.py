"""`torch.neuron`: what PyTorch asks of a device's module."""

from __future__ import annotations

import torch

from nki.interop.torch_inductor import refusing
from nki.interop.torch_memory import DEVICE
from nki.interop.torch_provenance import provenance as provenance


class _Chosen:
    """``with torch.neuron.device(0)``: there is one device, so nothing changes."""

    def __init__(self, device: object) -> None:
        DeviceModule.set_device(device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class DeviceModule:
    """One simulated device, always there, whose work is done when a call returns."""

    device = _Chosen

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def set_device(device: object) -> None:
        """Accept the one device there is."""
        index = device if isinstance(device, int) else torch.device(str(device)).index
        if index not in (None, 0, -1):  # -1: PyTorch's word for no device
            raise ValueError(f"there is one device, {DEVICE}:0, and no {DEVICE}:{index}")

    @staticmethod
    def synchronize(device: object = None) -> None:
        """Nothing is pending: every call has finished when it returns."""

    @staticmethod
    def manual_seed(seed: int) -> None:
        """Random numbers come from the CPU's generator."""
        torch.default_generator.manual_seed(seed)

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """`torch.manual_seed` has seeded the CPU's generator, which is the device's as well."""

    @staticmethod
    def get_rng_state(device: object = None) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: object = None) -> None:
        torch.set_rng_state(state)

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    # Inductor takes all four or none.
    Scheduling = CppWrapperCodegen = WrapperFxCodegen = PythonWrapperCodegen = property(lambda self: refusing())

    @staticmethod
    def provenance() -> dict[str, int]:
        """PyTorch's operators that ran on the CPU in the place of the device, and how often."""
        return provenance()
