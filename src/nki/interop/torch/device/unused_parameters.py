"""DDP that looks for unused parameters: it asks for pinned memory, which only C++ can allocate for a device.

From the first such model on, CPU tensors that are asked for by their strides are made in Python in this process, which
takes some microseconds for each.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from nki.interop.torch.device.pinned_memory import remembered
from nki.interop.torch.memory import DEVICE
from nki.interop.torch.untraced import Operators

_FINDS = 5
"""Where `find_unused_parameters` is among the arguments of a reducer that come after the parameters."""

_LIBRARIES: list[Operators] = []
"""Registrations end with their library, so it is kept."""


def install() -> None:
    """Let the reducers of DDP have what they ask for where parameters are on the device."""
    if not dist.is_available():
        return
    kind: Any = dist.Reducer
    begin, make_static = kind.__init__, kind._set_static_graph

    def begun(reducer: Any, parameters: Any, *args: Any, **kwargs: Any) -> None:
        finds = kwargs.get("find_unused_parameters") or any(args[_FINDS : _FINDS + 1])
        if finds and any(parameter.device.type == DEVICE for parameter in parameters):
            _take_over()
        begin(reducer, parameters, *args, **kwargs)

    def made_static(reducer: Any) -> None:
        _take_over()  # it looks for unused parameters in its first step
        make_static(reducer)

    kind.__init__, kind._set_static_graph = begun, made_static


@cache  # once for the process
def _take_over() -> None:
    """Make CPU tensors that are asked for as pinned."""
    library = Operators("aten")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        library.impl("empty_strided", _empty_strided, "CPU", allow_override=True)
    _LIBRARIES.append(library)


def _empty_strided(
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    needed = 1 + sum((count - 1) * step for count, step in zip(size, stride, strict=True)) if all(size) else 0
    made = torch.empty(needed, dtype=dtype, layout=layout, device=device).as_strided(size, stride)
    return remembered(made) if pin_memory else made
