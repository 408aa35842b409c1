"""`torch.neuron`: what PyTorch and the packages around it ask of a device's module."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch

from nki.interop.torch import memory_stats as stats
from nki.interop.torch.device import streams
from nki.interop.torch.device.inductor import refusing
from nki.interop.torch.devices import DEVICE, choose, count, current, index_of
from nki.interop.torch.eager.provenance import provenance as provenance


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
    """``with torch.neuron.device(1)``: another current device, until the end of the block."""

    def __init__(self, device: object) -> None:
        self._index = index_of(device)
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(choose(self._index))

    def __exit__(self, *_: object) -> None:
        choose(self._before.pop())


class _OfTensor(_Chosen):
    """``with torch.neuron.device_of(tensor)``: the device of a tensor, if it is on one."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == DEVICE else None)


class DeviceModule:
    """Simulated devices, always there, whose work is done when a call returns."""

    device = _Chosen
    device_of = _OfTensor
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
        """How many devices this process has (docs/environment.md)."""
        return count()

    @staticmethod
    def current_device() -> int:
        """The number of the device that ``device="neuron"`` means."""
        return current()

    @staticmethod
    def set_device(device: object) -> None:
        """Make a device the current one of this thread."""
        choose(index_of(device))

    @staticmethod
    def can_device_access_peer(device: object, peer_device: object) -> bool:
        """Whether tensors go from one device to another: they do."""
        return index_of(device) != index_of(peer_device)

    @staticmethod
    def synchronize(device: object = None) -> None:
        """Nothing is pending: every call has finished when it returns."""
        index_of(device)

    @staticmethod
    def get_device_properties(device: object = None) -> DeviceProperties:
        """Name and memory of the target that the environment chooses."""
        index_of(device)
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
        return stats.usage(index_of(device))["current"]

    @staticmethod
    def max_memory_allocated(device: object = None) -> int:
        """Bytes that tensors of the device had at most, since `reset_peak_memory_stats`."""
        return stats.usage(index_of(device))["peak"]

    # Nothing is reserved that no tensor has.
    memory_reserved = memory_allocated
    max_memory_reserved = max_memory_allocated

    @staticmethod
    def reset_peak_memory_stats(device: object = None) -> None:
        stats.forget_peak(index_of(device))

    reset_max_memory_allocated = reset_peak_memory_stats

    @staticmethod
    def reset_accumulated_memory_stats(device: object = None) -> None:
        stats.forget_totals(index_of(device))

    @staticmethod
    def memory_stats(device: object = None) -> OrderedDict[str, int]:
        """Bytes by the names that PyTorch has for them."""
        names = ("allocated_bytes.all", "active_bytes.all", "reserved_bytes.all")
        found = stats.usage(index_of(device))
        return OrderedDict(sorted((f"{name}.{key}", value) for name in names for key, value in found.items()))

    @staticmethod
    def memory_summary(device: object = None, abbreviated: bool = False) -> str:
        found = DeviceModule.memory_stats(device)
        return "\n".join(f"{name:<32} {value:>16,}" for name, value in found.items())

    @staticmethod
    def mem_get_info(device: object = None) -> tuple[int, int]:
        """Bytes of the target's device memory that no tensor has, and all of them."""
        total = DeviceModule.get_device_properties(device).total_memory
        return max(total - stats.usage(index_of(device))["current"], 0), total

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
        index_of(device)
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: object = None) -> None:
        index_of(device)
        torch.set_rng_state(state)

    @staticmethod
    def get_rng_state_all() -> list[torch.Tensor]:
        return [torch.get_rng_state()] * count()

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
