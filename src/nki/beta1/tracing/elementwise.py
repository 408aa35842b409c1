"""Functions that compute each element of its own, where their mask is true and all operands exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.operands import common_region, part_of, plain, tile
from nki.beta1.tracing.recipes import computed
from nki.beta1.tracing.results import undefined
from nki.core.nki_tensor import NkiTensor


def elementwise(
    function: str,
    operands: Sequence[Any],
    mask: Any,
    compute: Callable[..., NkiTensor],
    *,
    names: Sequence[str] = "xyz",
    explicit: bool = False,
) -> Tensor:
    """The tile of a function that computes each element of its own, where the mask is true and all operands exist.

    Args:
        operands: tiles, which broadcast, and numbers.
        compute: gets the operands as tensors and numbers of Python; returns a new tile.
        names: of the operands, for messages.
        explicit: whether the caller chose the dtype of the result.
    """
    shape, region = common_region(function, operands, mask)
    if region.empty:
        return undefined(function, operands, shape)
    values = [
        tile(each, name, function, part_of(region.box, each, shape)) if isinstance(each, Tensor) else plain(each)
        for name, each in zip(names, operands, strict=False)
    ]
    return computed(function, compute, values, shape, region, explicit=explicit)
