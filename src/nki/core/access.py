"""The algebra of views: every function maps a view to a view of the same buffer, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from nki.core.dtypes import DType, as_dtype
from nki.core.errors import TensorError
from nki.core.register import VirtualRegister
from nki.core.tensor import FreeIndirection, ScalarOffset, VectorOffset, View

MAX_DIMS = 5


@dataclass(frozen=True, slots=True)
class DynamicSlice:
    """``nl.ds(start, size)``: `size` elements from `start`."""

    start: int
    size: int


def slice_dim(view: View, dim: int, start: int, stop: int, step: int = 1) -> View:
    """``view[..., start:stop:step, ...]`` on `dim`; both ends must lie inside the dimension."""
    dim = _dim(view, dim)
    size = view.shape[dim]
    _fixed(view, dim, "sliced")
    if step < 1:
        raise TensorError("access.step", f"step {step} of a slice on dimension {dim}; steps must be at least 1")
    if not 0 <= start < stop <= size:
        raise _bounds(view, dim, f"slice {start}:{stop}" + (f":{step}" if step != 1 else ""), start >= stop)
    if step != 1 and _is_partition(view, dim):
        raise TensorError(
            "access.partition-step",
            f"partitions cannot be skipped: step {step} on dimension 0 of {view.describe()}",
            rule="the partition stride of every access is 1",
            source="nki/guides/architecture/trainium_inferentia2_arch.rst",
            fix="use a DMA, or put the strided dimension in the free dimension",
        )
    return view._replace(
        shape=_put(view.shape, dim, -(-(stop - start) // step)),
        strides=_put(view.strides, dim, view.strides[dim] * step),
        offset=view.offset + start * view.strides[dim],
    )


def select(view: View, dim: int, index: int | View | VirtualRegister) -> View:
    """Fix `dim` at `index` and drop it; a one-element tensor or a register selects at run time."""
    dim = _dim(view, dim)
    _fixed(view, dim, "selected")
    if isinstance(index, View | VirtualRegister):
        return _select_dynamic(view, dim, index)
    index = _wrap(view, dim, index)
    return view._replace(
        shape=_drop(view.shape, dim),
        strides=_drop(view.strides, dim),
        offset=view.offset + index * view.strides[dim],
    )


def _select_dynamic(view: View, dim: int, index: View | VirtualRegister) -> View:
    if view.dynamic is not None:
        raise TensorError(
            "access.indirect-twice",
            "this view already has a dynamic index, and only one is possible",
            fix="combine both indices into one, or copy the first selection to SBUF",
        )
    if _is_partition(view, dim):
        raise TensorError(
            "access.dynamic-partition",
            "the partition of an on-chip tensor cannot be selected at run time",
            fix="select on a free dimension, or keep the tensor in HBM",
        )
    _one_element(index)
    return view._replace(
        shape=_drop(view.shape, dim),
        strides=_drop(view.strides, dim),
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
    _index_column(index)
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
        raise _partition("permute", view, "transpose with nisa.nc_transpose or nisa.dma_transpose")
    return view._replace(shape=tuple(view.shape[d] for d in dims), strides=tuple(view.strides[d] for d in dims))


def broadcast(view: View, dim: int, size: int) -> View:
    """Repeat a dimension of size 1 without copying."""
    dim = _dim(view, dim)
    if view.shape[dim] != 1:
        raise TensorError(
            "access.broadcast",
            f"dimension {dim} of {view.describe()} has size {view.shape[dim]}; only size 1 can be broadcast",
            fix="use expand_dim to insert a dimension of size 1",
        )
    if _is_partition(view, dim):
        raise _partition("broadcast", view, "use nl.broadcast_to, or load with a broadcast access pattern in HBM")
    return view._replace(shape=_put(view.shape, dim, _positive(size)), strides=_put(view.strides, dim, 0))


def expand_dim(view: View, dim: int) -> View:
    """Insert a dimension of size 1 before `dim`."""
    dim = dim + view.ndim + 1 if dim < 0 else dim
    if not 0 <= dim <= view.ndim:
        raise TensorError("access.dimension", f"no position {dim} in {view.describe()}", fix=f"use 0 to {view.ndim}")
    if dim == 0 and (view.on_chip or isinstance(view.dynamic, VectorOffset)):
        raise _partition("expand_dim", view, "insert the dimension at position 1 or later")
    stride = view.strides[dim] * view.shape[dim] if dim < view.ndim else 1
    return view._replace(
        shape=(*view.shape[:dim], 1, *view.shape[dim:]), strides=(*view.strides[:dim], stride, *view.strides[dim:])
    )


def squeeze_dim(view: View, dim: int) -> View:
    """Remove a dimension of size 1."""
    dim = _dim(view, dim)
    if view.shape[dim] != 1:
        raise TensorError(
            "access.squeeze",
            f"dimension {dim} of {view.describe()} has size {view.shape[dim]}, not 1",
            fix="select an index, or keep the dimension",
        )
    if _is_partition(view, dim) or (dim == 0 and isinstance(view.dynamic, VectorOffset)):
        raise _partition("squeeze_dim", view, "keep the partition dimension")
    return view._replace(shape=_drop(view.shape, dim), strides=_drop(view.strides, dim))


def reshape_dim(view: View, dim: int, sizes: Sequence[int]) -> View:
    """Split one dimension; one of the sizes may be -1."""
    dim = _dim(view, dim)
    split = _infer(tuple(int(s) for s in sizes), view.shape[dim], view)
    if _is_partition(view, dim) and split != (view.shape[dim],):
        raise _partition("reshape_dim", view, "split a free dimension")
    inner = [s * view.strides[dim] for s in contiguous(split)]
    return view._replace(
        shape=(*view.shape[:dim], *split, *view.shape[dim + 1 :]),
        strides=(*view.strides[:dim], *inner, *view.strides[dim + 1 :]),
    )


def flatten_dims(view: View, first: int, last: int) -> View:
    """Merge the dimensions `first` to `last` (both included) if they lie contiguously."""
    first, last = _dim(view, first), _dim(view, last)
    if first > last:
        raise TensorError(
            "access.flatten",
            f"first dimension {first} lies behind last dimension {last}",
            fix="give the outer dimension first",
        )
    if first == last:
        return view
    if _is_partition(view, first) or (first == 0 and isinstance(view.dynamic, VectorOffset)):
        raise _partition("flatten_dims", view, "flatten free dimensions only")
    return reshape(view, (*view.shape[:first], prod(view.shape[first : last + 1]), *view.shape[last + 1 :]))


def reshape(view: View, shape: Sequence[int]) -> View:
    """Another shape of the same elements in the same order, if strides can express it; one size may be -1."""
    shape = _infer(tuple(int(s) for s in shape), view.size, view)
    if (view.on_chip or isinstance(view.dynamic, VectorOffset)) and shape[0] != view.shape[0]:
        raise _partition("reshape", view, f"keep the first size {view.shape[0]}")
    strides = _reshaped_strides(view.shape, view.strides, shape)
    if strides is None:
        raise TensorError(
            "access.reshape",
            f"{view.describe()} with strides {list(view.strides)} cannot be seen as {list(shape)} without a copy",
            fix="copy it to a new tensor first",
        )
    return view._replace(shape=shape, strides=strides)


def view_as(view: View, dtype: Any) -> View:
    """The same bytes as another dtype; the last dimension grows or shrinks by the ratio of the sizes."""
    dtype = as_dtype(dtype)
    old, new = view.dtype.itemsize, dtype.itemsize
    if old == new:
        return view._replace(dtype=dtype)
    if view.dynamic is not None or view.strides[-1] != 1 or view.ndim < (2 if view.on_chip else 1):
        raise TensorError(
            "access.view",
            f"{view.describe()} with strides {list(view.strides)} cannot be seen as {dtype}",
            rule="the last dimension must be contiguous and direct",
            fix="copy it to a new tensor first",
        )
    sizes = [view.shape[-1] * old, view.offset * old, *(s * old for s in view.strides[:-1])]
    if any(size % new for size in sizes):
        raise TensorError(
            "access.view",
            f"{view.describe()} at offset {view.offset} is not a whole number of {dtype}",
            fix=f"make its last dimension and its offset multiples of {new // old}",
        )
    return view._replace(
        dtype=dtype,
        shape=(*view.shape[:-1], sizes[0] // new),
        offset=sizes[1] // new,
        strides=(*(s // new for s in sizes[2:]), 1),
    )


def pattern(
    view: View,
    pairs: Sequence[Sequence[int]],
    offset: int | None = None,
    scalar_offset: View | VirtualRegister | None = None,
    vector_offset: View | None = None,
    indirect_dim: int = 0,
    dtype: Any = None,
) -> View:
    """An explicit ``[[stride, count], ...]`` pattern over the storage of `view` (the hardware's own form).

    `offset` counts from the start of the view's storage offset; the pattern replaces shape and strides. Dynamic offsets
    are scaled by the shape of the base tensor, and the leading stride is ignored under `vector_offset`
    (nki/deep-dives/nki-aps.rst).
    """
    base = view._replace(dtype=as_dtype(dtype)) if dtype is not None else view
    shape, strides = _pairs(pairs)
    start = _base_offset(view, base.dtype) + (0 if offset is None else int(offset))
    result = base._replace(shape=shape, strides=strides, offset=start, dynamic=None)
    if scalar_offset is not None and vector_offset is not None:
        raise TensorError("access.two-offsets", "scalar_offset and vector_offset exclude each other", fix="give one")
    if view.on_chip:
        result = _partition_pair(result, view)
    if scalar_offset is not None:
        _one_element(scalar_offset)
        result = result._replace(dynamic=ScalarOffset(scalar_offset, _scale(view, base.dtype, indirect_dim)))
    if vector_offset is not None:
        _vector_pattern(result, vector_offset, indirect_dim)
        result = result._replace(dynamic=VectorOffset(vector_offset, _scale(view, base.dtype, 0)))
    _inside(result)
    return result


def index(view: View, key: Any, as_view: Callable[[Any], View | None]) -> View:
    """``tensor[key]`` with ints, slices, ``...`` and `DynamicSlice`; `as_view` recognises tensor indices."""
    keys = _expand(view, key if isinstance(key, tuple) else (key,))
    dropped = []
    for dim, item in enumerate(keys):
        if isinstance(item, slice):
            start, stop, step = _slice_of(view, dim, item)
            view = slice_dim(view, dim, start, stop, step)
        elif isinstance(item, DynamicSlice):
            view = slice_dim(view, dim, _as_int(item.start, dim), _as_int(item.start, dim) + _as_int(item.size, dim))
        else:
            tensor = as_view(item)
            if tensor is not None or isinstance(item, VirtualRegister):
                raise TensorError(
                    "access.dynamic-index",
                    f"dimension {dim} is indexed with a value that is only known at run time",
                    fix="use tensor.select(dim, index) or .ap(scalar_offset=index)",
                )
            at = _wrap(view, dim, _as_int(item, dim))
            view = slice_dim(view, dim, at, at + 1)
            dropped.append(dim)
    return _drop_indexed(view, dropped)


def is_contiguous(view: View) -> bool:
    """Row-major without gaps; on chip within each partition."""
    step = 1
    for size, stride in list(zip(view.shape, view.strides, strict=True))[: 0 if view.on_chip else None : -1]:
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of a shape."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def rearrange(
    view: View,
    source: Sequence[Any],
    result: Sequence[Any],
    sizes: dict[str, int] | None = None,
) -> View:
    """Split, reorder and merge dimensions by name (einops patterns as tuples)."""
    left, right = [_group(g) for g in source], [_group(g) for g in result]
    names = [n for g in left for n in g]
    if len(left) != view.ndim or len(set(names)) != len(names) or sorted(names) != sorted(n for g in right for n in g):
        raise TensorError(
            "access.rearrange",
            f"pattern {tuple(source)} -> {tuple(result)} does not fit {view.describe()}",
            rule="one group per dimension, each name once on both sides",
            fix="name every dimension",
        )
    for dim in range(view.ndim - 1, -1, -1):
        if len(left[dim]) != 1:
            view = reshape_dim(view, dim, [(sizes or {}).get(name, -1) for name in left[dim]])
    view = permute(view, [names.index(n) for g in right for n in g])
    position = 0
    for group in right:
        view = flatten_dims(view, position, position + len(group) - 1) if group else expand_dim(view, position)
        position += 1
    return view


# --- helpers ---------------------------------------------------------------------------------------------------------


def _dim(view: View, dim: int) -> int:
    at = dim + view.ndim if dim < 0 else dim
    if not 0 <= at < view.ndim:
        raise TensorError(
            "access.dimension", f"{view.describe()} has no dimension {dim}", fix=f"use 0 to {view.ndim - 1}"
        )
    return at


def _is_partition(view: View, dim: int) -> bool:
    return dim == 0 and view.on_chip


def _fixed(view: View, dim: int, verb: str) -> None:
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


def _partition(method: str, view: View, fix: str) -> TensorError:
    return TensorError(
        "access.partition-dim",
        f"{method} would change the partition dimension of {view.describe()}",
        rule="dimension 0 of an on-chip tensor is the partition and stays as it is",
        source="nki/api/nki/language NkiTensor",
        fix=fix,
    )


def _bounds(view: View, dim: int, what: str, empty: bool) -> TensorError:
    if empty:
        return TensorError(
            "access.empty",
            f"{what} on dimension {dim} of {view.describe()} holds no element",
            fix="make the range at least one element long, or skip the instruction",
        )
    return TensorError(
        "access.out-of-bounds",
        f"{what} is outside dimension {dim} of {view.describe()}",
        rule="0 <= start < stop <= size",
        facts={"dim": dim, "size": view.shape[dim]},
        fix=f"clip it with min(stop, {view.shape[dim]})",
    )


def _put(values: tuple[int, ...], dim: int, value: int) -> tuple[int, ...]:
    return (*values[:dim], value, *values[dim + 1 :])


def _drop(values: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*values[:dim], *values[dim + 1 :])


def _wrap(view: View, dim: int, at: int) -> int:
    size = view.shape[dim]
    wrapped = at + size if at < 0 else at
    if not 0 <= wrapped < size:
        raise _bounds(view, dim, f"index {at}", empty=False)
    return wrapped


def _as_int(value: Any, dim: int) -> int:
    try:
        return int(value.__index__())
    except AttributeError:
        raise TensorError(
            "access.index-kind",
            f"dimension {dim} is indexed with {type(value).__name__} {value!r}",
            rule="an index is an int, a slice, nl.ds(start, size) or ...",
            fix="use an int",
        ) from None


def _slice_of(view: View, dim: int, item: slice) -> tuple[int, int, int]:
    size = view.shape[dim]
    step = 1 if item.step is None else _as_int(item.step, dim)
    start = 0 if item.start is None else _as_int(item.start, dim)
    stop = size if item.stop is None else _as_int(item.stop, dim)
    return (start + size if start < 0 else start), (stop + size if stop < 0 else stop), step


def _expand(view: View, keys: tuple[Any, ...]) -> list[Any]:
    given = [k for k in keys if k is not Ellipsis]
    if len(keys) - len(given) > 1 or len(given) > view.ndim or any(k is None for k in given):
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


def _drop_indexed(view: View, dropped: list[int]) -> View:
    """HBM loses indexed dimensions but keeps one; on chip the partition stays, and one free dimension."""
    least = 2 if view.on_chip else 1
    for dim in reversed(dropped):
        if (dim or not view.on_chip) and view.ndim > least:
            view = view._replace(shape=_drop(view.shape, dim), strides=_drop(view.strides, dim))
    return view


def _positive(size: int) -> int:
    if int(size) < 1:
        raise TensorError("access.empty", f"size {size} is not positive", fix="use a size of at least 1")
    return int(size)


def _infer(sizes: tuple[int, ...], total: int, view: View) -> tuple[int, ...]:
    holes = sizes.count(-1)
    known = prod(s for s in sizes if s != -1)
    if holes == 1 and known > 0 and total % known == 0:
        sizes = tuple(total // known if s == -1 else s for s in sizes)
    if not sizes or any(s < 1 for s in sizes) or prod(sizes) != total:
        raise TensorError(
            "access.element-count",
            f"{list(sizes)} does not hold the {total} elements of {view.describe()}",
            rule="the number of elements stays the same, and at most one size is -1",
            fix="check the sizes",
        )
    return sizes


def _reshaped_strides(shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides of `new` over the same elements, or None: match runs of old and new dimensions of equal product."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[int] = []
    i = j = 0
    while j < len(new):
        if new[j] == 1:
            result.append(old[i][0] * old[i][1] if i < len(old) else 1)
            j += 1
            continue
        count, run, first_new, first_old = new[j], old[i][0], j, i
        while count != run:
            if count < run:
                j += 1
                count *= new[j]
            else:
                i += 1
                run *= old[i][0]
        for a, b in zip(old[first_old:i], old[first_old + 1 : i + 1], strict=True):
            if a[1] != b[0] * b[1]:
                return None
        step = old[i][1]
        steps = []
        for size in reversed(new[first_new : j + 1]):
            steps.append(step)
            step *= size
        result.extend(reversed(steps))
        i, j = i + 1, j + 1
    return tuple(result)


def _pairs(pairs: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    try:
        steps = tuple(int(step.__index__()) for step, _ in pairs)
        counts = tuple(int(count.__index__()) for _, count in pairs)
    except (TypeError, ValueError, AttributeError):
        raise TensorError(
            "access.pattern",
            f"{pairs!r} is not a list of [stride, count] pairs of ints",
            fix="write it as [[stride, count], ...], outermost first",
        ) from None
    if not 0 < len(counts) <= MAX_DIMS:
        raise TensorError(
            "access.pattern-rank",
            f"the pattern has {len(counts)} dimensions",
            fix="merge dimensions",
            rule=f"a pattern has 1 to {MAX_DIMS} dimensions",
            source="nki/deep-dives/nki-aps.rst",
        )
    if any(count < 1 for count in counts):
        raise TensorError(
            "access.empty", f"the pattern {[list(p) for p in pairs]} holds no element", fix="use counts of at least 1"
        )
    return counts, steps


def _base_offset(view: View, dtype: DType) -> int:
    offset_bytes = view.offset * view.dtype.itemsize
    if offset_bytes % dtype.itemsize:
        raise TensorError(
            "access.view",
            f"byte offset {offset_bytes} is not a whole number of {dtype}",
            fix="start the view at a multiple of the new size",
        )
    return offset_bytes // dtype.itemsize


def _partition_pair(result: View, view: View) -> View:
    if len(result.shape) == 1:
        raise TensorError(
            "access.pattern-rank",
            "an on-chip pattern needs a partition pair and a free pair",
            fix=f"write [[{result.row}, partitions], [1, count]]",
        )
    if result.strides[0] != result.row and result.shape[0] != 1:
        raise TensorError(
            "access.partition-stride",
            f"the first pair has stride {result.strides[0]}, but one partition of "
            f"{view.describe()} holds {result.row} elements of {result.dtype}",
            rule="the first stride of an on-chip pattern steps by one partition",
            source="nki/deep-dives/nki-aps.rst",
            fix=f"use stride {result.row} in the first pair",
        )
    return result._replace(strides=(result.row, *result.strides[1:]))


def _scale(view: View, dtype: DType, dim: int) -> int:
    """Elements that one step of a dynamic index moves: the stride of the base view's dimension, not the pattern's."""
    return view.strides[_dim(view, dim)] * view.dtype.itemsize // dtype.itemsize


def _vector_pattern(result: View, index_view: View, indirect_dim: int) -> None:
    if result.on_chip or indirect_dim != 0:
        raise TensorError(
            "access.vector-offset",
            f"vector_offset on {result.describe()} with indirect_dim={indirect_dim}",
            rule="vector_offset indexes dimension 0 of an HBM tensor",
            source="nki/deep-dives/nki-aps.rst",
            fix="index an HBM tensor with indirect_dim=0",
        )
    if not index_view.on_chip:
        raise TensorError(
            "access.index-region",
            f"the index tensor is {index_view.describe()}",
            rule="indices are read from SBUF",
            fix="load the indices into SBUF first",
        )


def _index_column(index_view: View) -> None:
    if not index_view.on_chip or index_view.free_size != 1:
        raise TensorError(
            "access.index-region",
            f"the index tensor is {index_view.describe()}",
            rule="indices are an SBUF tensor of shape (P, 1)",
            fix="load one index per partition into SBUF",
        )


def _one_element(index_value: View | VirtualRegister) -> None:
    if isinstance(index_value, View) and (index_value.size != 1 or not index_value.dtype.is_integer):
        raise TensorError(
            "access.scalar-offset",
            f"a scalar offset is one integer, not {index_value.describe()}",
            fix="pass a register or a (1, 1) integer tensor in SBUF",
        )


def _inside(view: View) -> None:
    """Static patterns must stay inside the buffer, on chip inside the partition row; dynamic ones are checked when run."""
    if view.dynamic is not None:
        return
    dims = list(zip(view.shape, view.strides, strict=True))
    start, total, unit = view.offset, view.buffer.nbytes // view.dtype.itemsize, "the tensor"
    if view.on_chip and 0 <= start < total:
        last = start // view.row + view.shape[0] - 1
        if last >= view.buffer.partitions:
            raise TensorError(
                "access.out-of-bounds",
                f"the pattern reaches partition {last} of {view.buffer.name}, which has {view.buffer.partitions}",
                fix="shorten the first pair",
            )
        dims, start, total, unit = dims[1:], start % view.row, view.row, "one partition"
    low = start + sum(min(0, s * (n - 1)) for n, s in dims)
    high = start + sum(max(0, s * (n - 1)) for n, s in dims)
    if low < 0 or high >= total:
        pairs = [list(p) for p in zip(view.strides, view.shape, strict=True)]
        raise TensorError(
            "access.out-of-bounds",
            f"pattern {pairs} at offset {view.offset} touches elements {low} to "
            f"{high}, but {unit} of {view.buffer.name} holds {total} of {view.dtype}",
            facts={"low": low, "high": high, "elements": total},
            fix="shorten the pattern",
        )


def _group(item: Any) -> list[str]:
    return [item] if isinstance(item, str) else list(item)
