"""Arrays of the host: NumPy, torch on CPU and JAX arrays as contiguous NumPy bytes, and results in the caller's kind.

What stands for an array is known as well: a shape and a dtype without data, which is all that predictions need.

A framework's array can only exist if the framework is imported, so nothing is imported here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from nki.core.dtypes import DType, as_dtype, from_numpy
from nki.core.errors import ArgumentError, LaunchError

Kind = Literal["numpy", "torch", "jax", "shape"]
"""Whose array it is; "shape" for what only stands for one."""


@dataclass(frozen=True, slots=True)
class ShapeDtype:
    """Stands for an array where only its shape and its dtype count.

    Attributes:
        shape: sizes of the dimensions.
        dtype: of NKI, NumPy or torch, or the name of one.
    """

    shape: tuple[int, ...]
    dtype: Any


class HostArray(NamedTuple):
    """One array argument.

    Attributes:
        kind: the framework it came from.
        original: what the caller passed.
        array: contiguous NumPy array of the storage dtype; shares memory with the original where possible.
        dtype: NKI dtype.
        shared: whether writes to `array` are writes to the original.
    """

    kind: Kind
    original: Any
    array: np.ndarray
    dtype: DType
    shared: bool


def kind_of(value: Any) -> Kind | None:
    """The framework of an array, or None for everything else."""
    if isinstance(value, np.ndarray):
        return "numpy"
    if isinstance(value, ShapeDtype):
        return "shape"
    module = type(value).__module__.partition(".")[0]
    if module == "torch" and hasattr(value, "data_ptr"):
        return "shape" if value.is_meta or _is_fake(value) else "torch"
    if module in ("jax", "jaxlib") and (hasattr(value, "sharding") or _is_traced(value)):
        return "shape" if isinstance(value, sys.modules["jax"].ShapeDtypeStruct) else "jax"
    return None


def _is_fake(tensor: Any) -> bool:
    """Whether it is one of the tensors with which PyTorch finds shapes."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    return fakes is not None and isinstance(tensor, fakes.FakeTensor)


def take(value: Any, kind: Kind, name: str) -> HostArray:
    """See an array as bytes; errors name the argument."""
    array = {"numpy": _numpy, "torch": _torch, "jax": _jax, "shape": _no_data}[kind](value, name)
    dtype = _checked(array, kind, name)
    if array.ndim == 0:
        array = array.reshape(1)
    whole = np.ascontiguousarray(array)
    shared = kind != "jax" and np.shares_memory(whole, array) and whole.flags.writeable
    if kind == "jax" or (not whole.flags.writeable):
        whole = whole.copy()
    return HostArray(kind, value, whole, dtype, shared)


def take_shape(value: Any, kind: Kind, name: str) -> HostArray:
    """See what stands for an array as one of its shape and dtype, without memory; arrays as `take` does."""
    if kind != "shape":
        return take(value, kind, name)
    shape = tuple(int(size) for size in value.shape)
    dtype = np.dtype(value.dtype) if isinstance(value.dtype, type) else value.dtype
    stored = as_dtype_or_raise(dtype, name, single=not shape).numpy
    array = np.broadcast_to(np.zeros((), stored), shape or (1,))
    return HostArray(kind, value, array, _checked(array, kind, name), shared=False)


def _checked(array: np.ndarray, kind: Kind, name: str) -> DType:
    """The dtype of an array that a kernel can take; ArgumentError for all others."""
    dtype = from_numpy(array.dtype)
    if not dtype.device:
        raise ArgumentError(
            "argument.dtype",
            f"argument {name} is an array of {array.dtype}",
            rule="devices have no 64-bit tensors",
            fix=_cast(name, f"{array.dtype}".removesuffix("64") + "32", kind, single=array.ndim == 0),
        )
    if array.size == 0:
        raise ArgumentError(
            "argument.empty",
            f"argument {name} has shape {array.shape} and no element",
            fix="do not call the kernel for empty tensors",
        )
    return dtype


def write_back(host: HostArray) -> None:
    """Carry the kernel's writes to an input into the caller's array."""
    if host.shared:
        return
    if host.kind == "jax":
        raise LaunchError(
            "argument.immutable",
            "the kernel writes to a JAX array, which cannot change",
            fix="return the tensor from the kernel and use the returned array",
        )
    if not _target(host).flags.writeable:
        raise LaunchError("argument.read-only", "the kernel writes to a read-only array", fix="pass a writable copy")
    _target(host)[...] = host.array.reshape(_target(host).shape)


def give(array: np.ndarray, dtype: DType, kind: Kind, like: Any) -> Any:
    """A result in the caller's kind."""
    if kind == "torch":
        return _to_torch(array, dtype, like)
    if kind == "jax":
        return sys.modules["jax"].numpy.asarray(array)
    return array


def _numpy(value: np.ndarray, name: str) -> np.ndarray:
    as_dtype_or_raise(value.dtype, name, single=value.ndim == 0)
    return value


def _no_data(value: Any, name: str) -> np.ndarray:
    raise ArgumentError(
        "argument.no-data",
        f"argument {name} is a {type(value).__name__}, which has a shape and no data",
        rule="a call computes with the values of its arrays",
        fix=f"pass an array as {name}; to know the time alone, write nki.predict(kernel)(...)",
    )


def _is_traced(value: Any) -> bool:
    return isinstance(value, sys.modules["jax"].core.Tracer)


def _jax(value: Any, name: str) -> np.ndarray:
    if _is_traced(value):
        raise LaunchError(
            "argument.jax-tracer",
            f"argument {name} is a JAX tracer: it has no value before the program of jax.jit runs",
            fix="call the kernel itself, which becomes part of the program, or pass concrete arrays",
        )
    array = np.asarray(value)
    as_dtype_or_raise(array.dtype, name, single=array.ndim == 0)
    return array


def _torch(value: Any, name: str) -> np.ndarray:
    torch = sys.modules["torch"]
    if value.device.type != "cpu":
        raise ArgumentError(
            "argument.device", f"argument {name} is a torch tensor on {value.device}", fix="move it with .cpu()"
        )
    if value.layout not in (torch.strided, torch._mkldnn):
        raise ArgumentError(
            "argument.device",
            f"argument {name} is a torch tensor with the layout {value.layout}",
            rule="tensors of a kernel are dense",
            fix=f"pass {name}.to_dense()",
        )
    if value.requires_grad and torch.is_grad_enabled():
        raise LaunchError(
            "argument.requires-grad",
            f"argument {name} requires a gradient, which a kernel call would lose",
            fix="call it under torch.no_grad(), or say what the derivative is: kernel.defvjp(forward, backward)",
        )
    dtype = as_dtype_or_raise(value.dtype, name, single=value.dim() == 0)
    return torch_memory(value.detach(), dtype)


class _ArrayInterface:
    """The memory of a tensor in NumPy's words; it keeps the tensor alive."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(self, tensor: Any, dtype: DType) -> None:
        self.tensor = tensor
        size = dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": None if tensor.is_contiguous() else tuple(size * stride for stride in tensor.stride()),
            "typestr": dtype.numpy.str if dtype.numpy.isbuiltin == 1 else f"|u{size}" if size == 1 else f"<u{size}",
        }


def torch_memory(tensor: Any, dtype: DType) -> np.ndarray:
    """A CPU tensor as an array that shares its memory.

    `tensor.numpy()` would do, but it forbids PyTorch to resize the storage ever after, which is how FSDP gives the
    memory of parameters back.

    Args:
        dtype: that of the tensor.
    """
    torch = sys.modules["torch"]
    plain = type(tensor).__module__.startswith("torch") and tensor.layout is torch.strided
    if not plain or not tensor.numel() or tensor.is_conj() or tensor.is_neg() or not tensor.data_ptr():
        bits = {1: "uint8", 2: "int16"}.get(dtype.itemsize, "")
        found = tensor if dtype.numpy.isbuiltin == 1 else tensor.view(getattr(torch, bits))
        return np.asarray(found.numpy().view(dtype.numpy))
    array = np.asarray(_ArrayInterface(tensor, dtype))
    return array if dtype.numpy.isbuiltin == 1 else array.view(dtype.numpy)


def _to_torch(array: np.ndarray, dtype: DType, like: Any) -> Any:
    torch = sys.modules["torch"]
    if dtype.numpy.isbuiltin == 1:
        return torch.from_numpy(array)
    if dtype.is_packed:
        raise LaunchError(
            "result.dtype", f"torch has no dtype for {dtype}", fix="view the result as uint8 in the kernel"
        )
    bits = torch.from_numpy(array.view({1: np.uint8, 2: np.int16}[dtype.itemsize]))
    known = getattr(torch, dtype.name, None)
    return bits if known is None else bits.view(known)  # float8_e4m3, which PyTorch has not, as its bytes


_KINDS = {"O": "objects", "U": "text", "S": "bytes", "M": "dates", "m": "durations", "c": "complex numbers"}


def as_dtype_or_raise(dtype: Any, name: str, *, single: bool = False) -> DType:
    """The NKI dtype of a host dtype; the error names the argument. With `single`, it has no dimensions."""
    if isinstance(dtype, np.dtype) and dtype.kind in "OUSMmc" and dtype.names is None:
        raise ArgumentError(
            "argument.dtype",
            f"argument {name} is an array of {_KINDS.get(dtype.kind, 'objects')} ({dtype})",
            rule="kernels take numeric arrays",
            fix="convert it to numbers on the host",
        )
    if str(dtype).endswith("float64"):
        raise ArgumentError(
            "argument.dtype",
            f"argument {name} is an array of float64",
            rule="devices have no 64-bit tensors",
            fix=_cast(name, "float32", "numpy" if isinstance(dtype, np.dtype) else "torch", single=single),
        )
    return as_dtype(dtype)


def _cast(name: str, dtype: str, kind: Kind, *, single: bool) -> str:
    """How the caller casts an argument; a single number is one for Python as well."""
    if single:
        return f"pass {name}.item(), a Python number"
    return f"pass {name}.to(torch.{dtype})" if kind == "torch" else f"pass {name}.astype(np.{dtype})"


def _target(host: HostArray) -> np.ndarray:
    return host.original if host.kind == "numpy" else _torch(host.original, "argument")
