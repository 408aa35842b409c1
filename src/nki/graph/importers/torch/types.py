"""Tensors and numbers of PyTorch in the model's terms: 64-bit numbers become 32-bit ones here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import free_symbols

from nki.core.dtypes import BY_NAME, DType, as_dtype, complex64
from nki.core.source import UNKNOWN, Location
from nki.frontend.host import torch_memory
from nki.graph.errors import GraphError
from nki.graph.ir import TensorType

Number = bool | int | float

_NARROWED: Mapping[torch.dtype, torch.dtype] = {
    torch.int64: torch.int32,
    torch.uint64: torch.uint32,
    torch.float64: torch.float32,
    torch.complex128: torch.complex64,
}


def narrowed(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the device for one of the host: 64-bit integers and floats have 32 bits there."""
    return _NARROWED.get(dtype, dtype)


def device_dtype(dtype: torch.dtype, location: Location) -> DType:
    """The dtype of a value in the model.

    Raises:
        GraphError: "graph.dtype" for numbers that no engine has.
    """
    if narrowed(dtype) == torch.complex64:
        return complex64
    name = str(narrowed(dtype)).removeprefix("torch.")
    if name not in BY_NAME:
        raise GraphError(
            "graph.dtype",
            f"the model has a tensor of {dtype}",
            rule=f"tensors of a model are of {', '.join(sorted(BY_NAME)[:4])} and the other dtypes of the device",
            fix="convert the tensor to float32 or int32 before this line",
            location=location,
        )
    return as_dtype(name)


def torch_dtype(dtype: DType) -> torch.dtype:
    """The inverse of `device_dtype`."""
    found: torch.dtype = getattr(torch, dtype.name)
    return found


def tensor_type(tensor: torch.Tensor, location: Location) -> TensorType:
    """The type of a tensor, whose sizes must be numbers.

    Raises:
        GraphError: "graph.dynamic-shape" for a size that is only known at run time.
    """
    return TensorType(tuple(number(size, location) for size in tensor.shape), device_dtype(tensor.dtype, location))


def number(size: Any, location: Location) -> int:
    """A size as a number."""
    if isinstance(size, int):
        return size
    if isinstance(size, torch.SymInt) and not free_symbols(size):  # a symbol that a guard made a number
        return int(size)
    raise GraphError(
        "graph.dynamic-shape",
        f"a tensor of the model has the size {size}, which is only known when the model runs",
        rule="the device's programs are made for sizes that are numbers",
        fix="write torch.where(mask, x, 0) in the place of x[mask], or export the model with static sizes",
        location=location,
    )


def host_array(tensor: torch.Tensor, dtype: DType, location: Location = UNKNOWN) -> np.ndarray[Any, Any]:
    """The elements of a CPU tensor as an array of the model's dtype; without a copy where nothing has to change.

    Raises:
        GraphError: "graph.range" for 64-bit numbers that do not fit 32 bits.
    """
    plain = tensor.detach().contiguous()
    if plain.dtype != torch_dtype(dtype):
        if plain.dtype in _NARROWED and not plain.is_complex() and dtype.bits <= _WORD:
            check_range(plain.numpy(), dtype, location)
        plain = plain.to(torch_dtype(dtype) if dtype.kind == "complex" or not plain.is_complex() else torch.complex64)
    plain = plain.resolve_conj().resolve_neg()
    if plain.is_complex() and dtype.kind != "complex":
        plain = torch.view_as_real(plain)
    return torch_memory(plain, dtype)


_WORD = 32


def check_range(array: np.ndarray[Any, Any], dtype: DType, location: Location) -> None:
    """Refuse 64-bit numbers that become others with 32 bits; floats are rounded, but do not become infinite.

    Raises:
        GraphError: "graph.range".
    """
    if not array.size:
        return
    if array.dtype.kind == "f":
        finite = array[np.isfinite(array)]
        limit = float(np.finfo(np.float32).max) * (1 + 2.0**-25)
        low, high = (finite.min(), finite.max()) if finite.size else (0, 0)
        fits = -limit < low and high < limit
    else:
        low, high = array.min(), array.max()
        least = -(1 << (_WORD - 1)) if dtype.kind == "int" else 0
        fits = int(low) >= least and int(high) < least + (1 << _WORD)
    if not fits:
        raise out_of_range(f"a tensor of {array.dtype} has values from {low} to {high}", array.dtype, dtype, location)


def out_of_range(message: str, source: object, dtype: DType, location: Location) -> GraphError:
    """The error for numbers of 64 bits that 32 bits do not hold."""
    return GraphError(
        "graph.range",
        message,
        rule=f"{source} is {dtype} on the device",
        fix="keep such numbers on the host, or use ones that fit 32 bits",
        location=location,
    )


def host_tensor(array: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """An array of the model as a CPU tensor of the dtype that the framework expects."""
    if array.dtype.kind == "V" or array.dtype.name not in _PLAIN:
        stored = torch.from_numpy(array.view(f"u{array.dtype.itemsize}"))
        made = stored.view(getattr(torch, array.dtype.name))
    else:
        made = torch.from_numpy(array)
    if dtype.is_complex and not made.is_complex():
        made = torch.view_as_complex(made)
    return made if made.dtype == dtype else made.to(dtype)


_PLAIN = frozenset(
    (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "float16",
        "float32",
        "float64",
        "complex64",
    )
)


@cache  # two tensors without memory for each dtype
def _stand_in(dtype: torch.dtype, scalar: bool) -> torch.Tensor:
    with unset_fake_temporarily():  # it is kept, and whoever traces at its first use is not there at the next
        return torch.empty(() if scalar else (1,), dtype=dtype, device="meta")


def promoted(*operands: TensorType | Number) -> DType:
    """The dtype in which ATen computes with tensors and Python numbers (`torch.result_type`), narrowed."""
    found: Any = _meta(operands[0])
    if len(operands) == 1:
        return device_dtype(torch.result_type(found, found), UNKNOWN)
    for operand in operands[1:]:
        other = _meta(operand)
        both_numbers = not isinstance(found, torch.Tensor) and not isinstance(other, torch.Tensor)
        dtype = torch.result_type(found, other)
        tensors = [x for x in (found, other) if isinstance(x, torch.Tensor)]
        found = other if both_numbers else _stand_in(narrowed(dtype), all(x.ndim == 0 for x in tensors))
    return device_dtype(found.dtype, UNKNOWN)


def _meta(operand: TensorType | Number) -> Any:
    if isinstance(operand, TensorType):
        return _stand_in(torch_dtype(operand.dtype), not operand.shape)
    return operand
