"""Fourier transforms as products with the matrix of the transform, which the Tensor engine is made for.

A length with factors is taken apart into two stages with a rotation between them (J. Cooley and J. Tukey, 1965); a long
prime becomes a convolution of a length that has factors (L. Bluestein, 1970).
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from nki.core.dtypes import float32
from nki.graph.errors import unsupported
from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.legalization.complex_numbers import Pair, multiply
from nki.graph.passes.rewriter import Rewriter

LONGEST = 4096
"""Points of a transform along one dimension."""

_DIRECT, _PRIME = 128, 512
"""Up to so many points one product is made, of any number and of a prime: as many rows as partitions, or four times."""


def transform(r: Rewriter, op: Op, x: Any) -> Any:
    """``stablehlo.fft`` along its last dimensions; RFFT takes a real tensor, IRFFT makes one.

    Raises:
        GraphError: "graph.unsupported" for more than `LONGEST` points along a dimension.
    """
    lengths = [int(n) for n in op.attributes["fft_length"]]
    kind = str(op.attributes["fft_type"])
    if max(lengths) > LONGEST:
        raise unsupported(
            op,
            f"the transform has {max(lengths)} points along a dimension, more than {LONGEST}",
            f"transform blocks of at most {LONGEST} points, or leave it to the host",
        )
    whole: Pair = x if isinstance(x, tuple) else (x, r.full(0.0, x.type))
    forward = kind in ("FFT", "RFFT")
    first = len(whole[0].type.shape) - len(lengths)
    last = first + len(lengths) - 1
    if kind == "RFFT":
        whole = _along(r, whole, last, forward)
        whole = _each(r, whole, last, 0, lengths[-1] // 2 + 1)
    for dim in range(first, last if kind in ("RFFT", "IRFFT") else last + 1):
        whole = _along(r, whole, dim, forward)
    if kind != "IRFFT":
        return whole
    return _along(r, _mirrored(r, whole, last, lengths[-1]), last, forward)[0]


def _each(r: Rewriter, x: Pair, dim: int, start: int, stop: int) -> Pair:
    real, imaginary = (_sliced(r, part, dim, start, stop) for part in x)
    return real, imaginary


def _sliced(r: Rewriter, x: Value, dim: int, start: int, stop: int) -> Value:
    shape = x.type.shape
    starts = tuple(start if i == dim else 0 for i in range(len(shape)))
    limits = tuple(stop if i == dim else size for i, size in enumerate(shape))
    kind = TensorType(tuple(b - a for a, b in zip(starts, limits, strict=True)), float32)
    return r.one("slice", [x], kind, start_indices=starts, limit_indices=limits, strides=(1,) * len(shape))


def _mirrored(r: Rewriter, x: Pair, dim: int, length: int) -> Pair:
    """All points of the transform of a real tensor: those behind the middle are conjugates of those before it."""
    made = []
    for part, sign in zip(x, (1.0, -1.0), strict=True):
        behind = r.one("reverse", [_sliced(r, part, dim, 1, (length + 1) // 2)], _of(part, dim, (length - 1) // 2),
                       dimensions=(dim,))  # fmt: skip
        behind = behind if sign > 0 else r.same("negate", behind)
        made.append(r.one("concatenate", [part, behind], _of(part, dim, length), dimension=dim))
    return made[0], made[1]


def _of(x: Value, dim: int, size: int) -> TensorType:
    return TensorType((*x.type.shape[:dim], size, *x.type.shape[dim + 1 :]), float32)


def _along(r: Rewriter, x: Pair, dim: int, forward: bool) -> Pair:
    """One dimension, which is the last one meanwhile. Backwards, the result is divided by the length."""
    rank = len(x[0].type.shape)
    order = (*(i for i in range(rank) if i != dim), dim)
    back = sorted(range(rank), key=order.__getitem__)
    real, imaginary = (r.transpose(part, order) for part in x)
    shape, length = real.type.shape, real.type.shape[-1]
    rows = int(np.prod(shape[:-1]))
    pair = r.reshape(real, (rows, length)), r.reshape(imaginary, (rows, length))
    made = _last(r, pair, -1 if forward else 1)
    if not forward:
        made = _times(r, made, 1.0 / length)
    real, imaginary = (r.transpose(r.reshape(part, shape), back) for part in made)
    return real, imaginary


def _times(r: Rewriter, x: Pair, factor: float) -> Pair:
    real, imaginary = (r.same("multiply", part, r.full(factor, part.type)) for part in x)
    return real, imaginary


def _last(r: Rewriter, x: Pair, sign: int) -> Pair:
    """``sum over j of x[row, j] * exp(sign * 2 pi i j k / n)``, for rows of n points."""
    length = x[0].type.shape[1]
    factor = next((f for f in range(isqrt(length), 1, -1) if length % f == 0), 1)
    if length <= _DIRECT or (factor == 1 and length <= _PRIME):
        return _by_matrix(r, x, sign)
    return _by_factors(r, x, sign, factor) if factor > 1 else _by_chirp(r, x, sign)


def _turns(numerators: np.ndarray, length: int, sign: int) -> np.ndarray:
    """exp(sign * 2 pi i m / length), of whole numbers m."""
    return np.exp(sign * 2j * np.pi * (numerators % length) / length)


def _by_matrix(r: Rewriter, x: Pair, sign: int) -> Pair:
    """Real and imaginary parts side by side, times a matrix of both: one product."""
    rows, length = x[0].type.shape
    places = np.arange(length)
    matrix = _turns(np.outer(places, places), length, sign)
    both = np.block([[matrix.real, matrix.imag], [-matrix.imag, matrix.real]]).astype(np.float32)
    whole = r.one("concatenate", list(x), TensorType((rows, 2 * length), float32), dimension=1)
    numbers = {"lhs_batching_dimensions": (), "rhs_batching_dimensions": (), "lhs_contracting_dimensions": (1,),
               "rhs_contracting_dimensions": (0,)}  # fmt: skip
    made = r.op("dot_general", [whole, r.constant(both)], [whole.type], numbers)[0]
    return _sliced(r, made, 1, 0, length), _sliced(r, made, 1, length, 2 * length)


def _by_factors(r: Rewriter, x: Pair, sign: int, outer: int) -> Pair:
    """Point j1 * inner + j2 gives frequency k1 + outer * k2: over j1, a rotation by j2 * k1, over j2."""
    rows, length = x[0].type.shape
    inner = length // outer

    def turned(pair: Pair, shape: tuple[int, ...], order: tuple[int, ...], after: tuple[int, ...]) -> Pair:
        real, imaginary = (r.reshape(r.transpose(r.reshape(part, shape), order), after) for part in pair)
        return real, imaginary

    columns = turned(x, (rows, outer, inner), (0, 2, 1), (rows * inner, outer))
    first = turned(_last(r, columns, sign), (rows, inner, outer), (0, 2, 1), (rows, outer, inner))
    turns = _turns(np.outer(np.arange(outer), np.arange(inner)), length, sign)
    second = multiply(r, first, _spread(r, turns, (rows, outer, inner)))
    made = _last(r, turned(second, (rows, outer, inner), (0, 1, 2), (rows * outer, inner)), sign)
    return turned(made, (rows, outer, inner), (0, 2, 1), (rows, length))


def _spread(r: Rewriter, values: np.ndarray, shape: tuple[int, ...]) -> Pair:
    """Numbers that are equal for every row."""
    dims = tuple(range(1, len(shape)))
    real, imaginary = (
        r.broadcast(r.constant(np.ascontiguousarray(part, np.float32)), shape, dims)
        for part in (values.real, values.imag)
    )
    return real, imaginary


def _by_chirp(r: Rewriter, x: Pair, sign: int) -> Pair:
    """jk = (j * j + k * k - (k - j)**2) / 2 makes a convolution with exp(pi i m * m / n) of the sum."""
    rows, length = x[0].type.shape
    size = 1 << (2 * length - 2).bit_length()
    places = np.arange(length)
    chirp = _turns(places * places, 2 * length, sign)
    filter_ = np.zeros(size, np.complex128)
    filter_[:length] = chirp.conj()
    filter_[size - length + 1 :] = chirp[1:][::-1].conj()
    start = multiply(r, x, _spread(r, chirp, (rows, length)))
    padded = tuple(_padded(r, part, size) for part in start)
    spectrum = multiply(r, _last(r, (padded[0], padded[1]), -1), _spread(r, np.fft.fft(filter_), (rows, size)))
    back = _each(r, _times(r, _last(r, spectrum, 1), 1.0 / size), 1, 0, length)
    return multiply(r, back, _spread(r, chirp, (rows, length)))


def _padded(r: Rewriter, x: Value, size: int) -> Value:
    rows, length = x.type.shape
    zero = r.full(0.0, TensorType((), float32))
    edges: dict[str, Any] = {
        "edge_padding_low": (0, 0),
        "edge_padding_high": (0, size - length),
        "interior_padding": (0, 0),
    }
    return r.op("pad", [x, zero], [TensorType((rows, size), float32)], edges)[0]
