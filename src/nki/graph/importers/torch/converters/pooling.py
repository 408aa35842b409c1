"""ATen's pooling. Where the places of maxima are needed, a window is a chain of choices between shifted images."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from nki.core.dtypes import float32, int32
from nki.graph.importers.torch.builder import IDENTITY, Builder, combiner
from nki.graph.importers.torch.table import Call, converts, refused, wide
from nki.graph.ir import TensorType, Value

Sizes = Sequence[int]


def _pair(sizes: Sizes) -> tuple[int, int]:
    return (sizes[0], sizes[-1])


def _each(sizes: Sizes, rank: int) -> tuple[int, ...]:
    """One number for each dimension that windows slide along."""
    return tuple(sizes) if len(sizes) == rank else (sizes[0],) * rank


def windows(
    b: Builder, kind: str, x: Value, size: Sizes, stride: Sizes, padding: Sequence[tuple[int, int]],
    spread: Sizes | None = None, dilation: Sizes | None = None,
) -> Value:  # fmt: skip
    """A reduction over windows of the last dimensions, as many as there are sizes."""
    rank = len(size)
    spread, dilation = spread or (1,) * rank, dilation or (1,) * rank
    lead = len(x.type.shape) - rank
    shape = []
    for i in range(rank):
        around = (x.type.shape[lead + i] - 1) * spread[i] + 1 + sum(padding[i])
        shape.append((around - (size[i] - 1) * dilation[i] - 1) // stride[i] + 1)
    one = (1,) * lead
    start = b.constant(IDENTITY[kind](x.type.dtype), x.type.dtype)
    attributes = {
        "window_dimensions": (*one, *size),
        "window_strides": (*one, *stride),
        "base_dilations": (*one, *spread),
        "window_dilations": (*one, *dilation),
        "padding": ((0, 0),) * lead + tuple(padding),
    }
    type_ = TensorType((*x.type.shape[:lead], *shape), x.type.dtype)
    return b.emit("reduce_window", (x, start), (type_,), attributes, (combiner(kind, x.type.dtype, b.location),))[0]


def _around(whole: int, out: int, size: int, stride: int, padding: int, dilation: int) -> tuple[int, int]:
    """Padding with which exactly `out` windows fit; negative where the last elements are in no window."""
    return padding, (out - 1) * stride + (size - 1) * dilation + 1 - whole - padding


@converts("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool_with_indices(
    b: Builder, call: Call, x: Value, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> list[Value | None]:
    rank = 3 if "3d" in call.name else 2
    size, step = _each(kernel, rank), _each(stride or kernel, rank)
    pads, spread = _each(padding, rank), _each(dilation, rank)
    out, whole = call.type.shape[-rank:], x.type.shape[-rank:]
    space = [_around(whole[i], out[i], size[i], step[i], pads[i], spread[i]) for i in range(rank)]
    if 1 not in call.used:
        return [windows(b, "maximum", x, size, step, space, dilation=spread), None]
    low, high = ((0,) * (len(x.type.shape) - rank) + tuple(pair[i] for pair in space) for i in range(2))
    padded = b.pad(x, IDENTITY["maximum"](x.type.dtype), low, high)
    corner = _corners(b, out, whole, step, pads)
    best: Value | None = None
    where = corner
    for tap in product(*map(range, size)):
        offset = tuple(at * by for at, by in zip(tap, spread, strict=True))
        seen = _shifted(b, padded, offset, out, step)
        if best is None:  # padding may be first, and is not better than -inf: then the first element of the image
            best, where = seen, b.expanded(_corners(b, out, whole, step, pads, spread), seen.type.shape)
            continue
        better = b.binary("or", b.compare("GT", seen, best), b.compare("NE", seen, seen))
        place = b.add(corner, _flat(offset, whole))
        best, where = b.select(better, seen, best), b.select(better, place, where)
    return [best, where]


def _flat(place: Sizes, whole: Sizes) -> int:
    """A place in an image as the number of its element; negative coordinates count too."""
    number = 0
    for at, size in zip(place, whole, strict=True):
        number = number * size + at
    return number


def _corners(b: Builder, out: Sizes, whole: Sizes, step: Sizes, pads: Sizes, inside: Sizes | None = None) -> Value:
    """The number of the first element of each window; of the first in the image if steps `inside` windows are given."""
    total: Value | None = None
    for i, count in enumerate(out):
        places = np.arange(count) * step[i] - pads[i]
        if inside is not None:
            places = np.where(places < 0, places % inside[i], places)
        along = b.constant(places * prod(whole[i + 1 :]), int32, (count,))
        part = b.broadcast(along, tuple(out), (i,))
        total = part if total is None else b.add(total, part)
    if total is None:
        raise AssertionError("windows slide along a dimension")
    return total


def _shifted(b: Builder, x: Value, offset: Sizes, out: Sizes, step: Sizes) -> Value:
    """What every window sees at one of its elements."""
    rank = len(offset)
    lead = len(x.type.shape) - rank
    starts = (0,) * lead + tuple(offset)
    limits = x.type.shape[:lead] + tuple(offset[i] + (out[i] - 1) * step[i] + 1 for i in range(rank))
    return b.slices(x, starts, limits, (1,) * lead + tuple(step))


@converts("max_pool2d_with_indices_backward")
def _max_pool2d_with_indices_backward(
    b: Builder, call: Call, gradient: Value, x: Value, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes,
    ceil_mode: bool, indices: Value,
) -> Value:  # fmt: skip
    size, step = _pair(kernel), _pair(stride or kernel)
    pads, spread = _pair(padding), _pair(dilation)
    out, whole = gradient.type.shape[-2:], x.type.shape[-2:]
    lead = (0,) * (len(x.type.shape) - 2)
    first = b.add(
        b.multiply(b.subtract(b.multiply(b.iota(tuple(out), 0), step[0]), pads[0]), whole[1]),
        b.subtract(b.multiply(b.iota(tuple(out), 1), step[1]), pads[1]),
    )
    total: Value | None = None
    for row, column in product(*map(range, size)):
        offset = (row * spread[0] - pads[0], column * spread[1] - pads[1])
        here = b.compare("EQ", indices, b.add(first, row * spread[0] * whole[1] + column * spread[1]))
        part = b.select(here, wide(b, gradient), 0.0)
        high = [whole[i] - offset[i] - (out[i] - 1) * step[i] - 1 for i in range(2)]
        part = b.pad(part, 0.0, (*lead, *offset), (*lead, *high), (*lead, *(s - 1 for s in step)))
        total = part if total is None else b.add(total, part)
    if total is None:
        raise refused(b, call, "an empty window", "use a kernel of at least one element", x)
    return b.convert(total, call.dtype)


@converts("avg_pool2d")
def _avg_pool2d(
    b: Builder, call: Call, x: Value, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool,
    count_include_pad: bool, divisor: int | None,
) -> Value:  # fmt: skip
    size, step, pads = _pair(kernel), _pair(stride or kernel), _pair(padding)
    out = call.type.shape[-2:]
    space = [_around(x.type.shape[i - 2], out[i], size[i], step[i], pads[i], 1) for i in range(2)]
    total = windows(b, "add", wide(b, x), size, step, space)
    counts = _counts(x.type.shape[-2:], out, size, step, pads, count_include_pad, divisor)
    if x.type.dtype.is_integer:  # as ATen divides integers here: towards zero
        return b.divide(total, b.constant(counts, x.type.dtype, counts.shape))
    return b.convert(b.multiply(total, _factor(b, counts)), call.dtype)


def _counts(
    whole: Sizes, out: Sizes, size: Sizes, step: Sizes, pads: Sizes, include: bool, divisor: int | None
) -> np.ndarray:
    """By how much each window's sum is divided."""
    if divisor is not None:
        return np.full(tuple(out), divisor)
    lengths = []
    for i in range(2):
        starts = np.arange(out[i]) * step[i] - pads[i]
        stops = np.minimum(starts + size[i], whole[i] + pads[i])
        lengths.append(stops - starts if include else np.minimum(stops, whole[i]) - np.maximum(starts, 0))
    return np.outer(*lengths)


def _factor(b: Builder, counts: np.ndarray) -> Value:
    factors = (1.0 / counts).astype(np.float32)
    if (factors == factors.flat[0]).all():
        return b.constant(factors.flat[0], float32)
    return b.constant(factors, float32, factors.shape)


@converts("avg_pool2d_backward")
def _avg_pool2d_backward(
    b: Builder, call: Call, gradient: Value, x: Value, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool,
    count_include_pad: bool, divisor: int | None,
) -> Value:  # fmt: skip
    size, step, pads = _pair(kernel), _pair(stride or kernel), _pair(padding)
    out, whole = gradient.type.shape[-2:], x.type.shape[-2:]
    counts = _counts(whole, out, size, step, pads, count_include_pad, divisor)
    shares = b.multiply(wide(b, gradient), _factor(b, counts))
    space = []
    for i in range(2):
        low = size[i] - 1 - pads[i]
        space.append((low, whole[i] + size[i] - 1 - low - ((out[i] - 1) * step[i] + 1)))
    return b.convert(windows(b, "add", shares, size, (1, 1), space, spread=step), call.dtype)
