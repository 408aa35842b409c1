"""What all functions on views share: finding dimensions, and the errors about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki.core.errors import TensorError
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.tensor import FreeIndirection, VectorOffset, View


def dim_of(view: View, dim: int) -> int:
    """The dimension counted from 0; negative ones count from the end."""
    at = dim + view.ndim if dim < 0 else dim
    if not 0 <= at < view.ndim:
        raise TensorError(
            "access.dimension", f"{view.describe()} has no dimension {dim}", fix=f"use 0 to {view.ndim - 1}"
        )
    return at


def is_partition(view: View, dim: int) -> bool:
    """True for dimension 0 on chip."""
    return dim == 0 and view.on_chip


def check_free(view: View, dim: int, verb: str) -> None:
    """Refuse to change a dimension whose addresses come from an index tensor."""
    if dim == 0 and isinstance(view.dynamic, VectorOffset):
        raise TensorError(
            "access.indirect-dim",
            f"dimension 0 takes its rows from an index tensor and cannot be {verb}",
            fix="slice the index tensor instead",
        )
    if dim == 1 and isinstance(view.dynamic, FreeIndirection):
        raise TensorError(
            "access.indirect-dim",
            f"dimension 1 takes its offsets from an index tensor and cannot be {verb}",
            fix="slice the index tensor instead",
        )


def partition_error(method: str, view: View, fix: str) -> TensorError:
    """The error of a view that would change the partition dimension."""
    return TensorError(
        "access.partition-dim",
        f"{method} would change the partition dimension of {view.describe()}",
        rule="dimension 0 of an on-chip tensor is the partition and stays as it is",
        source="nki/api/nki/language NkiTensor",
        fix=fix,
    )


def check_not_empty(view: View, name: str) -> None:
    """Raise TensorError "access.empty" if an operand holds no element."""
    if 0 in view.shape:
        raise TensorError(
            "access.empty",
            f"{name} is {view.describe()}, which holds no element",
            fix="skip the instruction when there is nothing to do",
        )


def empty_error(view: View, dim: int, what: str) -> TensorError:
    """The error of a range without an element."""
    return TensorError(
        "access.empty",
        f"{what} on dimension {dim} of {view.describe()} holds no element",
        fix="make the range at least one element long, or skip the instruction",
    )


def range_fix(view: View, dim: int, start: int, stop: int) -> str:
    """How a range that reaches outside a dimension comes inside it; one element that NumPy would repeat is repeated."""
    size = view.shape[dim]
    if start < 0:
        return "start at 0 or higher"
    if size == 1 and stop - start > 1:
        return _repeat_fix(view, dim, stop - start)
    return f"start at {size - 1} or lower" if start >= size else f"clip it with min(stop, {size})"


def _repeat_fix(view: View, dim: int, count: int) -> str:
    """How the only element of a dimension is repeated."""
    if not is_partition(view, dim):
        return f"to repeat the only one, write tensor.broadcast({dim}, {count}) instead of the slice"
    shape = ", ".join(map(str, (count, *view.shape[1:])))
    return (
        f"to repeat the only partition, write nl.broadcast_to(tile, ({shape})) instead of the slice, or load "
        f"it from HBM with src=row.broadcast(0, {count})"
    )


def bounds_error(view: View, dim: int, what: str, fix: str) -> TensorError:
    """The error of an index or a range that reaches outside its dimension."""
    return TensorError(
        "access.out-of-bounds",
        f"{what} is outside dimension {dim} of {view.describe()}",
        rule="0 <= start < stop <= size",
        facts={"dim": dim, "size": view.shape[dim]},
        fix=fix,
    )


def put(values: tuple[int, ...], dim: int, value: int) -> tuple[int, ...]:
    """The tuple with one value replaced."""
    return (*values[:dim], value, *values[dim + 1 :])


def drop(values: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """The tuple without one value."""
    return (*values[:dim], *values[dim + 1 :])


def check_one_element(index_value: View | VirtualRegister) -> None:
    """A scalar offset is a register or one integer element."""
    if isinstance(index_value, View) and (index_value.size != 1 or not index_value.dtype.is_integer):
        raise TensorError(
            "access.scalar-offset",
            f"a scalar offset is one integer, not {index_value.describe()}",
            fix="pass a register or a (1, 1) integer tensor in SBUF",
        )


def check_index_column(index_view: View) -> None:
    """Row indices are an on-chip column."""
    if not index_view.on_chip or index_view.free_size != 1:
        raise TensorError(
            "access.index-region",
            f"the index tensor is {index_view.describe()}",
            rule="indices are an SBUF tensor of shape (P, 1)",
            fix="load one index per partition into SBUF",
        )


def as_int(value: Any, role: str) -> int:
    """A Python int, or an error that names the argument."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or isinstance(value, VirtualRegister):
        raise TensorError(
            "access.argument",
            f"{role} must be an int, not {shown(value)}",
            fix="compute it in Python from shapes and constants",
        )
    try:
        return int(value.__index__())
    except TypeError:
        raise TensorError("access.argument", f"{role} must be an int, not {shown(value)}", fix="pass one int") from None


def as_ints(value: Any, role: str) -> tuple[int, ...]:
    """A tuple of ints, or an error that names the argument."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise TensorError(
            "access.argument",
            f"{role} must be a tuple of ints, not {shown(value)}",
            fix="write it as a tuple, for example (4, -1)",
        )
    return tuple(as_int(item, role) for item in value)
