"""The algebra of views: every function maps a view to a view of the same buffer, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.core.dims import (
    bounds_error,
    check_free,
    check_index_column,
    check_one_element,
    dim_of,
    drop,
    empty_error,
    is_partition,
    partition_error,
    put,
    range_fix,
)
from nki.core.errors import FrontendError, TensorError
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.tensor import FreeIndirection, ScalarOffset, VectorOffset, View, view_of


@dataclass(frozen=True, slots=True)
class DynamicSlice:
    """``nl.ds(start, size)``: `size` elements from `start`, which the first NKI also knows when the kernel runs."""

    start: Any
    size: int


def slice_dim(view: View, dim: int, start: int, stop: int, step: int = 1) -> View:
    """``view[..., start:stop:step, ...]`` on `dim`; both ends must lie inside the dimension.

    A view of HBM may hold no element, as the share of a core that has nothing to do; no instruction takes it.
    """
    dim = dim_of(view, dim)
    size = view.shape[dim]
    check_free(view, dim, "sliced")
    if step < 1:
        raise TensorError("access.step", f"step {step} of a slice on dimension {dim}", fix="use a step of at least 1")
    what = f"slice {start}:{stop}" + (f":{step}" if step != 1 else "")
    if start >= stop and (view.on_chip or start > stop):
        raise empty_error(view, dim, what)
    if not 0 <= start <= stop <= size:
        raise bounds_error(view, dim, what, range_fix(view, dim, start, stop))
    if step != 1 and is_partition(view, dim):
        raise TensorError(
            "access.partition-step",
            f"partitions cannot be skipped: step {step} on dimension 0 of {view.describe()}",
            rule="the partition stride of every access is 1",
            source="nki/guides/architecture/trainium_inferentia2_arch.rst",
            fix=f"take the rows in HBM: nisa.dma_copy(dst=tile, src=hbm[{start}:{stop}:{step}])",
        )
    return view._replace(
        shape=put(view.shape, dim, -(-(stop - start) // step)),
        strides=put(view.strides, dim, view.strides[dim] * step),
        offset=view.offset + start * view.strides[dim],
    )


def select(view: View, dim: int, index: int | View | VirtualRegister) -> View:
    """Fix `dim` at `index` and drop it; a one-element tensor or a register selects at run time.

    On chip the partition and one free dimension stay, as size 1 where they were selected.
    """
    dim = dim_of(view, dim)
    check_free(view, dim, "selected")
    if isinstance(index, View | VirtualRegister):
        return _select_dynamic(view, dim, index)
    index = _wrap(view, dim, index)
    if view.on_chip and (dim == 0 or view.ndim == 2):
        return slice_dim(view, dim, index, index + 1)
    return view._replace(
        shape=drop(view.shape, dim),
        strides=drop(view.strides, dim),
        offset=view.offset + index * view.strides[dim],
    )


def _select_dynamic(view: View, dim: int, index: View | VirtualRegister) -> View:
    if view.dynamic is not None:
        raise TensorError(
            "access.indirect-twice",
            "this view already has a dynamic index, and only one is possible",
            fix="combine both indices into one, or copy the first selection to SBUF",
        )
    if is_partition(view, dim):
        raise TensorError(
            "access.dynamic-partition",
            "the partition of an on-chip tensor cannot be selected at run time",
            fix="select on a free dimension, or keep the tensor in HBM",
        )
    check_one_element(index)
    return view._replace(
        shape=drop(view.shape, dim),
        strides=drop(view.strides, dim),
        dynamic=ScalarOffset(index, view.strides[dim]),
    )


def vector_select(view: View, dim: int, index: View) -> View:
    """Row ``p`` of the result is row ``index[p]`` of an HBM tensor."""
    if dim != 0 or view.on_chip:
        raise TensorError(
            "access.vector-select",
            f"vector_select works on dimension 0 of an HBM tensor, not on dimension {dim} of {view.describe()}",
            fix="move the data to HBM, or use nisa.nc_n_gather",
        )
    if view.dynamic is not None:
        raise TensorError(
            "access.indirect-twice",
            "this view already has a dynamic index, and only one is possible",
            fix="combine both indices into one",
        )
    check_index_column(index)
    return view._replace(shape=(index.shape[0], *view.shape[1:]), dynamic=VectorOffset(index, view.strides[0]))


def indirect(view: View, index: View, count: int | None = None) -> View:
    """Gather or scatter on the free dimension with offsets from an SBUF tensor (tensor indirection)."""
    count = index.size if count is None else count
    if not view.on_chip or view.dynamic is not None:
        raise TensorError(
            "access.indirect",
            f"indirect() works on a plain on-chip view, not on {view.describe()}",
            fix="copy the tensor to SBUF first",
        )
    if index.shape[0] != view.shape[0] or not 0 < count <= index.size:
        raise TensorError(
            "access.indirect",
            f"index {index.describe()} with {count} offsets does not fit {view.describe()}",
            rule="the index has the partitions of the tensor",
            fix=f"give an index of shape ({view.shape[0]}, K) with K * {view.shape[0]} >= {count}",
        )
    return view._replace(
        shape=(view.shape[0], count), strides=(view.strides[0], 1), dynamic=FreeIndirection(index, count)
    )


def permute(view: View, dims: Sequence[int]) -> View:
    """Reorder dimensions; the partition stays first."""
    dims = tuple(int(d) for d in dims)
    if sorted(dims) != list(range(view.ndim)):
        raise TensorError(
            "access.permute",
            f"{dims} is not a permutation of the {view.ndim} dimensions of {view.describe()}",
            fix="name each dimension once",
        )
    if dims[0] != 0 and (view.on_chip or isinstance(view.dynamic, VectorOffset)):
        raise partition_error("permute", view, "transpose with nisa.nc_transpose or nisa.dma_transpose")
    return view._replace(shape=tuple(view.shape[d] for d in dims), strides=tuple(view.strides[d] for d in dims))


def broadcast(view: View, dim: int, size: int) -> View:
    """Repeat a dimension of size 1 without copying."""
    dim = dim_of(view, dim)
    if view.shape[dim] != 1:
        raise TensorError(
            "access.broadcast",
            f"dimension {dim} of {view.describe()} has size {view.shape[dim]}; only size 1 can be broadcast",
            fix="use expand_dim to insert a dimension of size 1",
        )
    if is_partition(view, dim):
        raise partition_error("broadcast", view, "use nl.broadcast_to, or load with a broadcast access pattern in HBM")
    return view._replace(shape=put(view.shape, dim, _positive(size)), strides=put(view.strides, dim, 0))


def expand_dim(view: View, dim: int) -> View:
    """Insert a dimension of size 1 before `dim`."""
    dim = dim + view.ndim + 1 if dim < 0 else dim
    if not 0 <= dim <= view.ndim:
        raise TensorError("access.dimension", f"no position {dim} in {view.describe()}", fix=f"use 0 to {view.ndim}")
    if dim == 0 and (view.on_chip or isinstance(view.dynamic, VectorOffset)):
        raise partition_error("expand_dim", view, "insert the dimension at position 1 or later")
    stride = view.strides[dim] * view.shape[dim] if dim < view.ndim else 1
    return view._replace(
        shape=(*view.shape[:dim], 1, *view.shape[dim:]), strides=(*view.strides[:dim], stride, *view.strides[dim:])
    )


def squeeze_dim(view: View, dim: int) -> View:
    """Remove a dimension of size 1."""
    dim = dim_of(view, dim)
    if view.shape[dim] != 1:
        raise TensorError(
            "access.squeeze",
            f"dimension {dim} of {view.describe()} has size {view.shape[dim]}, not 1",
            fix="select an index, or keep the dimension",
        )
    if is_partition(view, dim) or (dim == 0 and isinstance(view.dynamic, VectorOffset)):
        raise partition_error("squeeze_dim", view, "keep the partition dimension")
    return view._replace(shape=drop(view.shape, dim), strides=drop(view.strides, dim))


def _piece(view: View, dim: int, start: int, count: int) -> View:
    """`count` elements from `start`; what is wrong is told in these words."""
    try:
        return slice_dim(view, dim, start, start + count)
    except TensorError as error:
        size = view.shape[dim]
        if error.code == "access.out-of-bounds" and 0 <= start < size:
            error.message = error.message.replace(f"slice {start}:{start + count}", f"nl.ds({start}, {count})")
            error.fix = f"write nl.ds(start, min({count}, {size} - start)), and make what it is copied to as small"
        raise


def index(view: View, key: Any, as_view: Callable[[Any], View | None]) -> View:
    """``tensor[key]`` with ints, slices, ranges, ``...`` and `DynamicSlice`; `as_view` recognises tensor indices.

    A ``range`` names the elements of the slice with its start, stop and step, and keeps the dimension as a slice does.
    """
    found = _plain_index(view, key if type(key) is tuple else (key,))
    if found is not None:
        return found
    keys = _expand(view, key if isinstance(key, tuple) else (key,))
    dropped = []
    for dim, item in enumerate(keys):
        if isinstance(item, slice):
            if item.start is item.stop is item.step is None:
                continue  # all of it: also of a dimension with an index of run time, which cannot be sliced
            start, stop, step = _slice_of(view, dim, item)
            view = slice_dim(view, dim, start, stop, step)
        elif isinstance(item, DynamicSlice):
            view = _piece(view, dim, _as_int(item.start, dim, view), _as_int(item.size, dim, view))
        elif isinstance(item, range):  # its bounds are elements: a negative one does not count from the end
            view = slice_dim(view, dim, item.start, item.stop, item.step)
        else:
            tensor = as_view(item)
            if tensor is not None or isinstance(item, VirtualRegister):
                raise TensorError(
                    "access.dynamic-index",
                    f"dimension {dim} is indexed with a value that is only known at run time",
                    fix=_dynamic_fix(view, dim, tensor),
                )
            at = _wrap(view, dim, _as_int(item, dim, view))
            view = slice_dim(view, dim, at, at + 1)
            dropped.append(dim)
    return _drop_indexed(view, dropped)


def _plain_index(view: View, keys: tuple[Any, ...]) -> View | None:
    """``view[keys]`` in one go, for ints and slices without a step that lie inside; None for everything else."""
    buffer, dtype, shape, strides, offset, dynamic = view
    if dynamic is not None or len(keys) > len(shape):
        return None
    sizes = list(shape)
    dropped = []
    for dim, item in enumerate(keys):
        size = sizes[dim]
        if type(item) is slice:
            start, stop = item.start, item.stop
            if start is None:
                start = 0
            if stop is None:
                stop = size
            if type(start) is not int or type(stop) is not int or item.step is not None:
                return None
            if start < 0:
                start += size
            if stop < 0:
                stop += size
            if not 0 <= start < stop <= size:
                return None
            sizes[dim] = stop - start
        elif type(item) is int:
            start = item + size if item < 0 else item
            if not 0 <= start < size:
                return None
            sizes[dim] = 1
            dropped.append(dim)
        else:
            return None
        offset += start * strides[dim]
    found = view_of(buffer, dtype, tuple(sizes), strides, offset)
    return _drop_indexed(found, dropped) if dropped else found


def is_contiguous(view: View) -> bool:
    """Row-major without gaps; on chip within each partition."""
    step = 1
    for size, stride in list(zip(view.shape, view.strides, strict=True))[: 0 if view.on_chip else None : -1]:
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _wrap(view: View, dim: int, at: int) -> int:
    size = view.shape[dim]
    wrapped = at + size if at < 0 else at
    if not 0 <= wrapped < size:
        raise bounds_error(view, dim, f"index {at}", f"use an index from 0 to {size - 1}")
    return wrapped


def _as_int(value: Any, dim: int, view: View) -> int:
    try:
        if not isinstance(value, bool):
            return int(value.__index__())
    except (AttributeError, TypeError) as problem:
        if isinstance(problem, TensorError | FrontendError):
            raise
    raise TensorError(
        "access.index-kind",
        f"dimension {dim} is indexed with {shown(value)}",
        rule="an index is an int, a slice, a range, nl.ds(start, size) or ...",
        fix=_index_fix(value, view),
    )


def _dynamic_fix(view: View, dim: int, index: View | None) -> str:
    if index is not None and index.shape == view.shape:
        return "choose between values with nl.where(mask, value, tensor): a mask is no index"
    if is_partition(view, dim):
        return "keep the tensor in HBM: on chip no partition is chosen at run time"
    return f"write tensor.select({dim}, index)"


_LOOP = "give its bounds as ints: start:stop; what is known at run time is a loop, with tensor.select(dim, index) in it"


def _index_fix(value: Any, view: View) -> str:
    if not isinstance(value, list | np.ndarray):
        return _LOOP if isinstance(value, Iterable) and not isinstance(value, str) else "use an int"
    gather = "nisa.nc_n_gather" if view.on_chip else "tensor.vector_select"
    return f"loop over the indices, or gather with {gather}"


def _slice_of(view: View, dim: int, item: slice) -> tuple[int, int, int]:
    size = view.shape[dim]
    step = 1 if item.step is None else _as_int(item.step, dim, view)
    start = 0 if item.start is None else _as_int(item.start, dim, view)
    stop = size if item.stop is None else _as_int(item.stop, dim, view)
    return (start + size if start < 0 else start), (stop + size if stop < 0 else stop), step


def _expand(view: View, keys: tuple[Any, ...]) -> list[Any]:
    given = [k for k in keys if k is not Ellipsis]
    if any(k is None for k in given):
        raise TensorError(
            "access.index-count",
            f"None does not insert a dimension into {view.describe()}",
            fix=f"write tensor.expand_dim({_new_dim(view, keys)})",
        )
    if len(keys) - len(given) > 1 or len(given) > view.ndim:
        raise TensorError(
            "access.index-count",
            f"{len(given)} indices for the {view.ndim} dimensions of {view.describe()}",
            fix="give at most one index per dimension and one ellipsis; insert dimensions with expand_dim",
        )
    missing = [slice(None)] * (view.ndim - len(given))
    if len(given) == len(keys):
        return [*given, *missing]
    at = next(i for i, k in enumerate(keys) if k is Ellipsis)
    return [*keys[:at], *missing, *keys[at + 1 :]]


def _new_dim(view: View, keys: tuple[Any, ...]) -> int:
    """Where NumPy would insert the dimension; behind an ellipsis counted from the end, on chip not before 1."""
    at = next(i for i, k in enumerate(keys) if k is None)
    return at - len(keys) if Ellipsis in keys[:at] else max(at, int(view.on_chip))


def _drop_indexed(view: View, dropped: list[int]) -> View:
    """HBM loses indexed dimensions but keeps one; on chip the partition stays, and one free dimension."""
    least = 2 if view.on_chip else 1
    for dim in reversed(dropped):
        if (dim or not view.on_chip) and view.ndim > least:
            view = view._replace(shape=drop(view.shape, dim), strides=drop(view.strides, dim))
    return view


def _positive(size: int) -> int:
    if int(size) < 1:
        raise TensorError("access.empty", f"size {size} is not positive", fix="use a size of at least 1")
    return int(size)
