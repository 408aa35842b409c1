"""Operators that run on the CPU in the place of the device, on the device's memory."""

from __future__ import annotations

from typing import Any

import torch

from nki.interop.torch.eager.provenance import note
from nki.interop.torch.eager.single_operators import tell_of_host
from nki.interop.torch.memory import DEVICE, on_cpu, on_device
from nki.interop.torch.operator.argument_trees import map_tensors

_GROWING = frozenset(("aten::mse_loss.out", "aten::smooth_l1_loss.out"))
"""Operators that give what they write to the shape of their arguments first, also where it is a sum of one element."""


def on_the_cpu(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], index: int) -> Any:
    """Run an operator on the CPU, on the device's memory."""
    note(operator.name())
    tell_of_host(operator)
    known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def lower(tensor: torch.Tensor) -> torch.Tensor:
        return known.setdefault(id(tensor), (tensor, lowered(tensor)))[1]

    cpu_args, cpu_kwargs = map_tensors(_without_device((args, kwargs)), lower)
    result, roomy = _called(operator, cpu_args, cpu_kwargs)
    for name, made in roomy.items():
        known[id(kwargs[name])] = kwargs[name], made
        if made.shape == kwargs[name].shape:
            cpu_kwargs[name].copy_(made)
    for tensor, lower_tensor in known.values():
        if tensor is not lower_tensor and tensor.shape != lower_tensor.shape:
            tensor.data = on_device(lower_tensor, tensor.device.index)  # an out= tensor got its size
    originals = {id(lower_tensor): tensor for tensor, lower_tensor in known.values()}
    return map_tensors(result, lambda tensor: _raised(tensor, originals, list(known.values()), index))


def _called(operator: Any, args: Any, kwargs: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """The result of an operator, and what it wrote to in the place of arguments ``out=``.

    It writes to those, unless it makes them larger, if only for a moment: memory of the device has no room for that.
    """
    outputs = [argument.name for argument in operator._schema.arguments if argument.is_out]
    roomy: dict[str, torch.Tensor] = {}
    if operator.name() not in _GROWING:
        try:
            return operator(*args, **kwargs), roomy
        except RuntimeError:
            if not outputs:
                raise
    roomy = {name: torch.empty(0, dtype=kwargs[name].dtype, device="cpu") for name in outputs}
    return operator(*args, **{**kwargs, **roomy}), roomy


def _raised(
    tensor: torch.Tensor,
    originals: dict[int, torch.Tensor],
    inputs: list[tuple[torch.Tensor, torch.Tensor]],
    index: int,
) -> torch.Tensor:
    """The result on the device: an argument itself, a view of one, or a tensor of its own."""
    if id(tensor) in originals:
        return originals[id(tensor)]
    place = tensor.untyped_storage().data_ptr()
    for original, lower in inputs:
        if place and lower.untyped_storage().data_ptr() == place and lower.dtype == tensor.dtype:
            if original is lower:
                return tensor
            offset = original.storage_offset() + tensor.storage_offset() - lower.storage_offset()
            return torch.as_strided(original, tensor.size(), tensor.stride(), offset)
    return on_device(tensor, index)


def lowered(tensor: torch.Tensor) -> torch.Tensor:
    """The CPU's view of a tensor. An empty one is new, so that operators can give an ``out=`` tensor its size."""
    if tensor.device.type != DEVICE:
        return tensor
    return on_cpu(tensor) if tensor.numel() else torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _without_device(value: Any) -> Any:
    """Arguments with the CPU in the place of the device."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == DEVICE else value
    if isinstance(value, dict):
        return {key: _without_device(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(_without_device, value))
    return value
