"""What language functions accept: checked calls, tiles, numbers and axes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from nki.core.calls import Misfit, misfit, spelled
from nki.core.dtypes import DType
from nki.core.errors import ArgumentError, DtypeError, NkiError, TensorError
from nki.core.lists import is_numbers, tensor_fix
from nki.core.names.removed_table import MIGRATE
from nki.core.nki_tensor import NkiTensor
from nki.core.numerics import FP32_MAX
from nki.core.shown import shown
from nki.language.python_numbers import in_python
from nki.spec.allocation import checked_dtype
from nki.spec.instruction import NkiInstruction

P = ParamSpec("P")
R = TypeVar("R")
Number = bool | int | float

_REFERENCE = "nki/api/nki/language/__init__.py"


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of every function of nki.language: a call that does not fit its signature is an ArgumentError."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except NkiError:
            raise
        except TypeError:
            found = misfit(signature, args, kwargs)
            if found is None:
                raise
            raise _call_error(function.__name__, signature, found) from None

    return call


def tile(value: Any, name: str, function: str, *, packed: bool = False) -> NkiTensor:
    """`value` if it is a tensor in SBUF or PSUM; x4 dtypes only with `packed`."""
    if not isinstance(value, NkiTensor):
        raise _not_a_tile(value, name, function)
    if not value.buffer.on_chip:
        raise TensorError(
            "language.region",
            f"nl.{function}: {name} is {value.view_record.describe()}",
            rule="nki.language computes on tiles in SBUF and PSUM",
            source=_REFERENCE,
            fix=f"load it first: nl.load({name})",
        )
    if value.dtype.is_packed and not packed:
        raise DtypeError(
            "language.packed",
            f"nl.{function}: {name} is {value.view_record.describe()}",
            rule="x4 values are inputs of nisa.nc_matmul_mx only",
            source="nki/api/nki.api.shared.rst",
            fix="use the values before nisa.quantize_mx",
        )
    return value


def hbm_tensor(value: Any, name: str, function: str) -> NkiTensor:
    """`value` if it is a tensor in HBM."""
    if not isinstance(value, NkiTensor):
        raise _not_a_tile(value, name, function)
    if value.buffer.on_chip:
        raise TensorError(
            "language.region",
            f"nl.{function}: {name} is {value.view_record.describe()}",
            rule=f"{name} of nl.{function} is in HBM",
            source=_REFERENCE,
            fix="write dst[...] = value" if name == "dst" else "use nl.copy between tiles on chip",
        )
    return value


def operand(value: Any, name: str, function: str) -> NkiTensor | Number:
    """A tile, or a Python number that float32 can hold."""
    if not is_number(value):
        return tile(value, name, function)
    return number(value, name, function)


def number(value: Any, name: str, function: str) -> Number:
    """A Python number that float32 can hold."""
    if not is_number(value):
        raise ArgumentError(
            "language.number",
            f"nl.{function}: {name} must be a number, not {shown(value)}",
            fix="compute it in Python from shapes and constants",
        )
    plain: Number = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, int) and abs(plain) > int(FP32_MAX):
        raise ArgumentError(
            "language.number", f"nl.{function}: {name} has {len(str(plain))} digits", fix="use a smaller number"
        )
    return plain


def is_number(value: Any) -> bool:
    """True for Python and NumPy numbers and bools."""
    return isinstance(value, bool | int | float | np.number | np.bool_) and not isinstance(value, np.complexfloating)


def integer(value: Any, name: str, function: str) -> int:
    """A Python int."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    raise ArgumentError(
        "language.integer",
        f"nl.{function}: {name} must be an int, not {shown(value)}",
        fix="compute it in Python; divide with // instead of /",
    )


def flag(value: Any, name: str, function: str) -> bool:
    """True or False."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ArgumentError(
        "language.flag",
        f"nl.{function}: {name} must be True or False, not {shown(value)}",
        fix=f"pass {name}=True or {name}=False",
    )


def result_dtype(dtype: Any, default: DType) -> DType:
    """The dtype that was asked for, else `default`."""
    return default if dtype is None else checked_dtype(dtype)


def reduced_axes(axis: Any, x: NkiTensor, function: str) -> tuple[int, ...]:
    """Axes of a reduction in ascending order: the last free dimensions of a tile, without gap."""
    given = axis if isinstance(axis, Sequence) and not isinstance(axis, str) else (axis,)
    axes = sorted(integer(item, "axis", function) for item in given)
    axes = sorted(item + x.ndim if item < 0 else item for item in axes)
    wanted = list(range(x.ndim - len(axes), x.ndim))
    if not axes or axes != wanted or axes[0] < 1:
        raise TensorError(
            "language.axis",
            f"nl.{function}: axis={axis} of {x.view_record.describe()}",
            rule="a reduction runs over the last free dimensions, never over the partitions (dimension 0)",
            source=_REFERENCE,
            fix=_axis_fix(axes, x),
        )
    return tuple(axes)


def _axis_fix(axes: list[int], x: NkiTensor) -> str:
    if 0 in axes:
        return "transpose with nl.transpose, or use nisa.tensor_partition_reduce"
    last = x.ndim - 1
    return f"use axis={last}, or permute the free dimensions so that the reduced ones come last"


def _not_a_tile(value: Any, name: str, function: str) -> ArgumentError:
    kind = type(value).__module__.partition(".")[0]
    host = isinstance(value, np.ndarray) or kind in ("torch", "jax", "jaxlib")
    if isinstance(value, NkiInstruction):
        fix = "pass the dst of the instruction: it wrote there, and returned no tensor"
    elif isinstance(value, list | tuple) and is_numbers(value):
        fix = tensor_fix(name)
    elif is_number(value):
        python = in_python(function, [value]) if name == "x" else ""
        make = f"make a tile of it with nl.full((1, 1), {value}, nl.float32)"
        fix = f"for a number write {python}; for a tensor, {make}" if python else make
    else:
        fix = "pass the array as an argument of the kernel" if host else "pass a tile from nl.load or nl.ndarray"
    return ArgumentError(
        "language.tile",
        f"nl.{function}: {name} must be a tensor of this kernel, not {shown(value)}",
        fix=fix,
    )


def _call_error(name: str, signature: inspect.Signature, found: Misfit) -> ArgumentError:
    return ArgumentError(
        "call.arguments",
        f"nl.{name} {found.message}",
        rule=f"nl.{name}({spelled(signature)})",
        fix=f"slice the tensors instead; mask= was removed: {MIGRATE}" if found.names == ("mask",) else found.fix,
    )
