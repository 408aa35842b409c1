"""Kernels in PyTorch: `nki_op`, `wrap_nki`, the device ``neuron`` and the backend ``neuron`` of `torch.compile`.

With it, kernels take traced tensors too.
"""

from __future__ import annotations

from nki.interop.common.missing_framework import missing

try:
    import torch as torch
except ModuleNotFoundError as error:
    raise missing("torch", error) from None

from nki.interop.torch import framework, profiler_ranges
from nki.interop.torch.compile import backend
from nki.interop.torch.compile.backend import compiled_graphs
from nki.interop.torch.device.registration import enable_device
from nki.interop.torch.eager.provenance import forget, on_device_counts, provenance, reasons
from nki.interop.torch.eager.single_operators import eager_on
from nki.interop.torch.one_rank.profile import profile_step
from nki.interop.torch.operator.nki_op import nki_op
from nki.interop.torch.operator.wrap_nki import Wrapped, wrap_nki

__all__ = [
    "Wrapped",
    "compiled_graphs",
    "eager_on",
    "enable_device",
    "forget",
    "install",
    "nki_op",
    "on_device_counts",
    "profile_step",
    "provenance",
    "reasons",
    "wrap_nki",
]


def install() -> None:
    """Let kernels take tensors that are traced or on the device, and `torch.compile` know the backend.

    Importing this module has done it, and nothing happens a second time. The device is there after `enable_device`.
    """
    framework.install()
    backend.install()
    profiler_ranges.install()


install()
