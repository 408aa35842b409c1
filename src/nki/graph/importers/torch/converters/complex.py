"""ATen's operators on complex numbers and its Fourier transforms, in StableHLO's; what the device computes of them says
`nki.graph.passes.legalization.complex_pairs`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

import numpy as np

from nki.core.dtypes import complex64, float32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import Call, axes, converts, wide
from nki.graph.ir import TensorType, Value

_NONE, _BY_ROOT, _BY_SIZE = range(3)
"""Values of ``normalization`` of transforms (ATen): what the sums are divided by."""


def is_complex(x: Value) -> bool:
    """Whether elements are complex numbers."""
    return x.type.dtype is complex64


def _typed(b: Builder, name: str, x: Value) -> Value:
    """An operation from complex numbers to real ones of the same shape."""
    return b.one(name, (x,), TensorType(x.type.shape, float32))


@converts("real")
def _real(b: Builder, call: Call, x: Value) -> Value:
    return _typed(b, "real", x) if is_complex(x) else x


@converts("imag")
def _imaginary(b: Builder, call: Call, x: Value) -> Value:
    return _typed(b, "imag", x)


@converts("complex")
def made_of(b: Builder, call: Call, first: Value, second: Value) -> Value:
    """Complex numbers of real and imaginary parts."""
    left, right = b.paired(b.convert(first, float32), b.convert(second, float32))
    return b.one("complex", (left, right), TensorType(left.type.shape, complex64))


@converts("polar")
def _polar(b: Builder, call: Call, size: Value, angle: Value) -> Value:
    left, right = b.multiply(size, b.unary("cosine", angle)), b.multiply(size, b.unary("sine", angle))
    return made_of(b, call, left, right)


@converts("view_as_complex", "view_as_complex_copy")
def as_complex(b: Builder, call: Call, x: Value) -> Value:
    """``x[..., 2]`` as complex numbers ``[...]``."""
    last = len(x.type.shape) - 1
    parts = [b.reshape(b.slice(x, last, i, i + 1), x.type.shape[:-1]) for i in range(2)]
    return made_of(b, call, *parts)


@converts("view_as_real", "view_as_real_copy")
def as_real(b: Builder, call: Call, x: Value) -> Value:
    """Complex numbers ``x[...]`` as ``[..., 2]``."""
    shape = (*x.type.shape, 1)
    parts = [b.reshape(_typed(b, name, x), shape) for name in ("real", "imag")]
    return b.concatenate(parts, len(shape) - 1)


@converts("_conj", "_conj_physical", "conj_physical", "_conj_copy")
def _conjugate(b: Builder, call: Call, x: Value) -> Value:
    if not is_complex(x):
        return x
    return made_of(b, call, _typed(b, "real", x), b.unary("negate", _typed(b, "imag", x)))


@converts("resolve_conj", "resolve_neg")
def _resolved(b: Builder, call: Call, x: Value) -> Value:
    return x  # a value has no bit that says that it is a conjugate


@converts("angle")
def _angle(b: Builder, call: Call, x: Value) -> Value:
    if is_complex(x):
        return b.binary("atan2", _typed(b, "imag", x), _typed(b, "real", x))
    data = wide(b, b.convert(x, call.dtype))
    turned = b.select(b.compare("LT", data, 0.0), np.pi, b.constant(0.0, data.type.dtype, data.type.shape))
    return b.convert(b.select(b.compare("NE", data, data), data, turned), call.dtype)


# ---------------------------------------------------------------------------------------------------------- transforms


def _fft(b: Builder, x: Value, dim: int, kind: str, length: int, size: int) -> Value:
    """A transform along one dimension, which becomes `size` long: the last one, where StableHLO has it, meanwhile."""
    rank = len(x.type.shape)
    order = (*(i for i in range(rank) if i != dim), dim)
    moved = b.transpose(x, order)
    type_ = TensorType((*moved.type.shape[:-1], size), float32 if kind == "IRFFT" else complex64)
    made = b.one("fft", (moved,), type_, fft_type=kind, fft_length=(length,))
    return b.transpose(made, sorted(range(rank), key=order.__getitem__))


def _normalized(b: Builder, x: Value, normalization: int, count: int, divided: bool) -> Value:
    """Sums over `count` points as ATen scales them; StableHLO has divided those of inverse transforms already."""
    factor = {_NONE: 1.0, _BY_ROOT: 1 / sqrt(count), _BY_SIZE: 1 / count}[normalization] * (count if divided else 1)
    return x if factor == 1 else b.multiply(x, factor)


@converts("_fft_c2c")
def _fft_c2c(b: Builder, call: Call, x: Value, dims: Sequence[int], normalization: int, forward: bool) -> Value:
    shape = x.type.shape
    for dim in axes(x, dims):
        x = _fft(b, x, dim, "FFT" if forward else "IFFT", shape[dim], shape[dim])
    return _normalized(b, x, normalization, prod(shape[dim] for dim in axes(x, dims)), not forward)


@converts("_fft_r2c")
def _fft_r2c(b: Builder, call: Call, x: Value, dims: Sequence[int], normalization: int, onesided: bool) -> Value:
    *others, last = axes(x, dims)
    shape = x.type.shape
    if onesided:
        made = _fft(b, x, last, "RFFT", shape[last], shape[last] // 2 + 1)
    else:
        made = _fft(b, b.convert(x, complex64), last, "FFT", shape[last], shape[last])
    for dim in others:
        made = _fft(b, made, dim, "FFT", shape[dim], shape[dim])
    return _normalized(b, made, normalization, prod(shape[dim] for dim in (*others, last)), False)


@converts("_fft_c2r")
def _fft_c2r(b: Builder, call: Call, x: Value, dims: Sequence[int], normalization: int, size: int) -> Value:
    *others, last = axes(x, dims)
    for dim in others:
        x = _fft(b, x, dim, "IFFT", x.type.shape[dim], x.type.shape[dim])
    needed = b.slice(x, last, 0, size // 2 + 1)
    made = _fft(b, needed, last, "IRFFT", size, size)
    return _normalized(b, made, normalization, prod(made.type.shape[dim] for dim in (*others, last)), True)
