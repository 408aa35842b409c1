"""Views with another shape or dtype of the same elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from nki.core.access import expand_dim, permute
from nki.core.dims import as_int, dim_of, is_partition, partition_error
from nki.core.dtypes import as_dtype
from nki.core.errors import TensorError
from nki.core.shown import shown
from nki.core.tensor import VectorOffset, View, contiguous_strides


def reshape_dim(view: View, dim: int, sizes: Sequence[int]) -> View:
    """Split one dimension; one of the sizes may be -1."""
    dim = dim_of(view, dim)
    split = _infer(tuple(int(s) for s in sizes), view.shape[dim], view)
    if is_partition(view, dim) and split != (view.shape[dim],):
        raise partition_error("reshape_dim", view, "split a free dimension")
    inner = [s * view.strides[dim] for s in contiguous_strides(split)]
    return view._replace(
        shape=(*view.shape[:dim], *split, *view.shape[dim + 1 :]),
        strides=(*view.strides[:dim], *inner, *view.strides[dim + 1 :]),
    )


def flatten_dims(view: View, first: int, last: int) -> View:
    """Merge the dimensions `first` to `last` (both included) if they lie contiguously."""
    first, last = dim_of(view, first), dim_of(view, last)
    if first > last:
        raise TensorError(
            "access.flatten",
            f"first dimension {first} lies behind last dimension {last}",
            fix="give the outer dimension first",
        )
    if first == last:
        return view
    if is_partition(view, first) or (first == 0 and isinstance(view.dynamic, VectorOffset)):
        raise partition_error("flatten_dims", view, "flatten free dimensions only")
    return reshape(view, (*view.shape[:first], prod(view.shape[first : last + 1]), *view.shape[last + 1 :]))


def reshape(view: View, shape: Sequence[int]) -> View:
    """Another shape of the same elements in the same order, if strides can express it; one size may be -1."""
    shape = _infer(tuple(int(s) for s in shape), view.size, view)
    if (view.on_chip or isinstance(view.dynamic, VectorOffset)) and shape[0] != view.shape[0]:
        raise partition_error("reshape", view, f"keep the first size {view.shape[0]}")
    strides = _reshaped_strides(view.shape, view.strides, shape)
    if strides is None:
        raise TensorError(
            "access.reshape",
            f"{view.describe()} with strides {list(view.strides)} cannot be seen as {list(shape)} without a copy",
            fix="copy it to a new tensor first",
        )
    return view._replace(shape=shape, strides=strides)


def view_as(view: View, dtype: Any) -> View:
    """A view of the bytes of `view` as another dtype; the last dimension grows or shrinks by the ratio of the sizes."""
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


def rearrange(
    view: View,
    source: Sequence[Any],
    result: Sequence[Any],
    sizes: dict[str, int] | None = None,
) -> View:
    """Split, reorder and merge dimensions by name (einops patterns as tuples)."""
    left, right = [_group(g) for g in _groups(source)], [_group(g) for g in _groups(result)]
    names = [n for g in left for n in g]
    problem = _pattern_problem(view, left, right)
    if problem:
        raise TensorError(
            "access.rearrange",
            f"pattern {tuple(source)} -> {tuple(result)} does not fit {view.describe()}",
            rule="one group per dimension, each name once on both sides",
            fix=problem,
        )
    known = _fixed_sizes(sizes, names)
    for dim in range(view.ndim - 1, -1, -1):
        if len(left[dim]) != 1:
            view = reshape_dim(view, dim, [known.get(name, -1) for name in left[dim]])
    view = permute(view, [names.index(n) for g in right for n in g])
    for position, group in enumerate(right):
        view = flatten_dims(view, position, position + len(group) - 1) if group else expand_dim(view, position)
    return view


def _pattern_problem(view: View, left: list[list[str]], right: list[list[str]]) -> str:
    """What to change in a pattern; "" if it fits."""
    names, results = [n for g in left for n in g], [n for g in right for n in g]
    if len(left) != view.ndim:
        return f"write {view.ndim} groups on the left side, one for each dimension"
    repeated = [n for side in (names, results) for n in side if side.count(n) > 1]
    if repeated:
        return f"write {repeated[0]} once on each side"
    missing = [n for n in names if n not in results]
    if missing:
        return f"write {', '.join(missing)} on the right side as well"
    extra = [n for n in results if n not in names]
    return f"write {', '.join(extra)} on the left side as well" if extra else ""


def _fixed_sizes(sizes: Any, names: list[str]) -> dict[str, int]:
    if sizes is not None and not isinstance(sizes, dict):
        raise TensorError(
            "access.argument",
            f"fixed_sizes must be a dict, not {shown(sizes)}",
            fix=f"write for example {{{names[-1]!r}: 4}}",
        )
    for name in sizes or {}:
        if name not in names:
            raise TensorError(
                "access.rearrange",
                f"fixed_sizes names {shown(name)}, which is not in the pattern",
                rule="sizes belong to names of the pattern",
                fix=f"remove it; the names are {', '.join(names)}",
            )
    return {name: as_int(size, f"size of {name}") for name, size in (sizes or {}).items()}


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
            fix="use -1 for one size" if not holes else f"use sizes whose product divides {total}",
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


def _groups(pattern: Any) -> Sequence[Any]:
    if isinstance(pattern, list | tuple):
        return pattern
    raise TensorError(
        "access.rearrange",
        f"a pattern is {shown(pattern)}",
        rule="a pattern is a tuple of names and of tuples of names",
        fix='write for example ("p", ("h", "w"))',
    )


def _group(item: Any) -> list[str]:
    if isinstance(item, str):
        return [item]
    names = list(_groups(item))
    if not all(isinstance(name, str) for name in names):
        raise TensorError("access.rearrange", f"group {item!r} holds more than names", fix="use strings as names")
    return names
