"""``device="neuron"``: PyTorch's out-of-tree device, from Python alone.

Tensors have host memory under the device's name (`memory`). Views are PyTorch's own. Every other operator that is
no kernel is a program of its own (`eager`), or runs on the CPU, on the same memory, and is counted in
`provenance`. The functions of PyTorch that register a device are private and may change; no other module uses them.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import torch
from torch.utils import backend_registration

from nki.core.errors import LaunchError
from nki.interop.torch.device import (
    accelerator,
    attention,
    autocast,
    moves,
    pinned_memory,
    rnn_cells,
    shared_statistics,
    storage,
    unused_parameters,
)
from nki.interop.torch.device.device_module import DeviceModule
from nki.interop.torch.device.host_operators import lowered, on_the_cpu
from nki.interop.torch.device.places import place_of
from nki.interop.torch.devices import before_another, index_of
from nki.interop.torch.distributed import backend as distributed
from nki.interop.torch.eager.single_operators import on_the_device
from nki.interop.torch.memory import DEVICE, on_device
from nki.interop.torch.untraced import Operators
from nki.interop.torch.user_location import user_line

_KEY = "PrivateUse1"
_CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

# Views of a storage: these kernels of the CPU only make another TensorImpl, whatever the device of the storage.
_VIEWS = (
    "_reshape_alias",
    "as_strided",
    "set_.source_Storage",
    "set_.source_Storage_storage_offset",
    "set_.source_Tensor",
    "unfold",
    "view",
)

_LIBRARIES: list[torch.library.Library] = []
"""Registrations end with their library, so it is kept."""


def enable_device() -> None:
    """Register the device ``neuron`` with PyTorch, once per process.

    Raises:
        LaunchError: PyTorch has room for one such device, and another one is registered ("torch.device-taken"); or this
            PyTorch cannot register devices from Python ("torch.device-missing").
    """
    if _LIBRARIES:
        return
    _check_room()
    _name_it()
    storage.install()
    everything = Operators("_")
    everything.fallback(_run, _KEY)
    aten = Operators("aten")
    for name, function in _IMPLEMENTED.items():
        aten.impl(name, function, _KEY)
    for name in _VIEWS:
        aten.impl(name, _view_kernel(name), _KEY)
    rnn_cells.register(aten, _KEY)
    attention.register(aten, _KEY, _run)
    shared_statistics.register(aten, _KEY)
    pinned_memory.register(aten)
    accelerator.install()
    before_another(moves.install)
    autocast.register(everything, aten)
    _LIBRARIES.extend((everything, aten))
    distributed.install()
    unused_parameters.install()


def _name_it() -> None:
    """Tell PyTorch the name of the device, and give it `torch.neuron`."""
    module = DeviceModule()
    if _is_named():
        setattr(torch, DEVICE, module)
        sys.modules[f"torch.{DEVICE}"] = module  # type: ignore[assignment]
    else:
        backend_registration._setup_privateuseone_for_python_backend(DEVICE, backend_module=module)


def _is_named() -> bool:
    """Whether PyTorch has loaded the name of the device by itself, from the entry point ``torch.backends``."""
    return bool(getattr(getattr(torch, DEVICE, None), "UNLOADED", False))


def _check_room() -> None:
    """Raise LaunchError if this PyTorch has no room for a device, or no way to register one."""
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        raise LaunchError(
            "torch.device-missing",
            f"PyTorch {torch.__version__} has no way to register a device from Python",
            rule="the device is tested with PyTorch 2.13",
            source="torch.utils.backend_registration",
            fix="install torch==2.13.0, or use CPU tensors, which kernels take as well",
            location=user_line(),
        )
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", DEVICE) or (hasattr(torch, DEVICE) and not _is_named()):
        raise LaunchError(
            "torch.device-taken",
            f"PyTorch has the device {taken} already",
            rule="PyTorch has room for one device that is not its own",
            fix="use another process, or CPU tensors, which kernels take as well",
            location=user_line(),
        )


_THREAD = threading.local()
"""Whether this thread's backward was asked to run in it; PyTorch's switch is one of the thread as well."""


def in_this_thread() -> None:
    """Let the backward of this thread run in it.

    PyTorch counts its devices at the first backward of a process, which may be earlier than this device, and makes
    threads for them; a backward in the caller's thread needs none.
    """
    if not hasattr(_THREAD, "alone"):
        _THREAD.alone = True
        torch._C._set_multithreading_enabled(False)


def _empty(
    size: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    index = index_of(device)
    in_this_thread()
    made = torch.empty(
        size,
        dtype=dtype,
        layout=layout or torch.strided,
        memory_format=memory_format or torch.contiguous_format,
        device="cpu",
    )
    return on_device(made, index)


def _empty_strided(
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    index = index_of(device)
    in_this_thread()
    made = torch.empty_strided(size, stride, dtype=dtype, layout=layout or torch.strided, device="cpu")
    return on_device(made, index)


def _zeros(size: list[int], **options: Any) -> torch.Tensor:
    """Zeros that forward derivatives begin with: elements like all others, where PyTorch has tensors without memory."""
    return _empty(size, **options).zero_()


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    lowered(target).copy_(lowered(source))
    return target


def _to_copy(
    tensor: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Everything is finished when a call returns, so that copies never pend and need no pinned memory."""
    in_this_thread()
    device = tensor.device if device is None else device
    stays = device.type == DEVICE
    index = index_of(device) if stays else 0
    place = torch.device("cpu") if stays else device
    copied = torch.ops.aten._to_copy(
        lowered(tensor), dtype=dtype, layout=layout, device=place, pin_memory=pin_memory, memory_format=memory_format
    )
    return on_device(copied, index) if stays else copied


def _convolution(*args: Any) -> torch.Tensor:
    """What PyTorch calls for a convolution on a device that is not its own."""
    return _run(torch.ops.aten.convolution.default, *args)


def _convolution_backward(gradient: torch.Tensor, data: torch.Tensor, weight: torch.Tensor, *rest: Any) -> Any:
    sizes = [gradient.shape[1]]  # of the bias
    return _run(torch.ops.aten.convolution_backward.default, gradient, data, weight, sizes, *rest)


def _layer_norm(*args: Any) -> Any:
    """PyTorch has a layer norm made of a batch norm for devices that are not its own."""
    return _run(torch.ops.aten.native_layer_norm.default, *args)


def _batch_norm(
    data: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Any:
    """The operator writes to the statistics without saying so in its schema; those that are called here do not."""
    aten = torch.ops.aten
    if not training and mean is not None and variance is not None:
        numbers = (momentum, epsilon)
        found = _run(aten._native_batch_norm_legit_no_training.default, data, weight, bias, mean, variance, *numbers)
    elif mean is None or variance is None:
        found = _run(aten._native_batch_norm_legit.no_stats, data, weight, bias, True, momentum, epsilon)
    else:
        functional = aten._native_batch_norm_legit_functional.default
        *found, new_mean, new_variance = _run(functional, data, weight, bias, mean, variance, True, momentum, epsilon)
        mean.copy_(new_mean)
        variance.copy_(new_variance)
    return tuple(found)


def _resize(tensor: torch.Tensor, size: list[int], *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """Memory that is large enough stays; else the tensor gets new memory with its elements."""
    needed = (math.prod(size) + tensor.storage_offset()) * tensor.element_size()
    if needed <= tensor.untyped_storage().nbytes():
        return torch.ops.aten.resize_.default.redispatch(_CPU_KERNEL, tensor, size, memory_format=memory_format)
    larger = lowered(tensor).clone().resize_(size, memory_format=memory_format or torch.contiguous_format)
    tensor.data = on_device(larger, tensor.device.index)
    return tensor


def _view_kernel(name: str) -> Any:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def view(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return operator.redispatch(_CPU_KERNEL, tensor, *args, **kwargs)

    return view


def _run(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Any other operator: by a program of the device, or else on the CPU."""
    in_this_thread()
    index = place_of(operator, args, kwargs)
    found = on_the_device(operator, args, kwargs, index)
    return on_the_cpu(operator, args, kwargs, index) if found is None else found[0]


_IMPLEMENTED = {
    "_efficientzerotensor": _zeros,
    "_to_copy": _to_copy,
    "convolution_backward_overrideable": _convolution_backward,
    "convolution_overrideable": _convolution,
    "copy_": _copy,
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "native_batch_norm": _batch_norm,
    "native_layer_norm": _layer_norm,
    "record_stream": lambda tensor, stream: None,
    "resize_": _resize,
}
"""Operators of ATen that are not run like others. Each is a function of this module, so they stand at its end."""
