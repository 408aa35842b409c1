"""Running a kernel on tensors that have values, on the CPU or on the simulated device."""

from __future__ import annotations

from typing import Any

import torch

from nki.core.errors import ArgumentError, LaunchError
from nki.interop.torch.memory import DEVICE, on_cpu, on_device
from nki.interop.torch.operator.argument_trees import map_tensors
from nki.interop.torch.user_location import user_line
from nki.kernel import Kernel


def run(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a kernel; its results are where its tensors are.

    Raises:
        ArgumentError: tensors of both the CPU and a device, or of two devices ("torch.mixed-devices").
        LaunchError: a tensor on the device requires a gradient ("argument.requires-grad").
        NkiError: what a call of the kernel raises.
    """
    places: set[torch.device] = set()
    map_tensors((args, kwargs), lambda tensor: places.add(tensor.device))
    index = next((place.index for place in places if place.type == DEVICE), None)
    if index is None:
        return kernel.run(args, kwargs)
    if len(places) > 1:
        raise ArgumentError(
            "torch.mixed-devices",
            f"{kernel.func.__name__} got tensors on {' and '.join(sorted(map(str, places)))}",
            rule="the tensors of one call are in one place",
            fix=f"move them with .to('{DEVICE}:{index}')",
            location=user_line(),
        )
    moved: dict[int, torch.Tensor] = {}  # one tensor given twice stays one tensor

    def lower(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.requires_grad and torch.is_grad_enabled():
            raise LaunchError(
                "argument.requires-grad",
                f"a tensor that {kernel.func.__name__} is called with requires a gradient, which would be lost",
                fix="call it under torch.no_grad(), or say what the derivative is: kernel.defvjp(forward, backward)",
                location=user_line(),
            )
        return moved.setdefault(id(tensor), on_cpu(tensor))

    lowered = map_tensors((args, kwargs), lower)
    return map_tensors(kernel.run(*lowered), lambda tensor: on_device(tensor, index))
