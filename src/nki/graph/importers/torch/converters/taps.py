"""Windows whose places are known now, but not regular: adaptive pooling, resized images, and their derivatives.

Along one dimension, each output sees the inputs of one window with weights: a matrix with a band, of which only the
band is computed, so that infinities and NaN spread no further than in PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nki.core.dtypes import bool_, float32, int32
from nki.graph.importers.torch.builder import IDENTITY, Builder
from nki.graph.ir import TensorType, Value

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Taps:
    """The windows along a dimension of `size` elements.

    Attributes:
        places: of shape (outputs, longest window), within the dimension.
        valid: which of them are in the window; the first ones.
        weights: of them.
    """

    size: int
    places: npt.NDArray[np.int64]
    valid: npt.NDArray[np.bool_]
    weights: Floats


def taps(matrix: Floats) -> Taps:
    """The windows of a matrix of shape (outputs, inputs), from the first weight of each row to its last."""
    used = matrix != 0
    first = used.argmax(1)
    last = np.where(used.any(1), matrix.shape[1] - used[:, ::-1].argmax(1), first)
    longest = max(int((last - first).max(initial=1)), 1)
    numbers = np.arange(longest)
    valid = numbers < (last - first)[:, None]
    places = np.where(valid, first[:, None] + numbers, first[:, None])
    return Taps(matrix.shape[1], places, valid, np.where(valid, np.take_along_axis(matrix, places, 1), 0.0))


def windows_of(b: Builder, x: Value, dim: int, chosen: Taps) -> Value:
    """A dimension replaced by two: the windows, and the elements of each; those that are not valid are others'."""
    shape, (count, longest) = x.type.shape, chosen.places.shape
    order = chosen.places.ravel()
    if not np.array_equal(order, np.arange(shape[dim])):
        starts = b.constant(order[:, None], int32, (order.size, 1))
        made = TensorType((*shape[:dim], order.size, *shape[dim + 1 :]), x.type.dtype)
        x = b.one(
            "gather", (x, starts), made, offset_dims=tuple(i for i in range(len(shape)) if i != dim),
            collapsed_slice_dims=(dim,), operand_batching_dims=(), start_indices_batching_dims=(),
            start_index_map=(dim,), index_vector_dim=1, indices_are_sorted=False,
            slice_sizes=tuple(1 if i == dim else size for i, size in enumerate(shape)),
        )  # fmt: skip
    return b.reshape(x, (*shape[:dim], count, longest, *shape[dim + 1 :]))


def _beside(b: Builder, x: Value, dim: int, array: npt.NDArray[Any], dtype: Any) -> Value:
    """Numbers for the windows of `windows_of`."""
    made = b.constant(array, dtype, array.shape)
    return b.broadcast(made, x.type.shape, (dim, dim + 1))


def weighted(b: Builder, x: Value, dim: int, matrix: Floats) -> Value:
    """float32 along a dimension multiplied by a matrix of shape (outputs, inputs)."""
    chosen = taps(matrix)
    seen = windows_of(b, x, dim, chosen)
    constant = chosen.weights.ravel()[0] if chosen.weights.size else 0.0
    if (chosen.weights == constant).all():
        total = b.reduce("add", seen, (dim + 1,))
        return total if constant == 1 else b.multiply(total, float(constant))
    parts = b.multiply(seen, _beside(b, seen, dim, chosen.weights, float32))
    if not chosen.valid.all():
        parts = b.select(_beside(b, seen, dim, chosen.valid, bool_), parts, 0.0)
    return b.reduce("add", parts, (dim + 1,))


def largest(
    b: Builder, x: Value, dim: int, chosen: Taps, place: Value | None, stride: int
) -> tuple[Value, Value | None]:
    """The maxima of the windows, and where they are: the first of equal ones, the last NaN.

    Args:
        place: where each element is among the dimensions after this one; None if places are not wanted.
        stride: how many elements these have.
    """
    seen = windows_of(b, x, dim, chosen)
    valid = None if chosen.valid.all() else _beside(b, seen, dim, chosen.valid, bool_)
    if valid is not None:
        seen = b.select(valid, seen, IDENTITY["maximum"](x.type.dtype))
    best = b.reduce("maximum", seen, (dim + 1,), True)
    shape = (*best.type.shape[: dim + 1], *best.type.shape[dim + 2 :])
    if place is None:
        return b.reshape(best, shape), None
    numbers = b.iota(seen.type.shape, dim + 1)
    longest = seen.type.shape[dim + 1]
    first = b.reduce("minimum", b.select(b.compare("EQ", seen, best), numbers, longest), (dim + 1,), True)
    if x.type.dtype.is_float:
        missing = b.reduce("maximum", b.select(b.compare("NE", seen, seen), numbers, -1), (dim + 1,), True)
        first = b.select(b.compare("GE", missing, 0), missing, first)
    here = b.add(windows_of(b, place, dim, chosen), _beside(b, seen, dim, chosen.places * stride, int32))
    where = b.reduce("add", b.select(b.compare("EQ", numbers, first), here, 0), (dim + 1,))
    return b.reshape(best, shape), where
