"""``torch.autocast("neuron")``: products run in the lower precision, everything else in the precision it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nki.interop.torch.memory import DEVICE
from nki.interop.torch.operator.argument_trees import map_tensors

_KEY = "AutocastPrivateUse1"
_EXCLUDED = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

# The products of PyTorch's own lists for CPU and CUDA (torch.amp, "ops that autocast to lower precision").
_PRODUCTS = (
    "addbmm",
    "addmm",
    "baddbmm",
    "bmm",
    "conv1d",
    "conv2d",
    "conv3d",
    "linear",
    "matmul",
    "mm",
    "scaled_dot_product_attention",
)


def register(everything: torch.library.Library, aten: torch.library.Library) -> None:
    """Register what autocast does on the device."""
    everything.fallback(torch.library.fallthrough_kernel, _KEY)
    for name in _PRODUCTS:
        aten.impl(name, _lowering(getattr(torch.ops.aten, name).default), _KEY)


def _lowering(operator: Any) -> Callable[..., Any]:
    def product(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(DEVICE)

        def lower(tensor: torch.Tensor) -> torch.Tensor:
            wide = tensor.is_floating_point() and tensor.dtype != torch.float64 and tensor.device.type == DEVICE
            return tensor.to(dtype) if wide else tensor

        with torch._C._ExcludeDispatchKeyGuard(_EXCLUDED):
            cast_args, cast_kwargs = map_tensors((args, kwargs), lower)
            return operator(*cast_args, **cast_kwargs)

    return product
