"""ATen's operators that make tensors out of nothing: constants and ranges."""

from __future__ import annotations

import numpy as np

from nki.core.dtypes import int32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, converts
from nki.graph.ir import Value

_MOST_FOLDED = 1 << 12
"""Ranges of floats up to this size are constants, rounded as PyTorch does."""


@converts("full", "full_like", "scalar_tensor")
def _full(b: Builder, call: Call, *arguments: object) -> Value:
    number = arguments[0] if call.name == "aten.scalar_tensor.default" else arguments[1]
    if isinstance(number, Value):
        return b.expanded(b.convert(number, call.dtype), call.type.shape)
    return b.constant(number, call.dtype, call.type.shape)


@converts("empty.memory_format", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
def _empty(b: Builder, call: Call, *arguments: object) -> Value:
    return b.constant(0, call.dtype, call.type.shape)


@converts("arange.start_step")
def _arange(b: Builder, call: Call, start: float, end: float, step: float, *options: object) -> Value:
    (count,) = call.type.shape
    if call.dtype.is_float and count <= _MOST_FOLDED:
        return b.constant(start + step * np.arange(count, dtype=np.float64), call.dtype, (count,))
    numbers = b.convert(b.iota((count,), 0, int32), call.dtype)
    if step != 1:
        numbers = b.multiply(numbers, step)
    return numbers if start == 0 else b.add(numbers, start)


@converts("linspace")  # in float64: as a range of float32 it is off by more
def _linspace(b: Builder, call: Call, start: float, end: float, steps: int, *options: object) -> Value:
    return b.constant(np.linspace(start, end, steps), call.dtype, (steps,))
