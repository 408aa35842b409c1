"""On which device an operator runs: where its tensors are."""

from __future__ import annotations

from typing import Any

import torch

from nki.core.errors import ExecutionError
from nki.interop.torch.devices import DEVICE, index_of
from nki.interop.torch.operator.argument_trees import map_tensors
from nki.interop.torch.user_location import user_line

_FROM_ANYWHERE = frozenset(("aten::_foreach_copy_", "aten::set_.source_Tensor"))
"""Operators whose tensors may be in several places."""


def place_of(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The number of the device.

    As PyTorch has it, numbers without dimensions may be on the CPU, and so may indices and lengths.

    Raises:
        ExecutionError: tensors are in several places ("torch.mixed-devices").
    """
    places: dict[torch.device, None] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == DEVICE or (tensor.dim() and tensor.dtype.is_floating_point):
            places[tensor.device] = None
        return tensor

    map_tensors((args, kwargs), note)
    if len(places) > 1 and operator.name() not in _FROM_ANYWHERE:
        raise ExecutionError(
            "torch.mixed-devices",
            f"{operator.name()} gets tensors on {' and '.join(map(str, places))}: they are not on the same device",
            rule="the tensors of an operator are on one device",
            fix=f'move all of them: tensor.to("{next(iter(places))}")',
            location=user_line(),
        )
    found = next((place for place in places if place.type == DEVICE), None)
    return index_of(kwargs.get("device")) if found is None else found.index
