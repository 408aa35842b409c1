"""Conversions to 8-bit floats where PyTorch's differ from StableHLO's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nki.core.dtypes import DType, float8_e4m3fn, float8_e8m0fnu, float32, int32, uint32
from nki.core.source import Location
from nki.graph.importers.torch.types import out_of_range
from nki.graph.ir import TensorType, Value

if TYPE_CHECKING:
    from nki.graph.importers.torch.builder import Builder

_MAGNITUDE = (1 << 31) - 1
_LEAST = 2.0**-149
"""The smallest float32 above 0."""


def check_number(array: np.ndarray[Any, Any], dtype: DType, double: bool, location: Location) -> None:
    """Refuse a Python number that 64 bits hold in PyTorch, and 32 bits do not.

    Args:
        double: whether PyTorch computes in float64; else it makes infinities of such numbers itself.

    Raises:
        GraphError: "graph.range".
    """
    if array.ndim:
        return
    number = array.item()
    if type(number) is int and dtype in (int32, uint32):
        if not -(1 << 31) <= number <= dtype.max:
            raise out_of_range(f"the model has the number {number}", "a 64-bit integer", dtype, location)
    elif type(number) is float and dtype is float32 and double and np.isfinite(number):
        with np.errstate(over="ignore"):
            if np.isinf(np.float32(number)):
                raise out_of_range(f"the model has the number {number}", "float64", dtype, location)


def converted(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Elements that are known now."""
    if array.dtype != dtype.numpy and dtype is float8_e4m3fn:
        array = np.clip(array.astype(np.float32), dtype.min, dtype.max)
    if array.dtype != dtype.numpy and dtype is float8_e8m0fnu:
        array = np.maximum(np.abs(array.astype(np.float32)), np.float32(_LEAST))
    return array.astype(dtype.numpy)


def limited(b: Builder, x: Value) -> Value:
    """Within the range of float8_e4m3fn, which has no infinity: PyTorch saturates. NaN stays NaN."""
    limit = float8_e4m3fn.max
    if x.type.dtype.kind == "bool":
        return x
    wide = x if x.type.dtype.is_float else b.convert(x, float32)
    return b.binary("minimum", b.binary("maximum", wide, -limit), limit)


def magnitude(b: Builder, x: Value) -> Value:
    """The bits of a magnitude above 0: PyTorch ignores signs, and makes zeros the smallest power of two."""
    bits = b.one("bitcast_convert", (b.convert(x, float32),), TensorType(x.type.shape, uint32))
    positive = b.binary("maximum", b.binary("and", bits, _MAGNITUDE), 1)
    return b.one("bitcast_convert", (positive,), TensorType(x.type.shape, float32))
