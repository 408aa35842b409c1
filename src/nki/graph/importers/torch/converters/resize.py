"""ATen's adaptive pooling and resized images, dimension by dimension, and the derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nki.core.dtypes import int32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.converters.taps import Floats, Taps, largest, taps, weighted
from nki.graph.importers.torch.table import Call, Converter, converts, refused, wide
from nki.graph.ir import Value


def _bins(size: int, count: int) -> Iterator[tuple[int, int]]:
    """The windows of adaptive pooling, as PyTorch defines them."""
    for i in range(count):
        yield i * size // count, -(-(i + 1) * size // count)


def _shares(size: int, count: int, scale: Any = None) -> Floats:
    """Means of the windows of adaptive pooling."""
    made = np.zeros((count, size))
    for row, (start, stop) in enumerate(_bins(size, count)):
        made[row, start:stop] = 1.0 / (stop - start)
    return made


def _step(size: int, count: int, align: bool, scale: float | None) -> np.float32:
    """How far inputs are apart that neighbouring outputs look at."""
    if align:
        return np.float32((size - 1) / (count - 1) if count > 1 else 0)
    return np.float32(1 / scale if scale else size / count)


def _sources(size: int, count: int, align: bool, scale: float | None) -> Floats:
    """Where outputs look, as a fraction of an input, in float32 as PyTorch computes it."""
    step, numbers = _step(size, count, align, scale), np.arange(count, dtype=np.float32)
    return step * numbers if align else step * (numbers + np.float32(0.5)) - np.float32(0.5)


def _put(size: int, places: npt.NDArray[Any], weights: Floats) -> Floats:
    """A matrix of weights; places beyond the ends are at the ends."""
    made = np.zeros((places.shape[0], size))
    rows = np.arange(places.shape[0])[:, None]
    np.add.at(made, (rows, np.clip(places, 0, size - 1).astype(np.int64)), weights)
    return made


def _linear(size: int, count: int, scale: Any, align: bool = False) -> Floats:
    source = np.maximum(_sources(size, count, align, scale), 0)
    first = np.floor(source)
    part = (source - first)[:, None]
    return _put(size, first[:, None] + np.arange(2), np.concatenate([1 - part, part], 1))


def _near(x: Floats, a: float) -> Floats:
    return ((a + 2) * x - (a + 3)) * x * x + 1


def _far(x: Floats, a: float) -> Floats:
    return ((x - 5) * x + 8) * x * a - 4 * a


def _cubic_filter(x: Floats, a: float) -> Floats:
    """R. Keys, Cubic convolution interpolation for digital image processing (1981)."""
    size = np.abs(x)
    return np.where(size < 1, _near(size, a), np.where(size < 2, _far(size, a), 0.0))


def _cubic(size: int, count: int, scale: Any, align: bool = False) -> Floats:
    source = _sources(size, count, align, scale)
    places = np.floor(source)[:, None] + np.arange(-1, 3)
    return _put(size, places, _cubic_filter(source[:, None] - places, -0.75))


def _nearest(size: int, count: int, scale: Any, middle: float = 0.0) -> Floats:
    step = _step(size, count, False, scale)
    source = np.floor((np.arange(count, dtype=np.float32) + np.float32(middle)) * step)
    return _put(size, source[:, None], np.ones((count, 1)))


def _lanczos(x: Floats) -> Floats:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


_FILTERS: dict[str, tuple[float, Callable[[Floats], Floats]]] = {
    "bilinear": (1.0, lambda x: np.maximum(1 - np.abs(x), 0)),
    "bicubic": (2.0, partial(_cubic_filter, a=-0.5)),
    "lanczos": (3.0, _lanczos),
}
"""How far a filter reaches, and the filter."""


def _smooth(size: int, count: int, scale: Any, align: bool = False, kind: str = "") -> Floats:
    """Filters that are as wide as the distance of outputs, so that nothing between them is left out."""
    reach, function = _FILTERS[kind]
    step = float(_step(size, count, align, scale))
    width = max(step, 1.0)
    made = np.zeros((count, size))
    for row in range(count):
        centre = step * (row + 0.5)
        start = max(int(centre - reach * width + 0.5), 0)
        stop = min(int(centre + reach * width + 0.5), size)
        weights = function((np.arange(start, stop) - centre + 0.5) / width)
        made[row, start:stop] = weights / (weights.sum() or 1.0)
    return made


# ----------------------------------------------------------------------------------------------------------- converters


def _along(b: Builder, call: Call, x: Value, matrices: Sequence[Floats]) -> Value:
    """The last dimensions multiplied by matrices."""
    if x.type.dtype.kind == "uint":
        raise refused(b, call, "whole numbers are rounded after each dimension", "convert the image to float32", x)
    made, first = wide(b, x), len(x.type.shape) - len(matrices)
    for number, matrix in enumerate(matrices):
        made = weighted(b, made, first + number, matrix)
    return b.convert(made, call.dtype)


def _scales(scales: Sequence[Any], count: int) -> Sequence[float | None]:
    return [scale if scale and scale > 0 else None for scale in scales] or [None] * count


def _resized(matrix: Callable[..., Floats], aligned: bool = True) -> Converter:
    def convert(b: Builder, call: Call, x: Value, size: Sequence[int], *options: Any) -> Value:
        named = {"align": bool(options[0])} if aligned else {}
        scales = _scales(options[1 if aligned else 0 :], len(size))
        sizes = x.type.shape[-len(size) :]
        matrices = [matrix(*each, **named) for each in zip(sizes, call.type.shape[-len(size) :], scales, strict=True)]
        return _along(b, call, x, matrices)

    return convert


def _resized_backward(matrix: Callable[..., Floats], aligned: bool = True) -> Converter:
    def convert(
        b: Builder, call: Call, gradient: Value, size: Sequence[int], whole: Sequence[int], *options: Any
    ) -> Value:
        named = {"align": bool(options[0])} if aligned else {}
        rank = len(whole) - 2
        scales = _scales(options[1 if aligned else 0 :], rank)
        sizes = zip(whole[2:], gradient.type.shape[2:], scales, strict=True)
        return _along(b, call, gradient, [matrix(*each, **named).T for each in sizes])

    return convert


for _kind in _FILTERS:
    _aa = partial(_smooth, kind=_kind)
    converts(f"_upsample_{_kind}2d_aa")(_resized(_aa))
    converts(f"_upsample_{_kind}2d_aa_backward")(_resized_backward(_aa))
converts("upsample_trilinear3d")(_resized(_linear))
converts("upsample_bicubic2d_backward")(_resized_backward(_cubic))
for _name in ("linear1d", "bilinear2d", "trilinear3d"):
    converts(f"upsample_{_name}_backward")(_resized_backward(_linear))
for _rank in (1, 2, 3):
    converts(f"upsample_nearest{_rank}d_backward")(_resized_backward(_nearest, False))
    _exact = partial(_nearest, middle=0.5)
    converts(f"_upsample_nearest_exact{_rank}d_backward")(_resized_backward(_exact, False))


@converts("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool(b: Builder, call: Call, x: Value, size: Sequence[int]) -> Value:
    sizes = zip(x.type.shape[-len(size) :], size, strict=True)
    return _along(b, call, x, [_shares(*each) for each in sizes])


@converts("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool_backward(b: Builder, call: Call, gradient: Value, x: Value) -> Value:
    rank = 3 if "3d" in call.name else 2
    sizes = zip(x.type.shape[-rank:], gradient.type.shape[-rank:], strict=True)
    return _along(b, call, gradient, [_shares(*each).T for each in sizes])


@converts("adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(b: Builder, call: Call, x: Value, size: Sequence[int]) -> list[Value | None]:
    first = len(x.type.shape) - len(size)
    best, stride = x, 1
    places = b.constant(0, int32, x.type.shape) if 1 in call.used else None
    for number in reversed(range(len(size))):
        whole = x.type.shape[first + number]
        best, places = largest(b, best, first + number, _windows(whole, size[number]), places, stride)
        stride *= whole
    return [best, places]


def _windows(size: int, count: int) -> Taps:
    return taps(_shares(size, count))
