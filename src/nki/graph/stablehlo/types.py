"""Element types as MLIR spells them, and which of them a device has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nki.core import dtypes
from nki.core.dtypes import DType
from nki.graph.errors import GraphError

_SPELLINGS: Mapping[str, DType] = {
    "i1": dtypes.bool_,
    "i8": dtypes.int8,
    "i16": dtypes.int16,
    "i32": dtypes.int32,
    "i64": dtypes.int64,
    "ui8": dtypes.uint8,
    "ui16": dtypes.uint16,
    "ui32": dtypes.uint32,
    "ui64": dtypes.uint64,
    "f16": dtypes.float16,
    "f32": dtypes.float32,
    "bf16": dtypes.bfloat16,
    "f8E4M3": dtypes.float8_e4m3,
    "f8E4M3FN": dtypes.float8_e4m3fn,
    "f8E5M2": dtypes.float8_e5m2,
    "f8E8M0FNU": dtypes.float8_e8m0fnu,
    "complex<f32>": dtypes.complex64,
}
_BY_DTYPE = {dtype: spelling for spelling, dtype in _SPELLINGS.items()}


def dtype_of(spelling: str | np.dtype[Any]) -> DType:
    """The dtype of an MLIR element type, or of an array's. 64-bit floats are 32-bit ones, since no device has them.

    Raises:
        GraphError: "graph.dtype".
    """
    if spelling == "complex<f64>" or (isinstance(spelling, np.dtype) and spelling.kind == "c"):
        return dtypes.complex64
    if isinstance(spelling, np.dtype):
        return dtypes.float32 if spelling == np.float64 else dtypes.from_numpy(spelling)
    if spelling == "f64":
        return dtypes.float32
    if spelling not in _SPELLINGS:
        raise GraphError(
            "graph.dtype",
            f"the model has tensors of {spelling}",
            rule=f"elements are one of {', '.join(_SPELLINGS)}, f64",
            fix="convert the model to one of these before it is exported",
        )
    return _SPELLINGS[spelling]


def is_complex(element: Any) -> bool:
    """Whether an element type of MLIR is one of complex numbers."""
    return str(element).startswith("complex<")


def mlir_dtype(dtype: DType) -> str:
    """How MLIR spells a dtype; ``tfloat32`` is stored as f32."""
    return _BY_DTYPE.get(dtype, "f32")


def to_device(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Constants of 64-bit floats in 32 bits, anything else as it is.

    Raises:
        GraphError: "graph.range" for finite numbers that are infinite as float32.
    """
    narrow = _NARROW.get(values.dtype)
    if narrow is None:
        return np.asarray(values)
    with np.errstate(over="ignore"):
        made: npt.NDArray[Any] = np.asarray(values, narrow)
    if np.any(np.isinf(made) & np.isfinite(values)):
        raise GraphError(
            "graph.range",
            f"a constant of {values.dtype} has the number {values[np.isinf(made) & np.isfinite(values)].flat[0]}",
            rule=f"{values.dtype} is {made.dtype} on the device",
            fix="keep such numbers on the host, or use ones that float32 holds",
        )
    return made


_NARROW = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}
