"""`torch.neuron`: what PyTorch and the packages around it ask of a device's module."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch

from nki.core.errors import LaunchError
from nki.interop.torch import memory_stats as stats
from nki.interop.torch.device import streams
from nki.interop.torch.device.inductor import refusing
from nki.interop.torch.eager.provenance import provenance as provenance
from nki.interop.torch.memory import DEVICE
from nki.interop.torch.user_location import user_line


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What is known of the device.

    Attributes:
        name: "simulated trn2".
        total_memory: bytes of device memory of the target.
        multi_processor_count: cores of the simulated device.
    """

    name: str
    total_memory: int
    multi_processor_count: int = 1


class _Chosen:
    """``with torch.neuron.device(0)``: there is one device, so nothing changes."""

    def __init__(self, device: object) -> None:
        DeviceModule.set_device(device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _check(device: object) -> None:
    """Accept the one device there is."""
    try:
        known = device is None or isinstance(device, int)
        index = device if known else torch.device(str(device)).index
        other = not known and torch.device(str(device)).type != DEVICE
    except RuntimeError:
        index, other = None, True
    if other or index not in (None, 0, -1):  # -1: PyTorch's word for no device
        raise LaunchError(
            "torch.device-index",
            f"torch.{DEVICE} is asked for the device {device!r}",
            rule=f"there is one simulated device, {DEVICE}:0",
            fix=f'write "{DEVICE}" or 0',
            location=user_line(),
        )


class DeviceModule:
    """One simulated device, always there, whose work is done when a call returns."""

    device = _Chosen
    Stream = streams.Stream
    Event = streams.Event
    stream = staticmethod(streams.stream)
    current_stream = staticmethod(streams.current_stream)
    default_stream = staticmethod(streams.default_stream)
    set_stream = staticmethod(streams.set_stream)

    @staticmethod
    def init() -> None:
        """The device is there as soon as it is enabled."""

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
        _check(device)

    @staticmethod
    def synchronize(device: object = None) -> None:
        """Nothing is pending: every call has finished when it returns."""
        _check(device)

    @staticmethod
    def get_device_properties(device: object = None) -> DeviceProperties:
        """Name and memory of the target that the environment chooses."""
        _check(device)
        found = stats.target()
        return DeviceProperties(f"simulated {found.name}", found.hbm.bytes)

    @staticmethod
    def get_device_name(device: object = None) -> str:
        return DeviceModule.get_device_properties(device).name

    @staticmethod
    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return True

    # ------------------------------------------------------------------------------------------------------- memory

    @staticmethod
    def empty_cache() -> None:
        """No memory is kept back: what no tensor has is free."""

    @staticmethod
    def ipc_collect() -> None:
        """No memory is shared with other processes."""

    @staticmethod
    def memory_allocated(device: object = None) -> int:
        """Bytes that tensors of the device have now."""
        _check(device)
        return stats.usage()["current"]

    @staticmethod
    def max_memory_allocated(device: object = None) -> int:
        """Bytes that tensors of the device had at most, since `reset_peak_memory_stats`."""
        _check(device)
        return stats.usage()["peak"]

    # Nothing is reserved that no tensor has.
    memory_reserved = memory_allocated
    max_memory_reserved = max_memory_allocated

    @staticmethod
    def reset_peak_memory_stats(device: object = None) -> None:
        _check(device)
        stats.forget_peak()

    reset_max_memory_allocated = reset_peak_memory_stats

    @staticmethod
    def reset_accumulated_memory_stats(device: object = None) -> None:
        _check(device)
        stats.forget_totals()

    @staticmethod
    def memory_stats(device: object = None) -> OrderedDict[str, int]:
        """Bytes by the names that PyTorch has for them."""
        _check(device)
        names = ("allocated_bytes.all", "active_bytes.all", "reserved_bytes.all")
        found = stats.usage()
        return OrderedDict(sorted((f"{name}.{key}", value) for name in names for key, value in found.items()))

    @staticmethod
    def memory_summary(device: object = None, abbreviated: bool = False) -> str:
        found = DeviceModule.memory_stats(device)
        return "\n".join(f"{name:<32} {value:>16,}" for name, value in found.items())

    @staticmethod
    def mem_get_info(device: object = None) -> tuple[int, int]:
        """Bytes of the target's device memory that no tensor has, and all of them."""
        total = DeviceModule.get_device_properties(device).total_memory
        return max(total - stats.usage()["current"], 0), total

    # ----------------------------------------------------------------------------------------------- random numbers

    @staticmethod
    def manual_seed(seed: int) -> None:
        """Random numbers come from the CPU's generator."""
        torch.default_generator.manual_seed(int(seed))

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """`torch.manual_seed` has seeded the CPU's generator, which is the device's as well."""
        torch.default_generator.manual_seed(int(seed))

    @staticmethod
    def seed() -> None:
        torch.default_generator.seed()

    seed_all = seed

    @staticmethod
    def initial_seed() -> int:
        return torch.default_generator.initial_seed()

    @staticmethod
    def get_rng_state(device: object = None) -> torch.Tensor:
        _check(device)
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: object = None) -> None:
        _check(device)
        torch.set_rng_state(state)

    @staticmethod
    def get_rng_state_all() -> list[torch.Tensor]:
        return [torch.get_rng_state()]

    @staticmethod
    def set_rng_state_all(states: Any) -> None:
        for state in states:
            torch.set_rng_state(state)

    # ------------------------------------------------------------------------------------------------------ the rest

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
