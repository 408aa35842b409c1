"""Convolutions whose windows lie beside each other, as models of images begin with: products of patches.

An image ``[b, c, H*h, W*w]`` under a kernel ``[o, c, h, w]`` with strides (h, w) is ``[b*H*W, c*h*w] @ [c*h*w, o]``.
A patch has each element of the image once, so that nothing is read twice, and the kernel for products takes any number
of elements, where that for convolutions keeps all of a window on chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod

from nki.graph.emit.kit.conv_shape import ConvShape, conv_shape
from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.rewriter import Rewriter

_FEWEST_TAPS = 64
"""Smaller windows are cheap as they are."""


def patches(r: Rewriter, op: Op) -> Sequence[Value] | None:
    """The product, or None for another convolution."""
    if not op.results[0].type.dtype.is_float:
        return None
    shape = conv_shape(op)
    if len(shape.shares) != 1 or shape.taps < _FEWEST_TAPS or not _beside(shape):
        return None
    image, kernel = op.operands
    outs = [window.out for window in shape.windows]
    left, right = _rows(r, image, shape, outs), _columns(r, kernel, shape)
    kind = TensorType((prod((shape.batch, *outs)), shape.outs), op.results[0].type.dtype)
    attributes = {
        "lhs_batching_dimensions": (),
        "rhs_batching_dimensions": (),
        "lhs_contracting_dimensions": (1,),
        "rhs_contracting_dimensions": (0,),
    }
    (made,) = r.op("dot_general", [left, right], [kind], attributes)
    apart = r.reshape(made, (shape.batch, *outs, shape.outs))
    side, order = shape.output, [0] * (len(outs) + 2)
    order[side.first], order[side.second] = 0, len(outs) + 1
    for position, dim in enumerate(side.spatial):
        order[dim] = position + 1
    return [r.transpose(apart, order)]


def _beside(shape: ConvShape) -> bool:
    """Whether no two windows have an element in common, and none begins before the image."""
    return all(w.is_plain and w.stride == w.taps and w.dilation == 1 and not w.reverse for w in shape.windows)


def _rows(r: Rewriter, image: Value, shape: ConvShape, outs: Sequence[int]) -> Value:
    """(batch and places, features and taps)"""
    side, taps = shape.input, [window.taps for window in shape.windows]
    ordered = r.transpose(image, [side.first, side.second, *side.spatial])
    used = [out * tap for out, tap in zip(outs, taps, strict=True)]
    sizes = (shape.batch, shape.features, *used)
    if sizes != ordered.type.shape:  # what no window reaches
        starts, strides = (0,) * len(sizes), (1,) * len(sizes)
        bounds = {"start_indices": starts, "limit_indices": sizes, "strides": strides}
        (ordered,) = r.op("slice", [ordered], [TensorType(sizes, ordered.type.dtype)], bounds)
    split = r.reshape(ordered, (*sizes[:2], *chain.from_iterable(zip(outs, taps, strict=True))))
    count = len(outs)
    places, inside = [2 + 2 * n for n in range(count)], [3 + 2 * n for n in range(count)]
    return r.reshape(
        r.transpose(split, [0, *places, 1, *inside]), (prod((shape.batch, *outs)), shape.features * shape.taps)
    )


def _columns(r: Rewriter, kernel: Value, shape: ConvShape) -> Value:
    """(features and taps, features of the result)"""
    side = shape.kernel
    ordered = r.transpose(kernel, [side.first, *side.spatial, side.second])
    return r.reshape(ordered, (shape.features * shape.taps, shape.outs))
