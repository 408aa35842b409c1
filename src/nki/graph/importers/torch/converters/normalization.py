"""ATen's normalisations: layer, batch and group, in float32 inside."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.converters.reductions import moments
from nki.graph.importers.torch.table import Call, converts, wide
from nki.graph.ir import Value


def _finished(b: Builder, call: Call, results: Sequence[Value | None]) -> list[Value | None]:
    """Results in the shapes and dtypes that ATen gives them."""
    made: list[Value | None] = []
    for result, type_ in zip(results, call.types, strict=True):
        if result is None or type_ is None:
            made.append(None)
        elif type_.size == 0 and result.type.size:
            made.append(b.constant(0, type_.dtype, type_.shape))
        else:
            made.append(b.convert(b.reshape(result, type_.shape), type_.dtype))
    return made


def _scaled(b: Builder, x: Value, scale: Value | None, shift: Value | None, shape: Sequence[int]) -> Value:
    """``x * scale + shift``, with both in a shape that broadcasts."""
    if scale is not None:
        x = b.multiply(x, b.reshape(wide(b, scale), shape))
    return x if shift is None else b.add(x, b.reshape(wide(b, shift), shape))


@converts("native_layer_norm")
def _native_layer_norm(
    b: Builder, call: Call, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> list[Value | None]:
    data = wide(b, x)
    rank = len(x.type.shape)
    middle, square = moments(b, data, range(rank - len(shape), rank))
    factor = b.unary("rsqrt", b.add(square, eps))
    normal = b.multiply(b.subtract(data, middle), factor)
    return _finished(b, call, [_scaled(b, normal, weight, bias, shape), middle, factor])


@converts("native_group_norm")
def _native_group_norm(
    b: Builder, call: Call, x: Value, weight: Value | None, bias: Value | None, batch: int, channels: int, pixels: int,
    groups: int, eps: float,
) -> list[Value | None]:  # fmt: skip
    data = b.reshape(wide(b, x), (batch, groups, channels // groups * pixels))
    middle, square = moments(b, data, (2,))
    factor = b.unary("rsqrt", b.add(square, eps))
    normal = b.reshape(b.multiply(b.subtract(data, middle), factor), (batch, channels, pixels))
    return _finished(b, call, [_scaled(b, normal, weight, bias, (channels, 1)), middle, factor])


def _channels(x: Value) -> tuple[int, ...]:
    """The shape of one number for each channel that broadcasts over `x`."""
    return (x.type.shape[1], *(1 for _ in x.type.shape[2:]))


def _by_batch(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """Normalised by the batch's own moments: result, mean, variance and one over the deviation."""
    data = wide(b, x)
    middle, square = moments(b, data, (0, *range(2, len(x.type.shape))))
    factor = b.unary("rsqrt", b.add(square, eps))
    normal = b.multiply(b.subtract(data, middle), factor)
    return _scaled(b, normal, weight, bias, _channels(x)), middle, square, factor


def _by_running(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, eps: float
) -> Value:
    """Normalised by given moments."""
    factor = b.unary("rsqrt", b.add(wide(b, var), eps))
    scale = factor if weight is None else b.multiply(factor, wide(b, weight))
    centred = b.subtract(wide(b, x), b.reshape(wide(b, mean), _channels(x)))
    return _scaled(b, centred, scale, bias, _channels(x))


@converts("_native_batch_norm_legit_no_training")
def _batch_norm_eval(
    b: Builder, call: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value,
    momentum: float, eps: float,
) -> list[Value | None]:  # fmt: skip
    made = _by_running(b, x, weight, bias, mean, var, eps)
    empty = [None if type_ is None else b.constant(0, type_.dtype, type_.shape) for type_ in call.types[1:]]
    return [b.convert(made, call.dtype), *empty]


@converts("_native_batch_norm_legit.no_stats")
def _batch_norm_free(
    b: Builder, call: Call, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float,
    eps: float,
) -> list[Value | None]:  # fmt: skip
    made, middle, _, factor = _by_batch(b, x, weight, bias, eps)
    return _finished(b, call, [made, middle, factor])


@converts("_native_batch_norm_legit_functional")
def _batch_norm(
    b: Builder, call: Call, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value,
    training: bool, momentum: float, eps: float,
) -> list[Value | None]:  # fmt: skip
    if not training:
        made = _by_running(b, x, weight, bias, mean, var, eps)
        return _finished(b, call, [made, mean, var, mean, var])
    made, middle, square, factor = _by_batch(b, x, weight, bias, eps)
    count = prod(x.type.shape) // x.type.shape[1]
    unbiased = b.multiply(square, count / max(count - 1, 1))
    new_mean, new_var = (_moved(b, old, new, momentum) for old, new in ((mean, middle), (var, unbiased)))
    return _finished(b, call, [made, middle, factor, new_mean, new_var])


def _moved(b: Builder, old: Value, new: Value, momentum: float) -> Value:
    """A running average after one more step."""
    new = b.reshape(new, old.type.shape)
    return b.add(b.multiply(wide(b, old), 1.0 - momentum), b.multiply(new, momentum))
