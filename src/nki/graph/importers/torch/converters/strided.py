"""Views by strides: ATen names elements by their places in the memory of a tensor, which values here do not have.

The memory meant is that of the tensor that the argument is a view of. Its places are those that PyTorch gave it in the
trace; which element of the value lies at a place follows from its sizes and strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.fx import Node

from nki.core.dtypes import bool_, int32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.converters.indexing import gathered
from nki.graph.importers.torch.table import Call, converts, refused
from nki.graph.importers.torch.types import number
from nki.graph.ir import Value

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StridedLayout:
    """Where elements lie in memory: element `i` at place ``offset + sum(i * strides)``, counted in elements."""

    shape: Sizes
    strides: Sizes
    offset: int

    def places(self) -> npt.NDArray[np.int64]:
        """The place of each element, in the tensor's shape."""
        found = np.full(self.shape, self.offset, np.int64)
        for dim, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = np.arange(size, dtype=np.int64) * stride
            found += steps.reshape(-1, *(1 for _ in self.shape[dim + 1 :]))
        return found

    @property
    def behind(self) -> int:
        """The place behind the last element."""
        if 0 in self.shape:
            return self.offset
        return self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + 1


def _layout(b: Builder, fake: torch.Tensor) -> StridedLayout:
    shape, strides = (tuple(number(n, b.location) for n in sizes) for sizes in (fake.shape, fake.stride()))
    return StridedLayout(shape, strides, number(fake.storage_offset(), b.location))


def _owner(node: Node) -> Node:
    """The node whose tensor the one of `node` is a view of, through any number of views."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments or not node.args:
        return node
    alias, source = schema.arguments[0].alias_info, node.args[0]
    if alias is None or alias.is_write or not isinstance(source, Node) or "val" not in source.meta:
        return node
    same = source.meta["val"].dtype == node.meta["val"].dtype
    return _owner(source) if same and isinstance(node.meta["val"], torch.Tensor) else node


@converts("as_strided", "as_strided_copy")
def _as_strided(
    b: Builder, call: Call, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> Value:
    source: Any = call.node.args[0] if call.node is not None else None
    if offset is None:
        offset = _layout(b, source.meta["val"]).offset
    wanted = StridedLayout(tuple(size), tuple(stride), offset)
    if 0 in wanted.shape:
        return b.constant(0, call.dtype, wanted.shape)
    owner = _owner(source)
    value = x if owner is source or call.value_of is None else call.value_of(owner)
    layout = _layout(b, owner.meta["val"])
    _check(b, call, wanted, layout, x)
    dense = _in_memory_order(b, value, layout)
    if dense is not None:
        made = _sliced(b, dense, StridedLayout(wanted.shape, wanted.strides, wanted.offset - layout.offset))
        if made is not None:
            return made
    return _picked(b, call, value, layout, wanted)


def _check(b: Builder, call: Call, wanted: StridedLayout, layout: StridedLayout, x: Value) -> None:
    """What PyTorch refuses when it runs: places before or behind the memory."""
    if min(wanted.strides, default=0) < 0:
        raise refused(b, call, f"strides {wanted.strides} are negative", "use flip", x)
    if wanted.offset < layout.offset or wanted.behind > layout.behind:
        reason = (
            f"sizes {wanted.shape}, strides {wanted.strides} and offset {wanted.offset} reach elements "
            f"{wanted.offset} to {wanted.behind - 1} of memory that has {layout.offset} to {layout.behind - 1}"
        )
        raise refused(b, call, reason, "stay within the tensor that the view is of, or pass the larger tensor", x)


def _in_memory_order(b: Builder, x: Value, layout: StridedLayout) -> Value | None:
    """All elements as they lie in memory, in one dimension; None if there are gaps or some lie at the same place."""
    order = sorted(range(len(layout.shape)), key=lambda dim: (layout.strides[dim], layout.shape[dim]), reverse=True)
    expected = 1
    for dim in reversed(order):
        if layout.shape[dim] != 1 and layout.strides[dim] != expected:
            return None
        expected *= layout.shape[dim]
    return b.reshape(b.transpose(x, order), (x.type.size,))


def _sliced(b: Builder, x: Value, wanted: StridedLayout) -> Value | None:
    """The view as slices of what lies in one dimension; None if rows overlap.

    The dimension with the largest stride is cut first: into rows of its stride, of which the beginning is needed.
    """
    pairs = zip(wanted.strides, wanted.shape, range(len(wanted.shape)), strict=True)
    order = sorted((pair for pair in pairs if pair[1] > 1 and pair[0]), reverse=True)
    reach = 1 + sum((size - 1) * stride for stride, size, _ in order)
    x = b.slice(x, 0, wanted.offset, wanted.offset + reach)
    for stride, size, _ in order:
        reach -= (size - 1) * stride
        if reach > stride:
            return None
        rank = len(x.type.shape)
        low, high = [0] * rank, [0] * rank
        high[-1] = size * stride - x.type.shape[-1]
        x = b.reshape(b.pad(x, 0, low, high), (*x.type.shape[:-1], size, stride))
        x = b.slice(x, rank, 0, reach)
    x = b.reshape(x, [size for _, size, _ in order])
    dims = [dim for _, _, dim in order]
    x = b.transpose(x, sorted(range(len(dims)), key=dims.__getitem__))
    return b.broadcast(x, wanted.shape, tuple(sorted(dims)))


def _elements(layout: StridedLayout) -> npt.NDArray[np.int64]:
    """For each place of memory from the layout's first on which element lies there; -1 for gaps."""
    table = np.full(layout.behind - layout.offset, -1, np.int64)
    table[layout.places().ravel() - layout.offset] = np.arange(prod(layout.shape))
    return table


def _picked(b: Builder, call: Call, x: Value, layout: StridedLayout, wanted: StridedLayout) -> Value:
    chosen = _elements(layout)[wanted.places() - layout.offset]
    if (chosen < 0).any():
        reason = f"strides {wanted.strides} reach memory between the elements, whose strides are {layout.strides}"
        raise refused(b, call, reason, "make the tensor contiguous first", x)
    return _taken(b, b.reshape(x, (x.type.size,)), chosen)


def _taken(b: Builder, flat: Value, chosen: npt.NDArray[np.int64]) -> Value:
    """Elements of one dimension by their numbers."""
    starts = b.constant(chosen[..., None], int32, (*chosen.shape, 1))
    return gathered(b, flat, starts, chosen.shape, collapsed_slice_dims=(0,), start_index_map=(0,), slice_sizes=(1,))


@converts("as_strided_scatter")
def _as_strided_scatter(
    b: Builder, call: Call, x: Value, source: Value, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> Value:
    """`x` with the elements of a view replaced; of those that lie at the same place the last one stays."""
    node: Any = call.node.args[0] if call.node is not None else None
    layout = _layout(b, node.meta["val"])
    wanted = StridedLayout(tuple(size), tuple(stride), layout.offset if offset is None else offset)
    if 0 in wanted.shape:
        return x
    _check(b, call, wanted, layout, x)
    new = np.full(layout.behind - layout.offset, -1, np.int64)
    new[wanted.places().ravel() - layout.offset] = np.arange(prod(wanted.shape))
    return _replaced(b, x, source, new[layout.places() - layout.offset])


def _replaced(b: Builder, x: Value, source: Value, chosen: npt.NDArray[np.int64]) -> Value:
    """`x` with elements of a source in some places, by their numbers; -1 where `x` stays."""
    if (chosen < 0).all():
        return x
    flat = b.reshape(b.convert(source, x.type.dtype), (source.type.size,))
    taken = _taken(b, flat, np.maximum(chosen, 0))
    return b.select(b.constant(chosen >= 0, bool_, chosen.shape), taken, x)
